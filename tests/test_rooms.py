"""The shape of the project: who may import whom, how long a module is, which words are not used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from setup.environment import requirements

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 350
BANNED_WORDS = ("manager", "helper", "utils")

#: Which rooms a room's modules may import. Nobody may import ``suites`` or ``conftest`` but what wires tests.
MAY_IMPORT: dict[str, set[str]] = {
    "topologies": set(),
    "reports": set(),
    "workloads": {"topologies", "reports"},
    "invariants": {"topologies", "reports"},
    "faults": {"workloads", "invariants", "topologies", "reports"},
    "suites": {"faults", "workloads", "invariants", "topologies", "reports"},
    "benchmarks": {"faults", "workloads", "invariants", "topologies", "reports"},
    "setup": {"topologies"},
}
ROOMS = {*MAY_IMPORT, "tests", "conftest"}

#: Hosts of package registries, in pieces so that this file does not name them.
REGISTRY_HOSTS = [
    "".join(pieces)
    for pieces in (
        ("py", "pi.org"),
        ("files.python", "hosted.org"),
        ("registry.npm", "js.org"),
        ("proxy.go", "lang.org"),
        ("repo1.mav", "en.org"),
        ("repo.mav", "en.apache.org"),
        ("crates", ".io"),
        ("ruby", "gems.org"),
        ("deb.deb", "ian.org"),
        ("archive.ubu", "ntu.com"),
    )
]


def committed() -> list[Path]:
    """The files that git knows, or, in a copy without git, those which lie in the rooms."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()]


MODULES = sorted(path for path in committed() if path.suffix == ".py")


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every import, also of those inside functions and of relative ones."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            yield node.lineno, ".".join([*base, *([node.module] if node.module else [])])


def is_wiring(path: Path) -> bool:
    return room_of(path) in ("tests", "conftest") or path.name == "conftest.py"


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_room_imports_only_from_the_rooms_below_it(path: Path) -> None:
    if is_wiring(path):
        return
    room = room_of(path)
    barred = ROOMS - MAY_IMPORT[room] - {room}
    assert [f"line {line}: {name}" for line, name in imported(path) if name.split(".")[0] in barred] == []


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_modules_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < MODULE_LINES_MAX
    if not is_wiring(path):
        assert ast.get_docstring(ast.parse(text)), "a module starts by saying what it is for"


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_no_name_hides_what_it_does(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [path.stem, *(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    assert [name for name in names if any(word in name.lower() for word in BANNED_WORDS)] == []


def test_every_room_is_known() -> None:
    assert {room_of(path) for path in MODULES} <= ROOMS


def test_no_committed_file_names_a_registry() -> None:
    hosts = re.compile("|".join(map(re.escape, REGISTRY_HOSTS)).encode())
    assert [module_id(path) for path in committed() if hosts.search(path.read_bytes())] == []


def test_what_set_up_imports_needs_no_package() -> None:
    """Set-up runs before there is any package."""
    modules = [path for path in MODULES if room_of(path) == "setup"]
    modules += [ROOT / "topologies" / f"{name}.py" for name in ("__init__", "distributions", "images", "waiting")]
    roots = {name.split(".")[0] for path in modules for _, name in imported(path)}
    assert roots - set(sys.stdlib_module_names) <= {"setup", "topologies"}


def test_every_package_that_is_imported_is_named_in_pyproject() -> None:
    """What comes only with another package could go with its next version."""
    called = {"yaml": "pyyaml"}
    named = {canonicalize_name(Requirement(text).name) for text in requirements(ROOT / "pyproject.toml")}
    roots = {name.split(".")[0] for path in MODULES for _, name in imported(path)}
    foreign = roots - ROOMS - set(sys.stdlib_module_names)
    assert {canonicalize_name(called.get(name, name)) for name in foreign} - named == set()


def test_the_check_sees_imports_in_functions_and_relative_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "topologies" / "deep.py"
    module.parent.mkdir()
    module.write_text("def late():\n    import suites.scenario\nfrom . import spec\nfrom ..reports import events\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert {name for _, name in imported(module)} == {"suites.scenario", "topologies", "reports"}
