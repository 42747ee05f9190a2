"""Brokers freeze: their processes are suspended with their connections open, and continue later."""

from __future__ import annotations

from typing import ClassVar, Literal

from rabbitmq_resilience.nemesis.processes import ProcessStep
from rabbitmq_resilience.sut.protocol import ProcessState


class Pause(ProcessStep):
    """SIGSTOP to the broker's process, and SIGCONT at the end."""

    fault: Literal["pause"] = "pause"

    example: ClassVar[str] = "node: b1"

    take: ClassVar[str] = "pause"
    give: ClassVar[str] = "resume"
    taken: ClassVar[ProcessState] = "suspended"
