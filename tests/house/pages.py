"""List what is wrong on the pages that people read: broken links, wrong commands, missing files and descriptions."""

from __future__ import annotations

import functools
import re
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

from rabbitmq_resilience import Fault, Invariant, command
from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS
from rabbitmq_resilience.nemesis.conditions import When
from rabbitmq_resilience.nemesis.fault_catalogue import FAULTS
from rabbitmq_resilience.plugin import options, options_page
from rabbitmq_resilience.scenario import documentation, schema
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.model import Phases, Scenario
from rabbitmq_resilience.workload.queue_settings import Mirroring, QueueLimits
from rabbitmq_resilience.workload.workload_model import Workload
from tests.house import structure

ROOT = Path(__file__).resolve().parents[2]
README_LINES_MAX = 150
PAGES = sorted(path for path in structure.committed() if path.suffix == ".md")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def without_blocks(page: Path) -> str:
    return re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What headings are called in links: lower case, without punctuation, with a hyphen for each space."""
    titles = re.findall(r"^#+ (.*)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or not path.is_relative_to(ROOT):
            yield f"{link}: there is no such file"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            yield f"{link}: {path.name} has no such heading"


BOUNDS = [field for checker in (*INVARIANTS.values(), *FAULTS.values()) for field in checker.model_fields]
SPECS = (Scenario, Workload, Mirroring, QueueLimits, Phases, Expectation)
FIELDS = {*BOUNDS, *(field for spec in SPECS for field in spec.model_fields)} - {"fault"}


def undescribed_names() -> Iterator[str]:
    """Yield each fault, condition, invariant and field of a fault file that its page does not have."""
    page = text_of(ROOT / "docs" / "fault-files.md")
    names = sorted({*FAULTS, *When.model_fields, *INVARIANTS, *FIELDS})
    yield from (f"docs/fault-files.md: {name}" for name in names if f"`{name}`" not in page)


def known_options() -> set[str]:
    ours = {f"--{prefix}{option.name}" for option in options.OPTIONS for prefix in ("", "resilience-")}
    return ours | {f"--{name}" for name in options_page.checkout_options()}


def undescribed_options() -> Iterator[str]:
    """Yield each option that the page of options does not have, under its short or its long name."""
    page = text_of(ROOT / "docs" / "options.md")
    for name in sorted({f"--resilience-{option.name}" for option in options.OPTIONS} | known_options()):
        short = name.replace("--resilience-", "--")
        if not re.search(rf"`(?:{name}|{short.replace('--', '--resilience-')})`", page):
            yield f"docs/options.md: {name}"


def outdated_pages() -> Iterator[str]:
    """Yield each generated page that is not what is generated from the code."""
    made = {
        "options.md": options_page.page,
        "fault-files.md": documentation.page,
        "fault-file.schema.json": schema.text,
    }
    yield from (f"docs/{name}" for name, make in made.items() if text_of(ROOT / "docs" / name) != make())


#: The folders whose files pages name, and what commands make in them.
FOLDERS = "rabbitmq_resilience|benchmarks|docs|examples|faults|presets|reports|setup|suites|sweeps|tests|topologies"
MADE = ("reports/night/", "reports/nights", "reports/runs", "reports/sweeps", "reports/comparisons")

#: Options of pytest and of other commands.
OTHERS_OPTIONS = {
    "--write-messages",
    "--write-golden",
    "--junitxml",
    "--to",
    "--zone",
    "--net-ticktime-s",
    "--into",
    "--help",
    "--loadscope",
}


def commands(page: Path) -> Iterator[str]:
    """The lines in code of a page that call pytest, make or what the package offers."""
    for block in re.findall(r"```\n(.*?)```", text_of(page), re.DOTALL):
        yield from (line.partition(" #")[0].strip() for line in block.splitlines() if is_command(line))
    yield from filter(is_command, re.findall(r"`([^`\n]+)`", without_blocks(page)))


def is_command(line: str) -> bool:
    return bool(re.match(r"\s*(?:\.venv/bin/)?(?:pytest|make|python -m|rabbitmq-resilience|\.ci/run) ?", line))


def wrong_in(line: str) -> Iterator[str]:
    """What a command names and is not there."""
    words = line.split()
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    if words[0] == "make":
        yield from wrong_in_make(line, words[1:2])
    if words[0] == "rabbitmq-resilience" and len(words) > 1:
        known = options_of(words[1]) if "--" not in given else given  # after -- is a command of others
        yield from (f"no option {name} of {words[1]}" for name in sorted(given - known))
        if words[1] not in command.COMMANDS and not words[1].startswith("-"):
            yield f"no command {words[1]}"
    if module := re.search(r"python -m ((?:rabbitmq_resilience|benchmarks)[\w.]*)", line):
        path = ROOT / module[1].replace(".", "/")
        if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists()):
            yield f"no module {module[1]}"
    if "pytest" in words[0]:
        yield from (f"no option {name}" for name in sorted(given - known_options() - OTHERS_OPTIONS))
        for marks in re.findall(r"(?<=-m )(?:\w+|\"[^\"]*\"|'[^']*')", line):
            yield from (f"no marker {name}" for name in re.findall(r"\w+", marks) if name not in known_markers())
    yield from missing_in(line)


def wrong_in_make(line: str, named: Sequence[str]) -> Iterator[str]:
    makefile = text_of(ROOT / "Makefile")
    rules = re.findall(r"^([a-z-]+(?: [a-z-]+)*):", makefile, re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    yield from (f"no target {word}" for word in named if word not in targets)
    variables = re.findall(r" ([A-Z_]+)=", line)
    yield from (f"no variable {name}" for name in variables if not re.search(rf"\b{name}\b", makefile))


def missing_in(line: str) -> Iterator[str]:
    """What is not there of the files and tests that a command names."""
    for name in re.findall(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]+)", line):
        if "NAME" not in name and not (ROOT / name).exists() and not name.startswith(MADE):
            yield f"no file {name}"
    for name, test in re.findall(r"((?:suites|tests)/[\w./-]+)::(\w+)", line):
        if (ROOT / name).exists() and f"def {test}(" not in text_of(ROOT / name):
            yield f"no test {test} in {name}"


@functools.cache
def options_of(name: str) -> frozenset[str]:
    """Return the options that a command of ``rabbitmq-resilience`` lists as its help, and those that it passes on."""
    shown = StringIO()
    with redirect_stdout(shown), suppress(SystemExit):
        command.main([name, "--help"] if name in command.COMMANDS else ["--help"])
    passed_on = known_options() | OTHERS_OPTIONS if name in ("nightly", "job") else set()
    return frozenset({*re.findall(r"--[\w-]+", shown.getvalue()), *passed_on})


@functools.cache
def known_markers() -> frozenset[str]:
    """Return the markers of this project and that of a user's own files, and the words that join them."""
    settings = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["pytest"]["ini_options"]
    return frozenset({"and", "or", "not", "nightly", *(line.partition(":")[0] for line in settings["markers"])})


