"""Find the library and the program that let the disk of a broker fail; set-up builds them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.locations import CHECKOUT, TOOLS

#: The command that builds them.
BUILD = "rabbitmq-resilience setup disk-faults" if CHECKOUT is None else "make disk-faults"


@dataclass(frozen=True)
class DiskFaults:
    """The ``library`` that is preloaded into brokers, and the ``program`` that reads and changes its record."""

    library: Path
    program: Path


def find_disk_faults(tools: Path = TOOLS) -> DiskFaults:
    """Return what set-up has built. Raise ``ToolMissingError`` if it is not there."""
    found = DiskFaults(tools / "disk-faults" / "libdiskfaults.so", tools / "disk-faults" / "disk-faults")
    if not (found.library.is_file() and os.access(found.program, os.X_OK)):
        raise ToolMissingError(
            f"no libdiskfaults.so with its program disk-faults in {found.library.parent}; faults of disks need both. "
            f"Run `{BUILD}`, which compiles them on Linux."
        )
    return found
