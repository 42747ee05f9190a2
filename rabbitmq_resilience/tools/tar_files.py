"""Unpack tar archives with the safeguards that this Python has."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path


def extract(archive: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Unpack ``members`` of the archive, by default all, into ``folder``.

    From Python 3.11.4 on, tarfile refuses members that would be written outside ``folder``. With older versions the
    caller must choose safe members.
    """
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder, members=members)  # noqa: S202 - see above
