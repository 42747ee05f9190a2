"""Change programs by patchelf, so that they use the libraries of another release than this system's."""

from __future__ import annotations

import shutil
from pathlib import Path

from rabbitmq_resilience.extensions.setup import debian
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, run

_ELF = b"\x7fELF"
#: The offset of ``e_type`` in the header of an ELF file, and its values for files that can be started or loaded.
_TYPE_AT, _LOADED_TYPES = 16, (2, 3)


def use_libraries(programs: Path, *, of: Path) -> None:
    """Let all programs and libraries in ``programs`` use the C library and all others that lie in ``of``.

    Afterwards they hold that folder's path, and cannot be moved. Raise ``Failed`` if that cannot be done.
    """
    loaders = sorted(of.glob("*-linux-*/ld-linux-*.so.*"))
    if not loaders:
        raise Failed(f"the package libc6 holds no loader at its known place ({of}/*-linux-*/ld-linux-*.so.*)")
    program = _program()
    for file in filter(_is_loaded, programs.rglob("*")):
        # RPATH, not RUNPATH: libraries that a library needs must be found in that folder, too.
        options = ["--force-rpath", "--set-rpath", str(loaders[0].parent)]
        if _has_interpreter(file, program):
            options += ["--set-interpreter", str(loaders[0])]
        run([program, *options, file], doing=f"changing {file.name}")


def _program() -> Path:
    on_path = shutil.which("patchelf")
    if on_path is not None:
        return Path(on_path)
    place = TOOLS / "patchelf"
    program = place / "usr" / "bin" / "patchelf"
    if not program.exists():
        debian.provide("patchelf", wanted="patchelf", place=place, prove=_starts)
    return program


def _starts(unpacked: Path) -> None:
    run([unpacked / "usr" / "bin" / "patchelf", "--version"], doing="starting the unpacked patchelf")


def _is_loaded(file: Path) -> bool:
    if file.is_symlink() or not file.is_file():
        return False
    with file.open("rb") as content:
        head = content.read(_TYPE_AT + 1)
    return head.startswith(_ELF) and head[_TYPE_AT] in _LOADED_TYPES


def _has_interpreter(file: Path, program: Path) -> bool:
    try:
        run([program, "--print-interpreter", file], doing=f"looking at {file.name}")
    except Failed:
        return False
    return True