def missing_files(page: Path) -> Iterator[str]:
    """Yield each file that a page names in its sentences and that is not there. Topologies may be a user's own."""
    named = re.findall(rf"`((?:{FOLDERS.removesuffix('|topologies')})/[\w./-]+)`", without_blocks(page))
    gone = {"suites/test_incidents.py", "suites/test_unsafe.py"} if page.name == "CHANGELOG.md" else set()
    for name in named:
        if name not in gone and not name.startswith(MADE) and not (ROOT / name).exists():
            yield f"no file {name}"


def unresolved_citations() -> Iterator[str]:
    """Yield each incident that a page says the track record has, and for which the record has no run; and each
    ``git show`` of a page that shows nothing, if this checkout has its whole history."""
    rows = text_of(ROOT / "reports" / "track-record.md").splitlines()
    without = {name for row in rows if "| no run " in row for name in re.findall(r"pytest (\S+)", row)}
    for page in PAGES:
        text = text_of(page)
        for cited in re.findall(r"`git show (\w+:[\w./-]+)`", text):
            if not in_history(cited):
                yield f"{page_id(page)}: git show {cited} shows nothing"
        for part in re.split(r"\n\n|(?<=[.:])\s+(?=[A-Z])", text):
            if "track-record.md" in part and "git show" not in part:
                named = {f"faults/{name}" for name in re.findall(r"faults/(incidents/[\w.]+)\)", part)}
                yield from (f"{page_id(page)}: {name} has no run in the track record" for name in named & without)


def in_history(name: str) -> bool:
    """Return whether git has ``COMMIT:FILE``; True if this is no checkout with its whole history."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        return True
    return git("cat-file", "-e", name).returncode == 0


def unknown_members() -> Iterator[str]:
    """Yield each member of a class that a page on how to add one names, and the class has not."""
    for page, made in (("add-a-fault.md", Fault), ("add-an-invariant.md", Invariant)):
        _, _, table = text_of(ROOT / "docs" / page).partition("## What a class must have")
        for cell in re.findall(r"^\| (`[^|]*) \|", table.split("\n\n")[2], re.MULTILINE):
            for name in re.findall(r"`(\w+)", cell):
                stated = any(name in vars(base).get("__annotations__", {}) for base in made.__mro__)
                if not stated and not hasattr(made, name) and name != "fault":
                    yield f"{page}: {made.__name__} has no {name}"


def wrong_on_pages() -> Iterator[str]:
    """Yield each link, command and file name that leads nowhere, by its page."""
    for page in PAGES:
        found = [*broken_links(page), *(f"{line}: {wrong}" for line in commands(page) for wrong in wrong_in(line))]
        found += missing_files(page)
        yield from (f"{page_id(page)}: {offender}" for offender in found)
