"""What people read is short, its links lead somewhere, its commands name what there is, and nothing is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitmq_resilience import command, options, options_page
from rabbitmq_resilience.faults.catalogue import FAULTS
from rabbitmq_resilience.faults.conditions import When
from rabbitmq_resilience.invariants.catalogue import INVARIANTS
from rabbitmq_resilience.scenarios import fault_file
from rabbitmq_resilience.scenarios.expectations import Expectation
from rabbitmq_resilience.scenarios.model import Phases, Scenario
from rabbitmq_resilience.workloads.queue_settings import Mirroring, QueueLimits
from rabbitmq_resilience.workloads.spec import Workload

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
README_LINES_MAX = 150
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "reports").glob("*.md"), *ROOT.glob("sweeps/**/*.md")]
)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= README_LINES_MAX


def test_its_fault_file_is_accepted() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    scenario = fault_file.parse(example, source="README.md")
    assert [step.fault for step in scenario.schedule] == ["partition", "latency"]


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


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# A title: of `mine`\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md#a-title-of-mine) [b](there.md#other) [c](gone.md) [d](http://x/y)\n", encoding="utf-8"
    )
    assert [found.partition(":")[0] for found in broken_links(page)] == ["there.md#other", "gone.md"]


BOUNDS = [field for checker in (*INVARIANTS.values(), *FAULTS.values()) for field in checker.model_fields]
SPECS = (Scenario, Workload, Mirroring, QueueLimits, Phases, Expectation)
FIELDS = {*BOUNDS, *(field for spec in SPECS for field in spec.model_fields)} - {"fault"}


@pytest.mark.parametrize("name", sorted({*FAULTS, *When.model_fields, *INVARIANTS, *FIELDS}))
def test_every_fault_condition_invariant_and_field_is_described(name: str) -> None:
    assert f"`{name}`" in text_of(ROOT / "docs" / "fault-files.md")


def test_the_page_of_options_is_what_is_generated() -> None:
    assert text_of(ROOT / "docs" / "options.md") == options_page.page()


def known_options() -> set[str]:
    ours = {f"--{prefix}{option.name}" for option in options.OPTIONS for prefix in ("", "resilience-")}
    return ours | {f"--{name}" for name in options_page.checkout_options()}


@pytest.mark.parametrize("name", sorted({f"--resilience-{o.name}" for o in options.OPTIONS} | known_options()))
def test_every_option_is_described(name: str) -> None:
    short = name.replace("--resilience-", "--")
    assert re.search(rf"`(?:{name}|{short.replace('--', '--resilience-')})`", text_of(ROOT / "docs" / "options.md"))


#: Of pytest, and of the commands beside it.
OTHERS_OPTIONS = {"--junitxml", "--to", "--zone", "--net-ticktime-s", "--into", "--help", "--loadscope"}


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
    for name in re.findall(r"(?<![\w/.-])((?:faults|suites|tests|topologies|setup)/[\w./-]+)", line):
        if "NAME" not in name and not (ROOT / name).exists():
            yield f"no file {name}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_command_names_what_there_is(page: Path) -> None:
    assert [f"{line}: {wrong}" for line in commands(page) for wrong in wrong_in(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "make partition",
        "rabbitmq-resilience set-up",
        ".venv/bin/pytest --fault-fil=x",
        "pytest faults/unsafe/gone.fault.yaml",
        "python -m rabbitmq_resilience.gone",
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    assert list(wrong_in(line)) != []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT / "reports"], ids=page_id)
def test_files_that_are_named_in_words_are_there(page: Path) -> None:
    named = re.findall(r"`((?:rabbitmq_resilience|tests|faults|docs|suites)/[\w./-]+)`", without_blocks(page))
    gone = {"suites/test_incidents.py", "suites/test_unsafe.py"} if page.name == "CHANGELOG.md" else set()
    assert [name for name in named if name not in gone and not (ROOT / name).exists()] == []
