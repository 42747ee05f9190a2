"""Brokers die at once, as by a power cut or the kernel's out-of-memory killer, and are started again."""

from __future__ import annotations

from typing import ClassVar, Literal

from rabbitmq_resilience.nemesis.processes import ProcessStep
from rabbitmq_resilience.sut.protocol import ProcessState


class Kill(ProcessStep):
    """SIGKILL to the broker's process."""

    fault: Literal["kill"] = "kill"

    example: ClassVar[str] = 'node: "leader:q1"'

    take: ClassVar[str] = "kill"
    give: ClassVar[str] = "start"
    taken: ClassVar[ProcessState] = "gone"
