"""What the notes of a run say of messages and queues that are not judged."""

from __future__ import annotations

from rabbitmq_resilience.workload.application_advice import advised


def test_messages_and_queues_that_are_not_judged_are_named_with_the_reason() -> None:
    """Queues together, as an application may have one for each of its clients."""
    skipped = {f"reply-{i}": "it is exclusive" for i in range(7)} | {"mail": "its messages expire"}
    use = {"processes": {}, "plain_lost": {}, "may_have_expired": {"web-0": 1_200}, "skipped": skipped}
    assert list(advised(use)) == [
        "1,200 messages of web-0 have a time to live (expiration) and did not arrive: "
        "they may have expired, and are not judged",
        "what is lost in reply-0, reply-1, reply-2, reply-3, reply-4 and 2 more is not judged: it is exclusive",
        "what is lost in mail is not judged: its messages expire",
    ]
