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

PACKAGE = "rabbitmq_resilience"

#: The rooms of the package from the top: each may import those below it and itself. Rooms of one line are strangers.
ROOMS: list[set[str]] = [
    {"sweeps"},
    {"jobs"},
    {"nights"},
    {"random_schedules"},
    {"play"},
    {"evidence"},
    {"scenarios"},
    {"faults"},
    {"workloads"},
    {"invariants"},
    {"tables"},
    {"pages"},
    {"record"},
    {"clusters"},
    {"tools"},
]

#: The same inside ``clusters``, by folder or module: ``running`` and its neighbours are what all drivers share.
CLUSTERS: list[set[str]] = [
    {"pool", "compose"},
    {"drivers"},
    {"attached"},
    {"processes", "containers"},
    {"running"},
    {"balancing", "linking"},
    {"layout", "prometheus", "observer"},
    {"network"},
    {"host"},
    {"container_protocol"},
    {"protocol", "formed"},
    {"round_trips"},
    {"broker"},
    {"machine"},
    {"catalogue"},
    {"packets", "stressors", "equipment", "alert_rules", "changes", "orchestration"},
    {"spec", "errors", "access"},
]

#: What stands beside the package. Set-up takes ``tools`` before anything is installed.
MAY_IMPORT: dict[str, set[str]] = {
    PACKAGE: {PACKAGE},
    "suites": {PACKAGE, "suites"},
    "faults": {PACKAGE},
    "benchmarks": {PACKAGE, "benchmarks"},
    "setup": {PACKAGE, "setup"},
}
BESIDE = {*MAY_IMPORT, "tests", "conftest"}

#: What set-up imports when it is asked for, and runs in ``.venv``: it speaks to container engines.
IN_ENVIRONMENT = {f"{PACKAGE}.tools.{name}" for name in ("engine", "images", "yaml_files")}

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
    return [path for room in BESIDE for path in (ROOT / room).rglob("*") if path.is_file()]


MODULES = sorted(path for path in committed() if path.suffix == ".py")


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path, *, when_run: bool = False) -> Iterator[tuple[int, str]]:
    """Line and full name of every import, also of those inside functions and of relative ones; of ``from a import b``
    both ``a`` and ``a.b``, which may be a module. ``when_run``: without those that are for type checkers alone."""
    package = path.relative_to(ROOT).parts[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    left_out = {inner for node in typing_only for inner in ast.walk(node)} if when_run else set()
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{name.name}") for name in node.names)


def place(name: str, *, inside: str, order: list[set[str]]) -> tuple[int, str] | None:
    """Where a module stands in ``order``, counted from the top, and the part of its name that says so; None if it is
    not below ``inside``, or is ``inside`` itself."""
    parts = name.removeprefix(f"{inside}.").split(".")
    if not name.startswith(f"{inside}."):
        return None
    found = [(rank, parts[0]) for rank, names in enumerate(order) if parts[0] in names]
    return found[0] if found else None


def upward(path: Path, *, inside: str, order: list[set[str]]) -> list[str]:
    """The imports of a module that go up in ``order``, or aside."""
    me = place(".".join(path.relative_to(ROOT).with_suffix("").parts), inside=inside, order=order)
    if me is None:
        return []
    found = []
    for line, name in imported(path):
        other = place(name, inside=inside, order=order)
        if other is not None and other[1] != me[1] and other[0] <= me[0]:
            found.append(f"line {line}: {name}")
    return found


def is_wiring(path: Path) -> bool:
    return room_of(path) in ("tests", "conftest") or path.name == "conftest.py"


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_imports_go_downwards(path: Path) -> None:
    if is_wiring(path):
        return
    barred = BESIDE - MAY_IMPORT[room_of(path)]
    assert [f"line {line}: {name}" for line, name in imported(path) if name.split(".")[0] in barred] == []
    assert upward(path, inside=PACKAGE, order=ROOMS) == []
    assert upward(path, inside=f"{PACKAGE}.clusters", order=CLUSTERS) == []


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
    assert {room_of(path) for path in MODULES} <= BESIDE
    names = [path.relative_to(ROOT / PACKAGE).with_suffix("").parts for path in MODULES if room_of(path) == PACKAGE]
    assert {parts[0] for parts in names if len(parts) > 1} <= set().union(*ROOMS)
    assert {parts[1] for parts in names if parts[0] == "clusters"} - {"__init__"} <= set().union(*CLUSTERS)


def test_no_committed_file_names_a_registry() -> None:
    hosts = re.compile("|".join(map(re.escape, REGISTRY_HOSTS)).encode())
    assert [module_id(path) for path in committed() if hosts.search(path.read_bytes())] == []


def files_of(name: str) -> Iterator[Path]:
    """What is run where the module of that name is imported, as far as it is the project's own."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        stem = ROOT.joinpath(*parts[:length])
        yield from filter(Path.is_file, (stem.with_suffix(".py"), stem / "__init__.py"))


def test_what_set_up_imports_needs_no_package() -> None:
    """Set-up runs before there is any package; what speaks to engines it imports only when there are some."""
    todo = [path for path in MODULES if room_of(path) == "setup"]
    reached: set[Path] = set()
    while todo:
        path = todo.pop()
        if path not in reached:
            reached.add(path)
            todo += [
                file
                for _, name in imported(path, when_run=True)
                if name not in IN_ENVIRONMENT
                for file in files_of(name)
            ]
    tools = ROOT / PACKAGE / "tools"
    assert {tools / f"{name}.py" for name in ("broker", "toxiproxy", "prometheus", "haproxy")} <= reached
    assert {path.parent for path in reached} == {ROOT / "setup", ROOT / "setup" / "kubernetes", ROOT / PACKAGE, tools}
    roots = {name.split(".")[0] for path in reached for _, name in imported(path, when_run=True)}
    assert roots - set(sys.stdlib_module_names) == {"setup", PACKAGE}
    without_packages = [sys.executable, "-S", "-E", "-c", "import setup.__main__"]
    subprocess.run(without_packages, cwd=ROOT, check=True)


def test_every_package_that_is_imported_is_named_in_pyproject() -> None:
    """What comes only with another package could go with its next version."""
    called = {"yaml": "pyyaml", "websocket": "websocket-client"}
    named = {canonicalize_name(Requirement(text).name) for text in requirements(ROOT / "pyproject.toml")}
    roots = {name.split(".")[0] for path in MODULES for _, name in imported(path)}
    foreign = roots - BESIDE - set(sys.stdlib_module_names)
    assert {canonicalize_name(called.get(name, name)) for name in foreign} - named == set()


def test_the_check_sees_imports_in_functions_and_relative_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / PACKAGE / "record" / "deep.py"
    module.parent.mkdir(parents=True)
    text = f"def late():\n    import {PACKAGE}.play.run\nfrom . import events\nfrom ..pages import page\n"
    module.write_text(text + f"from {PACKAGE} import clusters, tables\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    above = upward(module, inside=PACKAGE, order=ROOMS)
    told = [(2, "play.run"), (4, "pages"), (4, "pages.page"), (5, "tables")]
    assert sorted(above) == [f"line {line}: {PACKAGE}.{name}" for line, name in told]
