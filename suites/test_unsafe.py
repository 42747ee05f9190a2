"""Would it notice? Set-ups that truly break a promise, each of which must end INVALID by the invariant that it names.

One fault file each, in ``faults/unsafe``. Most lose messages only where a fault meets them at work, so each is played
up to three times until it was seen; three runs that saw nothing fail.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faults import fault_file
from suites.judging import Result

pytestmark = pytest.mark.unsafe

FILES = sorted((Path(fault_file.__file__).parent / "unsafe").glob("*.yaml"))
TRIES = 3


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_noticed(file: Path, play: Callable[..., Result]) -> None:
    play(fault_file.load(file), tries=TRIES)
