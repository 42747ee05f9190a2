"""Find the messages by which a broker that did not start explains why, and say why a process ended."""

from __future__ import annotations

import re
import signal
from pathlib import Path

ERRORS_MAX, LAST_LINES = 8, 15
#: A line of a log or of a process's output with the cause of an error. Reports of processes that ended for that cause
#: do not match.
_ERROR = re.compile(
    r"^\S+ \S+ \[(?:error|critical)\] <[\d.]+> +"
    r"((?!supervisor|crasher|initial call|pid:|\*\*|errorContext|offender|BOOT FAILED|=)\S.*)$"
)

_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
#: What Erlang, Python and the dynamic linker print if the system gives them no memory.
_NO_MEMORY = re.compile(
    r"Cannot (?:re)?allocate \d+ bytes|Failed to create super carrier|Cannot allocate memory|MemoryError"
    r"|failed to map segment|failed to allocate"
)
MORE_MEMORY = "end other programs, raise the limit (ulimit -v, or that of the container), or take a smaller topology"


def cause_of(status: int, printed: Path | None = None) -> str:
    """Return what to add to the ``status`` of a process that ended: why, and what to do about it.

    ``printed`` is the file with its output. Return an empty text unless memory may have been short."""
    if status in _KILLED:
        return f", killed: if memory is short, the kernel does that, and `dmesg` names the process. Then {MORE_MEMORY}"
    text = printed.read_text(errors="replace") if printed is not None and printed.exists() else ""
    return f", as it got no memory: {MORE_MEMORY}" if _NO_MEMORY.search(text) else ""


def last_words(node: str, source: Path) -> str:
    """Return the first errors in ``source``, the log or the output of a node. Without errors, return its last lines."""
    lines = source.read_text(errors="replace").splitlines() if source.exists() else []
    errors = [found[1] for line in lines if (found := _ERROR.match(line))][:ERRORS_MAX]
    shown = ["has these errors first:", *errors] if errors else ["ends:", *lines[-LAST_LINES:]]
    return f"{source.name} of {node} " + "\n".join(shown)
