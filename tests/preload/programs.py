"""Build what is tested, and the programs that test it, with the machine's own compiler ``cc``."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from rabbitmq_resilience.sut.preload import library
from tests.preload.sequences import Built

HERE = Path(__file__).parent
SOURCES = {
    "operations": ("operations.c",),
    "bursts": ("bursts.c",),
    "marks": ("marks.c", *(str(library.SOURCES / name) for name in ("state.c", "names.c", "file_log.c"))),
    "dying.so": ("dying.c",),
}


def built_for_tests(into: Path) -> Built:
    """Build all. Raise ``ToolMissingError`` without a compiler."""
    build = library.build(library.NATIVE, into)
    digest = hashlib.sha256()
    for source in sorted(HERE.glob("*.c")):
        digest.update(source.read_bytes())
    folder = build.library.parent / digest.hexdigest()[:16]
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=into) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            for name, sources in SOURCES.items():
                kind = ("-shared", "-fPIC") if name.endswith(".so") else ("-pthread",)
                paths = tuple(str(HERE / source) for source in sources)
                flags = (*kind, f"-I{library.SOURCES}", "-ldl")
                library.compile_sources(library.NATIVE, paths, made / name, flags)
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return Built(build.library, build.program, folder)
