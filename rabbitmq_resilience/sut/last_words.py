"""Find the messages by which a broker that did not start explains why."""

from __future__ import annotations

import re
from pathlib import Path

ERRORS_MAX, LAST_LINES = 8, 15
#: A line of a log or of a process's output with the cause of an error. Reports of processes that ended for that cause
#: do not match.
_ERROR = re.compile(
    r"^\S+ \S+ \[(?:error|critical)\] <[\d.]+> +"
    r"((?!supervisor|crasher|initial call|pid:|\*\*|errorContext|offender|BOOT FAILED|=)\S.*)$"
)


def last_words(node: str, source: Path) -> str:
    """Return the first errors in ``source``, the log or the output of a node. Without errors, return its last lines."""
    lines = source.read_text(errors="replace").splitlines() if source.exists() else []
    errors = [found[1] for line in lines if (found := _ERROR.match(line))][:ERRORS_MAX]
    shown = ["has these errors first:", *errors] if errors else ["ends:", *lines[-LAST_LINES:]]
    return f"{source.name} of {node} " + "\n".join(shown)
