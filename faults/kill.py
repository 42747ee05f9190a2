"""Brokers die at once, as by a power cut or the kernel's out-of-memory killer, and are started again."""

from __future__ import annotations

from typing import ClassVar, Literal

from faults.processes import ProcessStep
from topologies.cluster import ProcessState


class Kill(ProcessStep):
    """SIGKILL."""

    fault: Literal["kill"] = "kill"

    take: ClassVar[str] = "kill"
    give: ClassVar[str] = "start"
    taken: ClassVar[ProcessState] = "gone"
