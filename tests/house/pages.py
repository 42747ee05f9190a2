"""List what is wrong on the pages that people read: broken links, wrong commands, missing files and descriptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
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

ROOT = Path(__file__).resolve().parents[2]
README_LINES_MAX = 150
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "reports").glob("*.md"),
        *ROOT.glob("sweeps/**/*.md"),
        *ROOT.glob("examples/**/README.md"),
    ]
)


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
    if words[0] == "make":
        rules = re.findall(r"^([a-z-]+(?: [a-z-]+)*):", text_of(ROOT / "Makefile"), re.MULTILINE)
        targets = {target for rule in rules for target in rule.split()}
        yield from (f"no target {word}" for word in words[1:2] if word not in targets)
    if words[0] == "rabbitmq-resilience" and len(words) > 1 and words[1] not in command.COMMANDS:
        yield f"no command {words[1]}"
    if module := re.search(r"python -m ((?:rabbitmq_resilience|benchmarks)[\w.]*)", line):
        path = ROOT / module[1].replace(".", "/")
        if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists()):
            yield f"no module {module[1]}"
    if "pytest" in words[0]:
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        yield from (f"no option {name}" for name in sorted(given - known_options() - OTHERS_OPTIONS))
    for name in re.findall(r"(?<![\w/.-])((?:faults|suites|sweeps|tests|topologies|setup)/[\w./-]+)", line):
        if "NAME" not in name and not (ROOT / name).exists():
            yield f"no file {name}"


def missing_files(page: Path) -> Iterator[str]:
    """Yield each file that a page names in its sentences and that is not there."""
    named = re.findall(r"`((?:rabbitmq_resilience|tests|faults|docs|suites|sweeps)/[\w./-]+)`", without_blocks(page))
    gone = {"suites/test_incidents.py", "suites/test_unsafe.py"} if page.name == "CHANGELOG.md" else set()
    yield from (f"no file {name}" for name in named if name not in gone and not (ROOT / name).exists())


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
        if page.parent != ROOT / "reports":
            found += missing_files(page)
        yield from (f"{page_id(page)}: {offender}" for offender in found)
