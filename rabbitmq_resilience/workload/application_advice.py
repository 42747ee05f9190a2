"""Say where an application uses its brokers in a way that can lose messages, or overload a consumer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: A note names no more queues than these.
_NAMED_MAX = 5


def advised(use: Mapping[str, Any]) -> Iterator[str]:
    """Yield advice for people, from the fields of an event "application_use"."""
    lost: Mapping[str, int] = use["plain_lost"]
    for process, of in use["processes"].items():
        if of["plain"]:
            missing = f"; {lost[process]:,} of them did not arrive" if lost.get(process) else ""
            text = f"{process} published {of['plain']:,} messages without confirms{missing}"
            yield f"{text}: a broker or a connection that dies takes such messages with it, and the program cannot know"
        if of["unroutable"]:
            text = f"{process} published {of['unroutable']:,} messages that no queue was bound for, not as mandatory"
            yield f"{text}: the broker drops and confirms them; set the mandatory flag and heed what is returned"
        if of["automatic"]:
            text = f"{process} got {of['automatic']:,} messages that count as acknowledged when they are sent"
            yield f"{text}: what it has not worked on when it dies is lost; acknowledge by hand, after the work"
        if of["unlimited"]:
            yield f"{process} consumes without a limit (basic.qos): it may be sent a whole queue; set a prefetch"
        if of["returned"]:
            text = f"{process} had not acknowledged {of['returned']:,} messages when their channel ended"
            yield f"{text}: they come again, so that its work must be harmless when it is done twice"
        yield from _of_work(process, of.get("work", {}))
    for process, count in use.get("may_have_expired", {}).items():
        text = f"{count:,} messages of {process} have a time to live (expiration) and did not arrive"
        yield f"{text}: they may have expired, and are not judged"
    queues: defaultdict[str, list[str]] = defaultdict(list)
    for name, reason in use.get("skipped", {}).items():
        queues[reason].append(name)
    for reason, names in queues.items():
        yield f"what is lost in {_some(names)} is not judged: {reason}"


def _of_work(process: str, work: Mapping[str, Any]) -> Iterator[str]:
    """Yield advice from what a process wrote of its work, and from lines that could not be read."""
    if work.get("uncommitted"):
        text = f"{process} acknowledged {work['uncommitted']:,} messages that its program never committed"
        yield f"{text}: they are lost; acknowledge after the work"
    if work.get("early"):
        text = f"{process} acknowledged {work['early']:,} messages before they were committed"
        text += f", up to {work['early_s_max']:g} s"
        yield f"{text}: if it dies meanwhile, they are lost; acknowledge after the work"
    if work.get("unread"):
        text = f"{process} wrote {work['unread']:,} lines that say nothing of its work"
        yield f"{text}; {work['first_unread']}"


def unjudged(declared_later: Sequence[str]) -> Iterator[str]:
    """Yield, for people, which queues the broker had not listed when messages began to flow."""
    if declared_later:
        queues = _some(declared_later)
        yield f"declared later, not judged: {queues}; a broker listed the queues when messages began to flow"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")
