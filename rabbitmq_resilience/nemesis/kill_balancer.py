"""A load balancer dies at once with all connections through it, and is started again."""

from __future__ import annotations

from typing import ClassVar, Literal

from rabbitmq_resilience.nemesis.balancers import BalancerStep
from rabbitmq_resilience.sut.protocol import ProcessState


class KillBalancer(BalancerStep):
    """SIGKILL to the balancer's process. ``balancer`` is one by number, from 0 (``balancer:0``), or ``all``."""

    fault: Literal["kill_balancer"] = "kill_balancer"

    example: ClassVar[str] = 'balancer: "balancer:0"'

    take: ClassVar[str] = "kill"
    give: ClassVar[str] = "start"
    taken: ClassVar[ProcessState] = "gone"
