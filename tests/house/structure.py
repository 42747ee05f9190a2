"""List what offends the structure of the project: imports, lengths, names, packages, hosts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from setup.environment import requirements

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES_MAX = 350
BANNED_WORDS = ("manager", "helper", "utils")

PACKAGE = "rabbitmq_resilience"

#: The rooms of the package from the top: each may import those below it and itself. All but the first are the core.
ROOMS: list[set[str]] = [
    {"extensions"},
    {"plugin"},
    {"explore"},
    {"runner"},
    {"scenario"},
    {"nemesis"},
    {"workload"},
    {"checkers"},
    {"report"},
    {"tap"},
    {"history"},
    {"sut"},
    {"model"},
    {"tools"},
]

#: The same inside ``extensions``.
EXTENSIONS: list[set[str]] = [
    {"sweeps"},
    {"jobs"},
    {"nights", "incidents", "tables"},
    {"attached"},
    {"setup"},
]

#: The same inside ``sut``, by folder or module: ``running`` and its neighbours are what all drivers share.
SUT: list[set[str]] = [
    {"pool", "compose"},
    {"drivers"},
    {"processes", "containers"},
    {"running"},
    {"balancing", "linking", "finishing", "starting"},
    {"port_layout", "last_words", "prometheus_server", "observer"},
    {"network"},
    {"broker_host"},
    {"container_protocol"},
    {"protocol", "formed"},
    {"link_protocol", "node_protocol"},
    {"round_trip_probes"},
    {"preload"},
    {"broker"},
    {"machine"},
    {"orchestration"},
]

ORDERS: dict[str, list[set[str]]] = {
    PACKAGE: ROOMS,
    f"{PACKAGE}.extensions": EXTENSIONS,
    f"{PACKAGE}.sut": SUT,
}

#: What each folder may import. Set-up takes ``tools`` before anything is installed.
MAY_IMPORT: dict[str, set[str]] = {
    PACKAGE: {PACKAGE},
    "suites": {PACKAGE, "suites"},
    "faults": {PACKAGE},
    "benchmarks": {PACKAGE, "benchmarks"},
    "setup": {PACKAGE, "setup"},
    "examples": set(),
}
BESIDE = {*MAY_IMPORT, "tests", "conftest"}

#: What set-up imports when it is asked for, and runs in ``.venv``: it speaks to container engines.
IN_ENVIRONMENT = {
    f"{PACKAGE}.{name}" for name in ("extensions.setup.engine", "extensions.setup.images", "model.yaml_files")
}

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


#: An import statement. Parsing all modules would take seconds; this also takes lines of a string for imports.
IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)|import[ \t]+([^\n#;]+))", re.MULTILINE
)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of each import of a module, also of those inside functions and of relative ones.

    ``from a import b`` gives both ``a`` and ``a.b``, which may be a module.
    """
    text = path.read_text(encoding="utf-8")
    for found in IMPORT.finditer(text):
        line = text.count("\n", 0, found.end(1) if found[1] else found.end()) + 1
        base, names = found[1] or "", re.sub(r"#.*", "", found[2] or found[3]).strip("()").split(",")
        if base.startswith("."):
            rest = base.lstrip(".")
            package = path.relative_to(ROOT).parts[:-1]
            base = ".".join([*package[: len(package) + 1 - (len(base) - len(rest))], *filter(None, [rest])])
        if base:
            yield line, base
        for name in filter(None, (name.split(" as ")[0].strip() for name in names)):
            yield line, f"{base}.{name}".removeprefix(".")


