"""What a workload is refused for, as people read it."""

from __future__ import annotations

#: Pydantic's links hold its version.
LINKS = {r"\n +For further information visit \S+": ""}
