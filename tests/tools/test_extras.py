"""Nobody is told to install this package by its name, which anybody may take on an index."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached import node_backends
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.tools import extras
from tests.messages import Messages

ROOT = Path(__file__).resolve().parents[2]
#: The package by its name alone, as an argument of an installer or as a requirement.
INSTALLED = re.compile(
    r"""\b(?:pip3?|pipx|uv(?: pip)?) (?:install|run|add|wheel|download)\b[^`\n]*?"""
    r"""[ \t"']rabbitmq[-_]resilience\b(?![/.])"""
)
REQUIRED = re.compile(r"^\s*-?\s*[\"']?rabbitmq[-_]resilience\s*(?:\[|[=<>~!]=|$)", re.MULTILINE)


def by_name(text: str, *, requirements: bool = False) -> list[str]:
    """Return where a text has the package installed by its name."""
    found = [*INSTALLED.finditer(text), *(REQUIRED.finditer(text) if requirements else ())]
    return [match.group().strip() for match in found]


@pytest.mark.parametrize(
    "text",
    [
        "pip install rabbitmq-resilience",
        "pip install --upgrade 'rabbitmq-resilience[ssh]'",
        'Machines need it (`pip install "rabbitmq-resilience[ssh]"`), pods',
        "python -m pip install -c constraints.txt rabbitmq_resilience==0.1.0",
        "pipx install rabbitmq-resilience",
    ],
)
def test_by_its_name(text: str) -> None:
    assert by_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install ../rabbitmq-resilience -c ../rabbitmq-resilience/constraints.txt",
        'pip install "path/to/the/checkout[ssh]"',
        "pip install ./wheels/rabbitmq_resilience-0.1.0-py3-none-any.whl",
        "pip install -r requirements-resilience.txt\nrabbitmq-resilience setup",
    ],
)
def test_by_its_path(text: str) -> None:
    assert not by_name(text)


def test_no_file_of_this_project_installs_it_by_name() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = []
    for name in filter(None, tracked.split("\0")):
        path = ROOT / name
        if path == Path(__file__).resolve() or path.suffix in (".zst", ".png", ".gz", ".jsonl") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{name}: {line}" for line in by_name(text, requirements="require" in path.name)]
    assert found == []


class Installed:
    """A distribution of which pip recorded where it came from."""

    def __init__(self, told: object) -> None:
        self.told = told

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.told is None else json.dumps(self.told)


@pytest.mark.parametrize(
    ("told", "command"),
    [
        ({"url": "file:///src/suite", "dir_info": {}}, "pip install '/src/suite[ssh]'"),
        ({"url": "file:///my%20src/suite", "dir_info": {"editable": True}}, "pip install -e '/my src/suite[ssh]'"),
        ({"url": "file:///tmp/it-0.1.0.whl", "archive_info": {}}, "pip install '/tmp/it-0.1.0.whl[ssh]'"),
        ({"url": "https://me:secret@host/it.git", "vcs_info": {}}, "pip install 'path/to/the/checkout[ssh]'"),
        (None, "pip install 'path/to/the/checkout[ssh]'"),
    ],
)
def test_the_command_has_the_path_it_was_installed_from(
    told: object, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(told))
    assert extras.install_command("ssh") == command


@pytest.mark.parametrize("module", ["asyncssh", "kubernetes"])
def test_a_way_to_machines_whose_library_is_missing_says_how_to_have_it(
    module: str, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    def missing(_: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(node_backends, "import_module", missing)
    monkeypatch.setattr(extras, "installed_from", lambda: (Path("/home/you/suite"), False))
    extra = {"asyncssh": "ssh"}.get(module, module)
    with message.of(ClusterError) as refused:
        node_backends._needing(extra, "way")  # noqa: SLF001 - both ways go through it
    assert f"'/home/you/suite[{extra}]'" in str(refused.value)
