"""What a broker that did not come up said of it."""

from __future__ import annotations

import re
from pathlib import Path

ERRORS_MAX, LAST_LINES = 8, 15
#: An error in a log or in a process's output that says what is wrong, and is no report of what ended for it.
_ERROR = re.compile(
    r"^\S+ \S+ \[(?:error|critical)\] <[\d.]+> +"
    r"((?!supervisor|crasher|initial call|pid:|\*\*|errorContext|offender|BOOT FAILED|=)\S.*)$"
)


def last_words(node: str, source: Path) -> str:
    """Return the first errors in the log, or in the output, of a node; without any, how it ends."""
    lines = source.read_text(errors="replace").splitlines() if source.exists() else []
    errors = [found[1] for line in lines if (found := _ERROR.match(line))][:ERRORS_MAX]
    told = ["has these errors first:", *errors] if errors else ["ends:", *lines[-LAST_LINES:]]
    return f"{source.name} of {node} " + "\n".join(told)