def imported_when_run(path: Path) -> set[str]:
    """Return what a module imports when it runs: without what is for type checkers alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    lines = {inner.lineno for node in typing_only for inner in ast.walk(node) if isinstance(inner, ast.stmt)}
    return {name for line, name in imported(path) if line not in lines}


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


def imports_upwards(modules: Iterable[Path] = MODULES) -> Iterator[str]:
    """Yield each import that goes up in the order of rooms, or to a folder that its own may not use."""
    for path in modules:
        if is_wiring(path):
            continue
        barred = BESIDE - MAY_IMPORT[room_of(path)]
        found = [f"line {line}: {name}" for line, name in imported(path) if name.split(".")[0] in barred]
        for inside, order in ORDERS.items():
            found += upward(path, inside=inside, order=order)
        yield from (f"{module_id(path)}, {offender}" for offender in found)


def unknown_rooms() -> Iterator[str]:
    """Yield each module that stands in no room of the orders."""
    for path in MODULES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        inside = [(order, rooms) for order, rooms in ORDERS.items() if name.startswith(f"{order}.")]
        known = room_of(path) in BESIDE and all(
            name.count(".") == order.count(".") + 1 == 1 or place(name, inside=order, order=rooms) is not None
            for order, rooms in inside
        )
        if not known:
            yield module_id(path)


def core_imports_of_extensions() -> Iterator[str]:
    """Yield each import of an extension by a module that belongs to none."""
    extensions = f"{PACKAGE}.extensions"
    for path in MODULES:
        if room_of(path) == PACKAGE and not module_id(path).startswith(f"{PACKAGE}/extensions/"):
            found = (f"line {line}: {name}" for line, name in imported(path) if f"{name}.".startswith(f"{extensions}."))
            yield from (f"{module_id(path)}, {offender}" for offender in found)


def shapeless_modules() -> Iterator[str]:
    """Yield each module that is too long, does not begin with a docstring, or has a name that hides what it does."""
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) >= MODULE_LINES_MAX:
            yield f"{module_id(path)}: {MODULE_LINES_MAX} lines or more"
        if not is_wiring(path) and not text.startswith('"""'):
            yield f"{module_id(path)}: no docstring"
        names = [path.stem, *re.findall(r"^ *class (\w+)", text, re.MULTILINE)]
        hiding = [name for name in names if any(word in name.lower() for word in BANNED_WORDS)]
        yield from (f"{module_id(path)}: the name {name}" for name in hiding)


def named_registries() -> Iterator[str]:
    """Yield each committed file that names the host of a package registry."""
    hosts = re.compile("|".join(map(re.escape, REGISTRY_HOSTS)).encode())
    yield from (module_id(path) for path in committed() if hosts.search(path.read_bytes()))


def files_of(name: str) -> Iterator[Path]:
    """Yield the project's own files that run where the module ``name`` is imported."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        stem = ROOT.joinpath(*parts[:length])
        yield from filter(Path.is_file, (stem.with_suffix(".py"), stem / "__init__.py"))


def reached_by_set_up() -> set[Path]:
    """Return the files that set-up imports before there is any package."""
    todo = [path for path in MODULES if room_of(path) == "setup"]
    reached: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in reached:
            continue
        reached.add(path)
        names = [name for name in imported_when_run(path) if name not in IN_ENVIRONMENT]
        todo += [file for name in names for file in files_of(name)]
    return reached


def packages_of_set_up() -> Iterator[str]:
    """Yield what set-up imports and a bare Python does not have."""
    for path in sorted(reached_by_set_up()):
        roots = {name.split(".")[0] for name in imported_when_run(path)}
        missing = roots - set(sys.stdlib_module_names) - {"setup", PACKAGE}
        yield from (f"{module_id(path)}: {name}" for name in sorted(missing))


def unnamed_packages() -> Iterator[str]:
    """Yield each package that is imported and not in pyproject.toml: it could go with the next version of another."""
    called = {"yaml": "pyyaml", "websocket": "websocket-client"}
    named = {canonicalize_name(Requirement(text).name) for text in requirements(ROOT / "pyproject.toml")}
    own = [path for path in MODULES if room_of(path) != "examples"]  # those name theirs in their folders
    roots = {name.split(".")[0] for path in own for _, name in imported(path)}
    examples = {"nice_driver"}  # of docs/add-a-driver.md, in a test's string
    foreign = roots - BESIDE - examples - set(sys.stdlib_module_names)
    yield from sorted({canonicalize_name(called.get(name, name)) for name in foreign} - named)


def doubled_names() -> Iterator[str]:
    """Yield each name of a class or module that stands more than once in the package."""
    modules = [path for path in MODULES if room_of(path) == PACKAGE]
    stems = Counter(path.stem for path in modules if path.stem != "__init__")
    defined = re.compile(r"^ *class (\w+)", re.MULTILINE)
    classes = Counter(name for path in modules for name in defined.findall(path.read_text(encoding="utf-8")))
    for kind, names in (("module", stems), ("class", classes)):
        yield from (f"{kind} {name}: {count} times" for name, count in sorted(names.items()) if count > 1)
