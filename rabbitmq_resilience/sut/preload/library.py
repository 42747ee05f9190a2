"""Build the preloaded library ``libdiskfaults.so`` and its control program ``disk-faults`` from the C sources here.

``library.h`` and ``program.c`` describe both. Set-up builds them with a compiler that it fetches
(``extensions.setup.disk_faults_build``); users need none.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.locations import CHECKOUT, TOOLS
from rabbitmq_resilience.tools.progress import run

SOURCES = Path(__file__).parent
#: Where set-up puts the builds, one folder for each target and version of the sources.
BUILDS = TOOLS / "disk-faults"
#: Where set-up unpacks the compiler as long as it builds.
COMPILER = TOOLS / "zig"
SET_UP = "rabbitmq-resilience setup disk-faults" if CHECKOUT is None else "setup/start disk-faults"

#: The C library of the oldest distributions that are of interest. A program linked with a newer one can preload it.
GLIBC = "gnu.2.17"
MUSL = "musl"
MACHINES = ("x86_64", "aarch64")
#: The target of the machine's own compiler ``cc``. Such a build may need a newer C library than an image has.
NATIVE = "native"

_SHARED = ("state.c", "names.c", "file_log.c")
_LIBRARY = (
    *("library.c", "places.c", "faults.c", "changes.c", "flushes.c", "name_changes.c"),
    *("calls.c", "others.c", "by_number.c"),
)
_PROGRAM = ("tree.c", "durable.c", "undo.c", "plan.c", "cut.c", "show.c", "program.c")
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-format-truncation", "-fno-sanitize=undefined")
_OF_LIBRARY = ("-fPIC", "-fvisibility=hidden", "-shared", "-s")


@dataclass(frozen=True)
class DiskFaultsBuild:
    """A build of both: ``library`` for LD_PRELOAD, and ``program``, which runs on this machine."""

    library: Path
    program: Path

    def environment(self, *roots: Path, state: Path) -> Mapping[str, str]:
        """Return the variables with which a process's files below ``roots`` are followed.

        ``program prepare`` must have made ``state`` on the same file system, outside of the roots."""
        named = ":".join(str(root.absolute()) for root in roots)
        return {
            "LD_PRELOAD": str(self.library),
            "DISK_FAULTS_ROOTS": named,
            "DISK_FAULTS_STATE": str(state.absolute()),
        }


def target_of(libc: str = GLIBC, *, machine: str | None = None) -> str:
    """Return the target for a machine (default: this one) and a C library: ``x86_64-linux-musl``.

    Raise ``ToolMissingError`` for a machine that the library does not know."""
    name = (machine or platform.machine()).lower()
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)
    if name not in MACHINES or (machine is None and platform.system() != "Linux"):
        raise ToolMissingError(f"disks can fail on Linux on {' and '.join(MACHINES)} only, and this is {name}")
    return f"{name}-linux-{libc}"


def folder_of(target: str, into: Path = BUILDS) -> Path:
    """Return the folder for builds of the present sources for ``target``."""
    digest = hashlib.sha256("\0".join((target, *_FLAGS, *_OF_LIBRARY)).encode())
    for source in sorted([*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return into / f"{target}-{digest.hexdigest()[:16]}"


def find_build(target: str | None = None, *, into: Path = BUILDS) -> DiskFaultsBuild:
    """Return the build for ``target``, or without one, the build that processes of this machine can use.

    Raise ``ToolMissingError`` if there is none."""
    targets = [target_of(), NATIVE] if target is None else [target]
    folder = next(filter(Path.is_dir, (folder_of(one, into) for one in targets)), None)
    if folder is None:
        raise ToolMissingError(f"the library for failing disks is not built for {targets[0]}. Run `{SET_UP}`.")
    return DiskFaultsBuild(folder / "libdiskfaults.so", folder / "disk-faults")


def build(target: str, into: Path = BUILDS) -> DiskFaultsBuild:
    """Return the build for ``target``; compile it if there is none yet.

    Several processes may do this at once. Raise ``ToolMissingError`` without a compiler, and ``Failed`` if it fails."""
    folder = folder_of(target, into)
    if not folder.is_dir():
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=into) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            compile_sources(target, (*_SHARED, *_LIBRARY), made / "libdiskfaults.so", (*_OF_LIBRARY, "-ldl"))
            compile_sources(target, (*_SHARED, *_PROGRAM), made / "disk-faults", ("-s",))
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was quicker
                    raise
    return find_build(target, into=into)


def compile_sources(target: str, sources: tuple[str, ...], output: Path, flags: tuple[str, ...] = ()) -> None:
    """Compile ``sources``, which are paths or names of files next to this module."""
    libraries = [flag for flag in flags if flag.startswith("-l")]
    rest = [flag for flag in flags if flag not in libraries]
    paths = [SOURCES / source for source in sources]
    run(
        [*_compiler(target), *_FLAGS, *rest, "-o", output, *paths, *libraries],
        doing=f"compiling {output.name} for {target}",
        env={
            **os.environ,
            "ZIG_GLOBAL_CACHE_DIR": str(COMPILER / "cache"),
            "ZIG_LOCAL_CACHE_DIR": str(COMPILER / "cache"),
        },
    )


def _compiler(target: str) -> list[str]:
    if target == NATIVE:
        own = shutil.which("cc")
        if own is None:
            raise ToolMissingError("this machine has no C compiler (cc) on PATH")
        return [own]
    zig = COMPILER / "ziglang" / "zig"
    if not zig.exists():
        raise ToolMissingError(f"there is no compiler in {COMPILER}. `{SET_UP}` fetches it, builds, and removes it.")
    return [str(zig), "cc", "-target", target]
