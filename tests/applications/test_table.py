"""The table of applications agrees with the programs, and one is prepared when it must be."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from rabbitmq_resilience.tools.distributions import ToolMissingError
from suites import prepared_applications as preparing
from suites.prepared_applications import PreparationError, Prepared, applications, prepared, source_files, sources
from tests.messages import Messages

LINES_MAX = 120
_PROGRAMS = {".py", ".js", ".go", ".rs", ".java"}
#: The files that pin the version of a client.
_PINS = ("requirements.txt", "pom.xml", "go.mod", "package-lock.json", "Cargo.toml")


def test_each_folder_is_in_the_table_and_pins_its_clients_version() -> None:
    table = applications()
    folders = {path.name for path in preparing.EXAMPLES.iterdir() if path.is_dir()}
    assert folders == {sources(name, application).name for name, application in table.items()}
    for name, application in table.items():
        (pin,) = [path for path in source_files(name, application) if path.name in _PINS]
        client, text = application.client.split(":")[-1], pin.read_text(encoding="utf-8")
        assert client in text, pin
        assert application.client_version in text, pin


def test_programs_are_short_and_are_what_commands_start() -> None:
    for name, application in applications().items():
        files = {path.name: path for path in source_files(name, application)}
        long = [file for file, path in files.items() if path.suffix in _PROGRAMS and _lines(path) >= LINES_MAX]
        assert long == [], name
        for role in (application.producer, application.worker):
            assert {part for part in role if part.endswith((".py", ".js"))} <= set(files)


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_programs_of_one_folder_are_prepared_alike() -> None:
    steps = defaultdict(set)
    for name, application in applications().items():
        steps[sources(name, application)].add(application.prepare)
    assert {folder.name: len(different) for folder, different in steps.items() if len(different) > 1} == {}


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table of one program, which writes a line each time that it is prepared."""
    folder = tmp_path / "examples"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "main.sh").write_text("exit 0\n", encoding="utf-8")
    monkeypatch.setattr(preparing, "EXAMPLES", folder)
    monkeypatch.setattr(preparing, "TABLE", folder / "applications.yaml")
    write(folder, prepare=[["sh", "-c", "echo once >> ../count"]])
    return folder


def write(folder: Path, **fields: object) -> None:
    entry: dict[str, object] = {
        "title": "Mine",
        "client": "pika",
        "client_version": "1.0",
        "registry": "PyPI",
        "several_hosts": True,
        "needs": ["sh"],
        "producer": ["./main.sh", "producer"],
        "worker": ["sh", "main.sh", "worker"],
    }
    table = {"version": 1, "applications": {"mine": entry | fields}}
    (folder / "applications.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")


def test_a_program_is_prepared_again_if_its_files_changed(examples: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def times() -> int:
        prepared("mine", cache=cache)
        return _lines(cache / "count")

    assert (times(), times()) == (1, 1)
    (examples / "mine" / "main.sh").write_text("exit 1\n", encoding="utf-8")
    assert times() == 2
    assert (cache / "mine" / "main.sh").read_text(encoding="utf-8") == "exit 1\n"
    mine = prepared("mine", cache=cache)
    assert mine == Prepared("mine", mine.application, cache / "mine", took_s=0)
    assert mine.command("producer") == [str(cache / "mine" / "main.sh"), "producer"]
    assert mine.command("worker") == ["sh", "main.sh", "worker"]


def test_what_cannot_be_prepared_says_why(examples: Path, tmp_path: Path, message: Messages) -> None:
    with message.of(PreparationError):
        prepared("yours", cache=tmp_path)
    write(examples, prepare=[["sh", "-c", "echo no such package; exit 3"]])
    for _ in range(2):  # one that failed is not taken for prepared
        with message.of(PreparationError):
            prepared("mine", cache=tmp_path)
    write(examples, prepare=[], needs=["sh", "no-such-tool"])
    with message.of(ToolMissingError):
        prepared("mine", cache=tmp_path)
