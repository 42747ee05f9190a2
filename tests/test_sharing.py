"""Several workers share the tests as they should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.core
def test_the_tests_of_a_file_have_one_worker(tmp_path: Path) -> None:
    """Else each worker forms each cluster once more: pytest 9.2 and xdist 3.8 do not group by marks together."""
    for name in ("test_one.py", "test_other.py"):
        tests = "@pytest.mark.parametrize('n', range(5))\ndef test_it(n):\n    pass\n"
        (tmp_path / name).write_text(f"import pytest\n{tests}")
    options = re.search(r"^at_once := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert options is not None
    shared = options[1].replace("-n auto", "-n 2").split()
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-c", "/dev/null", *shared]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True).stdout
    workers: dict[str, set[str]] = {}
    for worker, file in re.findall(r"\[(gw\d)\].* PASSED (\S+)::", told):
        workers.setdefault(file, set()).add(worker)
    assert {len(mine) for mine in workers.values()} == {1}, told
    assert len(workers) == 2
