"""Brokers or load balancers die at once, as by the kernel's out-of-memory killer, and are started again."""

from __future__ import annotations

from typing import ClassVar, Literal

from rabbitmq_resilience.nemesis.balancers import AnyProcessStep
from rabbitmq_resilience.sut.node_protocol import ProcessState


class Kill(AnyProcessStep):
    """SIGKILL to the process. ``node`` may also be a load balancer (``balancer:0``) or all of them (``balancer:all``):
    all connections through it die with it."""

    fault: Literal["kill"] = "kill"

    example: ClassVar[str] = 'node: "leader:q1"'

    take: ClassVar[str] = "kill"
    give: ClassVar[str] = "start"
    taken: ClassVar[ProcessState] = "gone"
