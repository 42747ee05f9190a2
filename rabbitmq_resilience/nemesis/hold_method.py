"""The reply to one method comes late, while other channels of its connection go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.nemesis.on_methods import MethodStep
from rabbitmq_resilience.tap.method_rules import Treatment


class HoldMethod(MethodStep):
    """A tap holds back a frame with that method for ``hold_s``, and later frames of its channel in the same direction.
    Other channels and heartbeats go on, and the order within the channel stays. What is held goes on when the step
    ends.

    ``method`` is named as in the specification of AMQP 0-9-1 (``basic.consume-ok``); ``confirms`` are those of a
    broker, and ``acknowledgements`` those of a client. ``process`` is one of the application (``worker-0``), or all
    copies of a program (``worker``); without it, all. ``times``: for how many methods; null for each. If no such
    method is sent during the step, the fault is not proven."""

    fault: Literal["hold_method"] = "hold_method"
    hold_s: Annotated[float, Field(gt=0, le=3600)]

    example: ClassVar[str] = "method: basic.consume-ok, hold_s: 5"
    treatment: ClassVar[Treatment] = "hold"

    def _own_fields(self) -> Mapping[str, Any]:
        return {"for_s": self.hold_s}
