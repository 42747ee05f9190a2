"""Say what went wrong before a verdict in a sentence, with its remedy, in place of a traceback of this program's code.

Light, as the plugin is.
"""

from __future__ import annotations

import errno
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rabbitmq_resilience.tools.locations import OPTION, PACKAGE

_RUNS = f"or name another place for runs ({OPTION}runs-dir)"
#: What is to be done about errors of the operating system.
REMEDIES = {
    errno.ENOSPC: f"free some space, {_RUNS}",
    errno.EDQUOT: f"free some space, {_RUNS}",
    errno.EROFS: f"name another place for runs ({OPTION}runs-dir)",
    errno.EACCES: f"let this user write there, {_RUNS}",
    errno.EPERM: f"let this user write there, {_RUNS}",
    errno.ENOENT: f"make the folder that it is in where that can be made, {_RUNS}",
    errno.ENOTDIR: f"name another place for runs ({OPTION}runs-dir)",
    errno.EADDRINUSE: "end the program that has the port, or wait until the system lets go of it",
    errno.ENOMEM: "end other programs, or take a smaller topology",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this machine",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
}
TRACEBACKS = "tracebacks.txt"


def shown(error: pytest.ExceptionInfo[BaseException], test: str, folder: Path) -> str:
    """Return what is shown of an exception of this package, and add its traceback to the file for them in ``folder``;
    empty for one of a test that only uses it."""
    if isinstance(error.value, pytest.fail.Exception | pytest.skip.Exception | pytest.xfail.Exception):
        return ""
    if not any(Path(entry.path).is_relative_to(PACKAGE) for entry in error.traceback[1:]):
        return ""
    is_ours = not (isinstance(error.value, OSError) and error.value.errno in REMEDIES)
    kept = keep(error, test, folder) if is_ours else None
    lines = [sentence(error.value), *getattr(error.value, "__notes__", ())]
    return "\n".join([*lines, f"Where this came up in the code: {kept}"] if kept else lines)


@contextmanager
def interrupted(title: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Tell of a run that is interrupted where it was, and where its record is."""
    try:
        yield
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", ()):
            tell(f"{'STOPPED':<8} {title}: {note}")
        raise


def sentence(error: BaseException) -> str:
    """Return what went wrong, and what to do about it where that is known."""
    told = str(error).strip()
    if isinstance(error, OSError) and error.errno is not None:
        place = f"{error.filename}: " if error.filename else ""
        what = f"{place}{error.strerror or told}"
        remedy = REMEDIES.get(error.errno)
        return f"{what}; {remedy}" if remedy else what
    if type(error).__module__.partition(".")[0] == PACKAGE.name:
        return told or type(error).__name__
    return f"this suite failed by itself, which is a defect of it: {type(error).__name__}: {told}"


def keep(error: pytest.ExceptionInfo[BaseException], test: str, folder: Path) -> Path | None:
    """Add a traceback to the file for them in ``folder``, or else in the folder for temporary files; return that."""
    text = "".join(traceback.format_exception(error.value))
    for place in (folder, Path(tempfile.gettempdir())):
        file = place / TRACEBACKS
        try:
            with file.open("a", encoding="utf-8") as kept:
                kept.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {test}\n{text}\n")
        except OSError:
            continue
        return file
    return None
