"""Check the house: each item lists all that offends one rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rabbitmq_resilience.scenario import fault_file
from tests import messages
from tests.conftest import LONGEST_FIRST
from tests.house import pages, played, structure, words

ROOT = structure.ROOT


def test_imports_go_downwards() -> None:
    assert [*structure.imports_upwards(), *structure.unknown_rooms(), *structure.core_imports_of_extensions()] == []


def test_modules_are_short_and_say_what_they_are() -> None:
    assert list(structure.shapeless_modules()) == []


def test_each_name_of_a_class_or_module_stands_once() -> None:
    assert list(structure.doubled_names()) == []


def test_words_are_plain() -> None:
    assert [*words.refused_words(), *words.idle_exceptions(), *words.refused_test_names()] == []


def test_all_that_can_be_stated_is_played() -> None:
    assert list(played.not_played()) == []


def test_no_committed_file_names_a_registry() -> None:
    assert list(structure.named_registries()) == []


def test_packages_are_named_and_set_up_needs_none() -> None:
    assert [*structure.unnamed_packages(), *structure.packages_of_set_up()] == []
    tools = ROOT / structure.PACKAGE / "extensions" / "setup"
    reached = structure.reached_by_set_up()
    assert {
        tools / f"{name}.py" for name in ("broker_packages", "toxiproxy_package", "prometheus_package", "haproxy")
    } <= reached


def test_pages_lead_somewhere() -> None:
    assert [*pages.wrong_on_pages(), *pages.unresolved_citations()] == []


def test_pages_describe_what_there_is() -> None:
    assert [*pages.undescribed_names(), *pages.undescribed_options(), *pages.outdated_pages()] == []
    assert list(pages.unknown_members()) == []


def test_the_readme_is_short_and_its_fault_file_is_accepted() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= pages.README_LINES_MAX
    (example,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    assert [step.fault for step in fault_file.parse(example, source="README.md").schedule] == ["partition", "latency"]


def test_golden_messages_are_those_of_tests() -> None:
    gone = []
    for node in messages.read():
        file, _, name = node.partition("::")
        function = name.partition("[")[0].rpartition("::")[2]
        if not (ROOT / file).exists() or f"def {function}(" not in (ROOT / file).read_text(encoding="utf-8"):
            gone.append(node)
    assert gone == [], "pytest tests --write-messages removes them"


def test_offenders_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in (
        "make partition",
        "rabbitmq-resilience set-up",
        ".venv/bin/pytest --fault-fil=x",
        "pytest faults/unsafe/gone.fault.yaml",
        "python -m rabbitmq_resilience.gone",
        "make test-all PARTS=engine",
        "rabbitmq-resilience trend nights --too trend.html",
        "pytest -m 'partitions and not sloww'",
        "pytest examples/applications/gone.py",
        "pytest suites/test_kills.py::test_gone",
    ):
        assert list(pages.wrong_in(line)) != [], line
    for checked in (pages, structure):
        monkeypatch.setattr(checked, "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# A title: of `mine`\n", encoding="utf-8")
    page = tmp_path / "page.md"
    links = "[a](there.md#a-title-of-mine) [b](there.md#other) [c](gone.md) [d](http://x/y)\n"
    page.write_text(links, encoding="utf-8")
    assert [found.partition(":")[0] for found in pages.broken_links(page)] == ["there.md#other", "gone.md"]
    package = structure.PACKAGE
    module = tmp_path / package / "history" / "deep.py"
    module.parent.mkdir(parents=True)
    text = f"def late():\n    import {package}.runner.run\nfrom . import events\nfrom ..report import run_page\n"
    module.write_text(text + f"from {package} import sut, plugin\n", encoding="utf-8")
    expected = [(2, "runner.run"), (4, "report"), (4, "report.run_page"), (5, "plugin")]
    offenders = [f"{package}/history/deep.py, line {line}: {package}.{name}" for line, name in expected]
    assert sorted(structure.imports_upwards([module])) == offenders


def test_files_that_begin_are_there() -> None:
    assert [name for name in LONGEST_FIRST if not (ROOT / name).exists()] == []
