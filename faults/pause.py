"""Brokers freeze: their processes are suspended with their connections open, and go on later."""

from __future__ import annotations

from typing import ClassVar, Literal

from faults.processes import ProcessStep
from topologies.cluster import ProcessState


class Pause(ProcessStep):
    """SIGSTOP, and SIGCONT at the end."""

    fault: Literal["pause"] = "pause"

    take: ClassVar[str] = "pause"
    give: ClassVar[str] = "resume"
    taken: ClassVar[ProcessState] = "suspended"
