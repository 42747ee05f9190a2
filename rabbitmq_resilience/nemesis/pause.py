"""Brokers or load balancers freeze: their processes are suspended with their connections open, and continue later."""

from __future__ import annotations

from typing import ClassVar, Literal

from rabbitmq_resilience.nemesis.balancers import AnyProcessStep
from rabbitmq_resilience.sut.node_protocol import ProcessState


class Pause(AnyProcessStep):
    """SIGSTOP to the process, and SIGCONT at the end. ``node`` may also be a load balancer (``balancer:0``) or all of
    them (``balancer:all``): connections through it stay open and carry nothing."""

    fault: Literal["pause"] = "pause"

    example: ClassVar[str] = "node: b1"

    take: ClassVar[str] = "pause"
    give: ClassVar[str] = "resume"
    taken: ClassVar[ProcessState] = "suspended"
