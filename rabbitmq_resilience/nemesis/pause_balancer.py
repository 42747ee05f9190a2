"""A load balancer freezes: connections through it stay open and carry nothing, and continue later."""

from __future__ import annotations

from typing import ClassVar, Literal

from rabbitmq_resilience.nemesis.balancers import BalancerStep
from rabbitmq_resilience.sut.protocol import ProcessState


class PauseBalancer(BalancerStep):
    """SIGSTOP to the balancer's process, and SIGCONT at the end. ``balancer`` is one by number, from 0
    (``balancer:0``), or ``all``."""

    fault: Literal["pause_balancer"] = "pause_balancer"

    example: ClassVar[str] = 'balancer: "balancer:0"'

    take: ClassVar[str] = "pause"
    give: ClassVar[str] = "resume"
    taken: ClassVar[ProcessState] = "suspended"
