"""State what a tap does to single methods: hold them back, drop them, or answer them with an error."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from rabbitmq_resilience.tap.amqp_methods import ACKNOWLEDGEMENTS, CONFIRMS, NAMED, SentMethods, Side
from rabbitmq_resilience.tap.frame_stream import Frame

Treatment = Literal["hold", "drop", "answer"]
#: A short string of AMQP is not longer.
_TEXT_BYTES_MAX = 255

#: Errors that close a channel, and errors that close the connection (AMQP 0-9-1, "Reply Codes").
CHANNEL_ERRORS = {311: "CONTENT_TOO_LARGE", 313: "NO_CONSUMERS", 403: "ACCESS_REFUSED", 404: "NOT_FOUND"} | {
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
}
CONNECTION_ERRORS = {320: "CONNECTION_FORCED", 402: "INVALID_PATH", 501: "FRAME_ERROR", 502: "SYNTAX_ERROR"} | {
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}


@dataclass(frozen=True, kw_only=True)
class MethodRule:
    """What happens to a method.

    ``hold``: the frame and all later ones of its channel and direction wait for ``for_s``. ``drop``: the method and its
    content go no further. ``answer``: a client's method goes no further, and the tap replies with the error ``code``,
    as a broker does. ``times``: for how many methods, over all connections; None for each. ``processes``: the names of
    the processes whose connections it is for; none means all. Raise ValueError if this cannot be done.
    """

    method: str
    treatment: Treatment
    for_s: float = 0.0
    times: int | None = 1
    code: int = 0
    text: str = ""
    processes: Collection[str] = ()

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise ValueError(problem)

    @property
    def sent(self) -> SentMethods:
        return NAMED[self.method]

    def as_fields(self) -> dict[str, Any]:
        return {**vars(self), "processes": sorted(self.processes)}

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields)

    def _problem(self) -> str:
        if self.method not in NAMED:
            return f"no rule can name the method {self.method!r}; {_hint(self.method)}"
        if self.treatment not in get_args(Treatment):
            return f"a rule cannot {self.treatment} {self.method}; write {', '.join(get_args(Treatment))}"
        if self.times is not None and self.times < 1:
            return f"{self.method} is met {self.times} times; state times above 0, or null for each"
        if self.treatment == "hold" and not self.for_s > 0:
            return f"{self.method} is held for {self.for_s:g} s; state for_s above 0"
        return self._problem_of_answer() if self.treatment == "answer" else ""

    def _problem_of_answer(self) -> str:
        if self.sent.sender is not Side.CLIENT or not (self.sent.answered or self.method == "basic.publish"):
            return f"a broker does not answer {self.method} with an error; name a method that clients send"
        if self.code not in CHANNEL_ERRORS | CONNECTION_ERRORS:
            known = ", ".join(map(str, [*CHANNEL_ERRORS, *CONNECTION_ERRORS]))
            return f"AMQP 0-9-1 has no error {self.code}; there are {known}"
        if self.code in CHANNEL_ERRORS and self.method.startswith(("connection.", "channel.open")):
            known = ", ".join(map(str, CONNECTION_ERRORS))
            return f"no channel is open yet at {self.method}; take an error of the connection: {known}"
        if len(self.text.encode()) > _TEXT_BYTES_MAX:
            return f"the text of an error has at most {_TEXT_BYTES_MAX} bytes, and this has {len(self.text.encode())}"
        return ""


def _hint(method: str) -> str:
    if method in {"basic.ack", "basic.nack"}:
        return f"write {CONFIRMS} for those of a broker, or {ACKNOWLEDGEMENTS} for those of a client"
    near = difflib.get_close_matches(method, NAMED, n=1)
    return f"did you mean {near[0]}?" if near else "write it as the specification does, such as basic.consume-ok"


@dataclass
class ActiveRule:
    """A rule in effect. ``count`` is how many methods it met."""

    rule: MethodRule
    count: int = 0
    #: False once it was ended. What it holds goes on then.
    active: bool = field(default=True)

    def may_meet(self, process: str) -> bool:
        """Return whether a method of that process may still meet the rule."""
        rule = self.rule
        if not self.active or (rule.times is not None and self.count >= rule.times):
            return False
        return not rule.processes or process in rule.processes

    def meets(self, sender: Side, process: str, frame: Frame) -> bool:
        """Return whether the rule is for this frame, which counts then."""
        sent = self.rule.sent
        if sent.sender is not sender or frame.method not in sent.ids or not self.may_meet(process):
            return False
        self.count += 1
        return True
