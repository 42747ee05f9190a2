"""patchelf: lets programs use libraries of another release than this system's."""

from __future__ import annotations

import shutil
from pathlib import Path

from rabbitmq_resilience.tools import debian
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, run

_ELF = b"\x7fELF"
#: ``e_type`` in the header of an ELF file, of which these can be started or loaded.
_TYPE_AT, _LOADED_TYPES = 16, (2, 3)


def use_libraries(programs: Path, *, of: Path) -> None:
    """Let all programs and libraries in ``programs`` use the C library and all others that lie in ``of``.

    They hold that folder's path then, and cannot be moved. Raises ``Failed``.
    """
    loaders = sorted(of.glob("*-linux-*/ld-linux-*.so.*"))
    if not loaders:
        raise Failed(f"the package libc6 holds no loader where it is known to be ({of}/*-linux-*/ld-linux-*.so.*)")
    program = _program()
    for file in filter(_is_loaded, programs.rglob("*")):
        # RPATH and not RUNPATH: what is loaded by what a library needs has to be found in that folder, too.
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
