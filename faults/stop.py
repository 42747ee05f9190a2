"""Brokers are shut down in good order, and started again."""

from __future__ import annotations

from typing import ClassVar, Literal

from faults.processes import ProcessStep
from topologies.cluster import ProcessState


class Stop(ProcessStep):
    """A graceful shutdown."""

    fault: Literal["stop"] = "stop"

    take: ClassVar[str] = "stop"
    give: ClassVar[str] = "start"
    taken: ClassVar[ProcessState] = "gone"
