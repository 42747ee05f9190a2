"""Explain an error before a verdict in a sentence, with its remedy, in place of a traceback of this package's code.

This module imports nothing heavy, like the plugin.
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
#: The remedies for errors of the operating system.
REMEDIES = {
    errno.ENOSPC: f"free some space, {_RUNS}",
    errno.EDQUOT: f"free some space, {_RUNS}",
    errno.EROFS: f"name another place for runs ({OPTION}runs-dir)",
    errno.EACCES: f"let this user write there, {_RUNS}",
    errno.EPERM: f"let this user write there, {_RUNS}",
    errno.ENOENT: f"make the folder that it is in, {_RUNS}",
    errno.ENOTDIR: f"name another place for runs ({OPTION}runs-dir)",
    errno.EADDRINUSE: "end the program that has the port, or wait until the system releases the port",
    errno.ENOMEM: "end other programs, or take a smaller topology",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this machine",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
}
TRACEBACKS = "tracebacks.txt"


def shown(error: pytest.ExceptionInfo[BaseException], test: str, folder: Path) -> str:
    """Return the text about an exception of this package, and add its traceback to the file for them in ``folder``.

    Return an empty text if the exception did not come from this package's code.
    """
    if isinstance(error.value, pytest.fail.Exception | pytest.skip.Exception | pytest.xfail.Exception):
        return ""
    if not any(Path(entry.path).is_relative_to(PACKAGE) for entry in error.traceback[1:]):
        return ""
    is_ours = not (isinstance(error.value, OSError) and error.value.errno in REMEDIES)
    kept = keep(error, test, folder) if is_ours else None
    lines = [sentence(error.value), *getattr(error.value, "__notes__", ())]
    return "\n".join([*lines, f"The traceback is in {kept}"] if kept else lines)


@contextmanager
def interrupted(title: str, show: Callable[[str], None]) -> Iterator[None]:
    """Show how far a run was when it is interrupted, and where its record is."""
    try:
        yield
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", ()):
            show(f"{'STOPPED':<8} {title}: {note}")
        raise


def sentence(error: BaseException) -> str:
    """Return what went wrong, and what to do about it if that is known."""
    text = str(error).strip()
    if isinstance(error, OSError) and error.errno is not None:
        place = f"{error.filename}: " if error.filename else ""
        what = f"{place}{error.strerror or text}"
        remedy = REMEDIES.get(error.errno)
        return f"{what}; {remedy}" if remedy else what
    if isinstance(error, MemoryError):
        return f"there is no memory left for this program; {REMEDIES[errno.ENOMEM]}"
    if isinstance(error, RuntimeError) and "start new thread" in text:
        return f"no thread could be started; {REMEDIES[errno.EAGAIN]}, or {REMEDIES[errno.ENOMEM]}"
    if type(error).__module__.partition(".")[0] == PACKAGE.name:
        return text or type(error).__name__
    return f"this suite failed, which is a defect of the suite: {type(error).__name__}: {text}"


def keep(error: pytest.ExceptionInfo[BaseException], test: str, folder: Path) -> Path | None:
    """Add a traceback to the file for tracebacks in ``folder``, or else in the folder for temporary files.

    Return that file, or None if neither can be written.
    """
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
