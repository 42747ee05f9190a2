"""Say where an application uses its brokers in a way that can lose messages, or overload a consumer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: A note names no more queues than these.
_NAMED_MAX = 10


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


def unjudged(declared_later: Sequence[str]) -> Iterator[str]:
    """Yield, for people, which queues the broker had not listed when messages began to flow."""
    if declared_later:
        names, more = ", ".join(declared_later[:_NAMED_MAX]), len(declared_later) - _NAMED_MAX
        others = f" and {more:,} more" if more > 0 else ""
        yield f"declared later, not judged: {names}{others}; a broker listed the queues when messages began to flow"
