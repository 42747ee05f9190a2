"""Compile this project's own Erlang modules, which brokers load, once for each compiler."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rabbitmq_resilience.tools.distributions import BrokerHome, ToolMissingError
from rabbitmq_resilience.tools.locations import TOOLS


def erlang_sources() -> list[Path]:
    """Return the source files of this project's own Erlang modules."""
    return sorted((Path(__file__).parent / "erlang").glob("*.erl"))


def compiled_once(compiler: str, compile_into: Callable[[Path], None], cache: Path = TOOLS / "ebin") -> Path:
    """Return the folder of the compiled modules. They are compiled only once for each ``compiler`` and state of the
    sources, because the formation of a cluster waits for it. ``compile_into`` fills a folder with them, or raises."""
    identity = b"".join(source.read_bytes() for source in erlang_sources()) + os.fsencode(compiler)
    folder = cache / hashlib.sha256(identity).hexdigest()[:16]
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=cache))
    try:
        compile_into(draft)
        with suppress(OSError):  # another run has compiled them first
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def compiled_erlang(broker: BrokerHome, cache: Path = TOOLS / "ebin") -> Path:
    """Return the folder of the modules, compiled by the broker's own compiler. Raise ToolMissingError if that fails."""
    erlc = str(broker.erlang_bin / "erlc")

    def compile_into(draft: Path) -> None:
        command = [erlc, "-o", str(draft), *map(str, erlang_sources())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise ToolMissingError(f"{erlc} failed:\n{done.stdout}{done.stderr}")

    return compiled_once(erlc, compile_into, cache)
