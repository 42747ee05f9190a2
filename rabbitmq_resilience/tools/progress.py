"""Run the programs that set-up needs, and show their progress if they take over two seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

TICK_S = 2.0
END_S = 5.0
OUTPUT_LINES_MAX = 12
LINE_BYTES_MAX = 100


class Failed(Exception):
    """A program ended with an error, or something else failed; the text says what, with the last lines of output."""


class ProgressLine:
    """One line of progress: rewritten in place on a terminal, otherwise repeated at doubling intervals."""

    def __init__(self, doing: str, *, out: IO[str] | None = None) -> None:
        self._doing = doing
        self._out = out or sys.stdout
        self._start_s = time.monotonic()
        self._next_s = TICK_S
        self._shown = False

    def show(self, done: str = "") -> None:
        """Write the elapsed time and the text ``done``, if enough time has passed since the last output."""
        elapsed_s = time.monotonic() - self._start_s
        if elapsed_s < self._next_s:
            return
        text = f"      {self._doing}: {done + ', ' if done else ''}{elapsed_s:.0f} s"
        if self._out.isatty():
            self._next_s = elapsed_s + TICK_S / 4
            self._out.write(f"\r{text}\033[K")
        else:
            self._next_s = elapsed_s * 2
            self._out.write(f"{text}\n")
        self._out.flush()
        self._shown = True

    def end(self) -> None:
        if self._shown and self._out.isatty():
            self._out.write("\r\033[K")
            self._out.flush()


def run(
    command: Sequence[str | Path],
    *,
    doing: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    done: Callable[[], str] | None = None,
) -> str:
    """Run ``command`` to its end and return its output.

    While it runs, ``doing`` is shown, with ``done()`` or else the last line of its output. Raise ``Failed`` if it
    cannot be started or ends with another status than 0. It has no input, so it cannot wait for an answer.
    """
    line = ProgressLine(doing)
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise Failed(f"{command[0]} does not start: {error}") from error
        with process:
            try:
                while not _ended(process):
                    line.show(done() if done else _last_line(output))
            except BaseException:
                _end(process)
                raise
            finally:
                line.end()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode != 0:
        tail = "\n".join(text.strip().splitlines()[-OUTPUT_LINES_MAX:])
        raise Failed(f"{doing}: `{Path(command[0]).name}` ended with status {process.returncode}\n{tail}")
    return text


def _last_line(output: IO[bytes]) -> str:
    """Return the last line in the file ``output``. The file position stays: the writing process shares it."""
    size_bytes = os.fstat(output.fileno()).st_size
    end = os.pread(output.fileno(), LINE_BYTES_MAX, max(0, size_bytes - LINE_BYTES_MAX))
    lines = end.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=TICK_S / 4)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End ``process``: ask it first, as it may have to clean up mounts or files, and kill it if it takes too long."""
    process.terminate()
    try:
        process.wait(timeout=END_S)
    except subprocess.TimeoutExpired:
        process.kill()


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
