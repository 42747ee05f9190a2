"""Show what ext4 itself keeps of renamed files: whether their blocks are allocated once their folder was flushed.

python -m tests.preload.on_ext4 FOLDER

It is no test, as any other program may have the whole file system written back meanwhile. Data without blocks
(delayed allocation) is not on the disk. Source of the request: the kernel's documentation, "Fiemap Ioctl".
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import tempfile
from pathlib import Path

_FS_IOC_FIEMAP = 0xC020660B
_HEAD, _EXTENT = "=QQIIII", "=QQQQQIIII"
_EXTENTS_MAX = 8
_DELAYED = 0x4
BLOCK = b"x" * 8192


def is_allocated(file: Path) -> list[bool]:
    """Return for each extent of the file whether it has blocks on the disk."""
    asked = struct.pack(_HEAD, 0, 2**63, 0, 0, _EXTENTS_MAX, 0)
    answer = bytearray(asked + bytes(_EXTENTS_MAX * struct.calcsize(_EXTENT)))
    with file.open("rb") as opened:
        fcntl.ioctl(opened, _FS_IOC_FIEMAP, answer)
    found = struct.unpack_from(_HEAD, answer)[3]
    extents = struct.iter_unpack(_EXTENT, answer[len(asked) :])
    return [not flags & _DELAYED for _, (*_, flags, _, _, _) in zip(range(found), extents, strict=False)]


def flush_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


def main(above: str) -> None:
    with tempfile.TemporaryDirectory(dir=above) as name:
        folder = Path(name)
        (folder / "one").write_bytes(BLOCK)
        (folder / "one").rename(folder / "new")
        flush_folder(folder)
        print("renamed to a new name:", is_allocated(folder / "new"))
        (folder / "old").write_bytes(BLOCK)
        os.sync()
        (folder / "two").write_bytes(BLOCK)
        (folder / "two").rename(folder / "old")
        flush_folder(folder)
        print("renamed in place of a file:", is_allocated(folder / "old"))
        with (folder / "old").open("ab") as file:
            file.write(BLOCK)
        flush_folder(folder)
        print("and written to afterwards:", is_allocated(folder / "old"))


if __name__ == "__main__":
    main(sys.argv[1])
