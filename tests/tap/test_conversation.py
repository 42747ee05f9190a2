"""What is recorded of a connection, and what never is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.tap.amqp_methods import Side
from rabbitmq_resilience.tap.copied_bytes import Copied, Copy
from rabbitmq_resilience.tap.recorder import Recorder
from tests.tap.conversations_compared import decoded
from tests.tap.frames import ALIVE, HEADER, PROTOCOL, content, frame
from tests.tap.records import events, only, rows, said
from tests.tap.reference.amqp_grammar import arguments, properties
from tests.tap.reference.conversations import Said

CLIENT, BROKER = 0, 1
#: No file of a tap may have any of these.
SECRETS = (b"pass-word", b"AMQPLAIN-secret", b"new-token", b"body-of-mine", b"correlation-of-mine", b"header-of-mine")


def say(name: str, channel: int = 1, **values: Any) -> bytes:
    return frame(1, channel, arguments(name, **values))


def heard(*sent: tuple[int, bytes]) -> list[Said]:
    """Return what is said of these bytes, which come a second after each other."""
    pieces = [(1_000_000 * at, side, data) for at, (side, data) in enumerate(sent)]
    return decoded(pieces, until=1_000_000 * len(sent))


def message(body: bytes, **given: Any) -> bytes:
    return b"".join(content(1, body, properties=properties(**given)))


def published(body: bytes, **given: Any) -> bytes:
    return say("basic.publish", key="k") + message(body, **given)


def secret_talk() -> list[tuple[int, bytes]]:
    """Return a conversation that has all secrets."""
    given: dict[str, Any] = {
        "correlation_id": "correlation-of-mine",
        "headers": {"a": "header-of-mine"},
        "message_id": "header-of-mine",
    }
    refused: dict[str, Any] = {"code": 403, "text": "ACCESS_REFUSED"}
    start: dict[str, Any] = {"properties": {"product": "p"}, "mechanism": "PLAIN", "locale": "en_US"}
    return [
        (CLIENT, PROTOCOL + say("connection.start-ok", 0, **start, response=b"\0user\0pass-word")),
        (CLIENT, say("connection.start-ok", 0, **start, response=b"\x05LOGINS\0\0\0\x0fAMQPLAIN-secret")),
        (BROKER, say("connection.secure", 0, challenge=b"pass-word")),
        (CLIENT, say("connection.secure-ok", 0, response=b"pass-word")),
        (CLIENT, say("connection.update-secret", 0, secret=b"new-token", reason="old")),
        (CLIENT, say("channel.open") + published(b"body-of-mine", **given)),
        (BROKER, say("basic.return", code=312, text="NO_ROUTE", key="k") + message(b"body-of-mine", **given)),
        (BROKER, say("channel.close", **refused)),
    ]


def record(folder: Path, talk: list[tuple[int, bytes]]) -> None:
    recorder = Recorder(folder, b"key")
    recorder.take(Copy(4, Copied.REMARK, 0, b'{"what": "opened"}'))
    for at, (side, data) in enumerate(talk):
        recorder.take(Copy(4, Copied(side), at, data))
    recorder.take(Copy(4, Copied.REMARK, len(talk), b'{"what": "closed"}'))
    recorder.close()


def leaked(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [f"{path.name}: {secret!r}" for path in files for secret in SECRETS if secret in path.read_bytes()]


def test_no_file_has_a_credential_or_a_value_of_a_message(tmp_path: Path) -> None:
    record(tmp_path, secret_talk())
    assert [row["kind"] for row in rows(tmp_path)] == [0, 3]
    assert only(tmp_path, "channel_closed").fields["code"] == 403
    assert leaked(tmp_path) == []


@pytest.mark.parametrize("number", range(6))
def test_no_damage_makes_a_secret_known(tmp_path: Path, number: int) -> None:
    """Damaged lengths make other parts of a frame a text."""
    side, data = secret_talk()[number]
    for at in range(8, len(data), 7):
        for damage in (0x00, 0x01, 0xFF):
            folder = tmp_path / f"{at}-{damage}"
            folder.mkdir()
            talk = secret_talk()
            talk[number] = (side, data[:at] + bytes([damage]) + data[at + 1 :])
            record(folder, talk)
    assert [each for each in leaked(tmp_path) if "pass" in each or "secret" in each or "token" in each] == []


def test_copies_of_a_connection_that_is_not_known_are_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, b"key")
    recorder.take(Copy(4, Copied.OF_CLIENT, 0, PROTOCOL + ALIVE))
    recorder.take(Copy(4, Copied.REMARK, 1, b'{"what": "not_copied", "detail": "9 bytes wait"}'))
    recorder.close()
    assert said(tmp_path) == ["not_copied"]
    assert events(tmp_path)[0].connection == 4


def test_the_second_agreement_does_not_end_the_next_channel_with_that_number() -> None:
    """Both sides close channel 1, and the client opens it again at once."""
    found = heard(
        (CLIENT, say("channel.open") + say("channel.close")),
        (BROKER, say("channel.open-ok") + say("channel.close", code=404)),
        (CLIENT, say("channel.close-ok") + say("channel.open")),
        (BROKER, say("channel.close-ok") + say("channel.open-ok")),
        (CLIENT, published(b"x")),
    )
    assert [(what, channel) for what, _, channel, _ in found if what == "row"] == [("row", 1)]


def test_what_is_published_on_a_channel_that_both_sides_closed_is_no_message() -> None:
    """What comes before the client has agreed was on its way."""
    found = heard(
        (CLIENT, say("channel.open")),
        (BROKER, say("channel.close", code=404)),
        (CLIENT, published(b"on its way") + say("channel.close-ok") + published(b"too late")),
    )
    assert [fields["size_bytes"] for what, _, _, fields in found if what == "row"] == [len(b"on its way")]


def test_a_lost_reply_gives_no_consumer_the_queue_of_another() -> None:
    found = heard(
        (CLIENT, say("channel.open") + say("basic.consume", queue="lost", tag="a", no_ack=True)),
        (CLIENT, say("basic.consume", queue="kept", tag="b")),
        (BROKER, say("basic.consume-ok", tag="b")),
        (BROKER, say("basic.deliver", tag="b", delivery=1) + message(b"")),
        (BROKER, say("basic.deliver", tag="a", delivery=2) + message(b"")),
    )
    (consuming,) = [fields for what, _, _, fields in found if what == "consuming"]
    assert (consuming["consumer"], consuming["queue"]) == ("b", "kept")
    rows = [fields for what, _, _, fields in found if what == "row"]
    assert [(row["place"], row["mode"]) for row in rows] == [("kept", "PLAIN"), ("lost", "AUTOMATIC")]


def test_an_empty_name_is_the_queue_that_was_declared_before_it() -> None:
    """A later declare that wants no reply does not change what an earlier request means."""
    found = heard(
        (CLIENT, say("channel.open") + say("queue.declare", exclusive=True) + say("queue.bind", exchange="x")),
        (CLIENT, say("queue.declare", queue="later", nowait=True) + say("queue.purge", nowait=True)),
        (BROKER, say("queue.declare-ok", queue="amq.gen-1") + say("queue.bind-ok")),
    )
    queues = [(what, fields["queue"]) for what, _, _, fields in found if "queue" in fields]
    expected = [("queue_declared", "amq.gen-1"), ("queue_bound", "amq.gen-1")]
    assert queues == [*expected, ("queue_declared", "later"), ("queue_purged", "later")]


def test_publishes_right_after_the_request_for_confirms_are_counted() -> None:
    found = heard(
        (CLIENT, say("channel.open") + published(b"no") + say("confirm.select") + published(b"1") + published(b"2")),
        (BROKER, say("confirm.select-ok") + say("basic.ack", delivery=2, multiple=True)),
    )
    rows = [(fields["kind"], fields["tag"]) for what, _, _, fields in found if what == "row"]
    assert rows == [("PUBLISHED", 0), ("PUBLISHED", 1), ("PUBLISHED", 2), ("CONFIRMED", 2)]


def test_deliveries_that_are_recovered_are_rejected_to_come_again() -> None:
    found = heard(
        (CLIENT, say("channel.open") + say("basic.consume", queue="q", tag="a")),
        (BROKER, say("basic.consume-ok", tag="a") + say("basic.deliver", tag="a", delivery=1) + message(b"")),
        (CLIENT, say("basic.recover", requeue=True)),
        (BROKER, say("basic.recover-ok")),
    )
    rows = [fields for what, _, _, fields in found if what == "row"]
    assert [row["kind"] for row in rows] == ["DELIVERED", "REJECTED"]
    assert (rows[1]["tag"], rows[1]["multiple"], rows[1]["flag"]) == (0, True, True)


def test_what_a_broker_adds_does_not_make_another_message() -> None:
    given = {"headers": {"a": 1}, "correlation_id": "c"}
    added = given | {"headers": {"a": 1, "x-delivery-count": 2, "x-first-death-queue": "q"}, "expiration": "4"}
    changed = given | {"headers": {"a": 2}}
    found = heard((CLIENT, say("channel.open") + b"".join(published(b"b", **each) for each in (given, added, changed))))
    first, second, third = [fields["identity"] for what, _, _, fields in found if what == "row"]
    assert first == second != third


def of_header(key: bytes, letter_and_value: bytes) -> bytes:
    """Return a publish whose only header has these bytes."""
    inside = bytes([len(key)]) + key + letter_and_value
    flags_and_table = b"\x20\x00" + len(inside).to_bytes(4) + inside
    return say("basic.publish") + frame(HEADER, 1, b"\x00\x3c" + bytes(10) + flags_and_table)


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"t\x01",
            b"b\xff",
            b"B\xff",
            b"s\xff\xfe",
            b"U\xff\xfe",
            b"u\xff\xfe",
            b"I\xff\xff\xff\xfe",
            b"i\xff\xff\xff\xfe",
        ),
        *(b"l" + bytes(8), b"L" + bytes(8), b"V", b"D\x02\x00\x00\x00\x07", b"f\x7f\xc0\x00\x00", b"d" + bytes(8)),
        *(b"T" + (1_764_000_000_000).to_bytes(8), b"S\x00\x00\x00\x02\xff\xfe", b"x\x00\x00\x00\x01\xff"),
        *(b"A\x00\x00\x00\x03V" + b"t\x00", b"F\x00\x00\x00\x04\x01aB\x07"),
    ],
    ids=lambda value: chr(value[0]),
)
def test_each_value_that_brokers_carry_is_read_and_is_part_of_the_message(value: bytes) -> None:
    """Also times of which a client meant milliseconds, numbers that are none, and texts that are no UTF-8."""
    changed = value[:-1] + bytes([value[-1] ^ 1])
    sent = [
        of_header(b"a", each) + of_header(b"\xff", each) for each in ([value, changed] if len(value) > 1 else [value])
    ]
    found = heard((CLIENT, say("channel.open") + b"".join(sent) + of_header(b"other", b"V")))
    assert [what for what, *_ in found] == ["channel_opened"] + ["row"] * (2 * len(sent) + 1)
    assert len({fields["identity"] for what, _, _, fields in found if what == "row"}) == 2 * len(sent) + 1


@pytest.mark.parametrize(
    ("damaged", "detail"),
    [
        (frame(1, 1, b"\x00\x3c\x00\x07"), r"no method (60, 7)"),
        (frame(1, 1, b"\x00\x3c"), "no method None"),
        (frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x09x"), "cannot be decoded"),
        (frame(HEADER, 1, bytes(14)), "header came on channel 1 out of its order"),
        (frame(3, 1, b"body"), "body came on channel 1 out of its order"),
        (say("basic.publish") + message(b"body")[:-1] + b"\x00", "a frame ends with the byte 0x00"),
        (
            say("basic.publish") + frame(HEADER, 1, b"\0\x3c\0\0" + bytes(7) + b"\3\0\0") + frame(3, 1, b"body"),
            "too long",
        ),
    ],
)
def test_what_cannot_be_read_is_reported_once_and_nothing_after_it(damaged: bytes, detail: str) -> None:
    found = heard((CLIENT, say("channel.open")), (CLIENT, damaged), (CLIENT, published(b"after")), (BROKER, b"\x00"))
    assert [what for what, *_ in found] == ["channel_opened", "unreadable"]
    assert detail in str(found[1][3]["detail"])


def recorded_as(key: bytes) -> str:
    """Return the routing key that is recorded of a publish, and of a message that is delivered with that key."""
    found = heard(
        (CLIENT, say("channel.open") + say("basic.publish", key=key, exchange=key) + message(b"")),
        (BROKER, say("basic.deliver", tag="t", delivery=1, key=key) + message(b"")),
    )
    published, delivered = [fields for what, _, _, fields in found if what == "row"]
    assert published["routing_key"] == published["place"] == delivered["routing_key"]
    return str(published["routing_key"])


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"\xff\x00\xc3\xa4\xc3", "\ufffdff\x00ä\ufffdc3"),
        ("a\\xffä\U0001f407".encode(), "a\\xffä\U0001f407"),
        ("\ufffdff".encode(), "\ufffdef\ufffdbf\ufffdbdff"),
        (b"\xed\xb3\xbf", "\ufffded\ufffdb3\ufffdbf"),  # a surrogate is no UTF-8
    ],
)
def test_a_key_that_is_no_utf_8_is_recorded_so_that_its_bytes_are_known(key: bytes, text: str) -> None:
    assert recorded_as(key) == text
    assert re.sub("\ufffd(..)".encode(), lambda found: bytes.fromhex(found[1].decode()), text.encode()) == key


def test_names_that_are_no_utf_8_are_recorded_in_files(tmp_path: Path) -> None:
    """They are names of queues, exchanges, consumers, virtual hosts and clients."""
    name = b"\xffname"
    start: dict[str, Any] = {"properties": {"product": name}, "mechanism": "PLAIN", "locale": "en_US"}
    asked = say("queue.declare", queue=name) + say("basic.consume", queue=name, tag=name)
    record(
        tmp_path,
        [
            (CLIENT, PROTOCOL + say("connection.start-ok", 0, **start) + say("connection.open", 0, vhost=name)),
            (CLIENT, say("channel.open") + asked + say("basic.publish", key=name) + message(b"")),
            (BROKER, say("queue.declare-ok", queue=name) + say("basic.consume-ok", tag=name)),
            (BROKER, say("channel.close", code=404, text=name)),
        ],
    )
    assert "unreadable" not in said(tmp_path)
    found = [
        only(tmp_path, what).fields for what in ("client", "asks", "queue_declared", "consuming", "channel_closed")
    ]
    written = [fields[name] for fields, name in zip(found, ("product", "vhost", "queue", "queue", "text"), strict=True)]
    assert {*written, rows(tmp_path)[0]["routing_key"], found[3]["consumer"]} == {"\ufffdffname"}


def test_a_silent_side_is_reported_with_its_time() -> None:
    tuned = (CLIENT, say("connection.tune-ok", 0, heartbeat=1))
    pieces = [(0, *tuned), (1_000_000, BROKER, ALIVE), (2_900_000, BROKER, ALIVE), (4_900_001, BROKER, ALIVE)]
    found = decoded(pieces, until=6_000_000)
    silent = [(t_us, fields["sender"], fields["for_s"]) for what, t_us, _, fields in found if what == "silent"]
    assert silent == [(4_900_001, "broker", 2.0), (6_000_000, "client", 6.0)]


def test_sides_have_names() -> None:
    assert [Side.CLIENT.other, Side.BROKER.other] == [Side.BROKER, Side.CLIENT]
