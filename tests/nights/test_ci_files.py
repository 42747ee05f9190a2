"""The ready files of CI services are what their linters accept, and call what is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.plugin import options
from rabbitmq_resilience.plugin.options_page import checkout_options
from rabbitmq_resilience.tools.image_names import broker_image
from rabbitmq_resilience.tools.locations import TOOLS
from tests.nights.staged import ROOT

GITHUB = [ROOT / ".github" / "workflows" / "nightly.yml", ROOT / "docs" / "ci" / "github-wheel.yml"]
PAGES = ROOT / ".github" / "workflows" / "sweep-pages.yml"
GITLAB = sorted((ROOT / "docs" / "ci").glob("gitlab-*.yml"))
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
ACTIONS = {"actions/checkout", "actions/setup-python", "actions/cache", "actions/upload-artifact"}


def name(path: Path) -> str:
    return path.name


@pytest.fixture(scope="session")
def actionlint() -> str:
    """On PATH, or made by Go once for this checkout."""
    own = TOOLS / "actionlint" / ACTIONLINT.rpartition("@")[2]
    found = shutil.which("actionlint") or shutil.which(own / "actionlint")
    if found is not None:
        return found
    if shutil.which("go") is None:
        pytest.skip("neither actionlint nor Go is installed")
    own.mkdir(parents=True, exist_ok=True)
    environ = {"GOBIN": str(own)}
    done = subprocess.run(
        ["env", *(f"{k}={v}" for k, v in environ.items()), "go", "install", ACTIONLINT],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"Go cannot make actionlint: {done.stderr.strip().splitlines()[-1]}")
    return str(own / "actionlint")


@pytest.mark.installed
@pytest.mark.parametrize("path", [*GITHUB, PAGES], ids=name)
def test_actionlint_accepts_the_workflows(path: Path, actionlint: str) -> None:
    done = subprocess.run([actionlint, "-no-color", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.installed
def test_actionlint_is_heard(tmp_path: Path, actionlint: str) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(GITHUB[0].read_text(encoding="utf-8").replace("${{ matrix.name }}", "${{ matrix.nam }}"))
    done = subprocess.run([actionlint, "-no-color", wrong], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'property "nam" is not defined' in done.stdout


def gitlab_linted(path: Path) -> subprocess.CompletedProcess[str]:
    """By the schema that GitLab publishes, as check-jsonschema brings it."""
    command = ["-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]
    return subprocess.run([sys.executable, *command, str(path)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", GITLAB, ids=name)
def test_gitlabs_schema_accepts_the_jobs(path: Path) -> None:
    done = gitlab_linted(path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_gitlabs_schema_is_heard(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(GITLAB[0].read_text(encoding="utf-8").replace("exit_codes: [10]", "exit_codes: ten"))
    assert gitlab_linted(wrong).returncode == 1


def test_github_shares_all_but_what_differs() -> None:
    """The two files are one job; only how it is set up and what it plays differs."""
    own, wheel = (yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]["night"] for path in GITHUB)
    differing = ("Set everything up", "Play", "Keep the downloads of set-up")
    steps = [[step for step in job["steps"] if step.get("name") not in differing] for job in (own, wheel)]
    assert steps[0] == steps[1]
    assert {k: v for k, v in own.items() if k not in ("steps", "env")} == {
        k: v for k, v in wheel.items() if k not in ("steps", "env")
    }


@pytest.mark.parametrize("path", [*GITHUB, PAGES], ids=name)
def test_only_pinned_actions_of_github_itself_are_used(path: Path) -> None:
    used = re.findall(r"uses: (\S+)@(\S+)", path.read_text(encoding="utf-8"))
    assert {"/".join(action.split("/")[:2]) for action, _ in used} <= ACTIONS
    assert all(re.fullmatch("[0-9a-f]{40}", pin) for _, pin in used)


@pytest.mark.parametrize("path", [*GITHUB, *GITLAB], ids=name)
def test_options_and_variables_are_those_of_the_plugin(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"(RABBITMQ_RESILIENCE_\w+):", text))
    assert named - {option.variable for option in options.OPTIONS if option.lasting} <= {"RABBITMQ_RESILIENCE_TOOLS"}
    own = {"--to", "--limit-min"}
    prefix = "--resilience-" if "wheel" in path.name else "--"
    known = {f"{prefix}{option.name}" for option in options.OPTIONS} | own
    known |= set() if "wheel" in path.name else {f"--{option}" for option in checkout_options()}
    command = text[text.index("nightly --to") :]
    assert set(re.findall(r"--[a-z-]+", command[: command.index("incidents")])) <= known


@pytest.mark.parametrize("path", [*GITHUB, *GITLAB], ids=name)
def test_a_night_has_time_to_end_before_its_job(path: Path) -> None:
    """The budget, then the limit of the night, then that of the job."""
    text = path.read_text(encoding="utf-8")
    told: Any = yaml.safe_load(text)
    if path in GITHUB:
        job_min = told["jobs"]["night"]["timeout-minutes"]
    else:
        hours, minutes = map(int, re.findall(r"\d+", told["nightly"]["timeout"]))
        job_min = 60 * hours + minutes
    limit_min = float(re.findall(r"--limit-min (\d+)", text)[0])
    budget_min = float(json.loads(re.findall(r'BUDGET_MIN: ("\d+")', text)[0]) if path in GITLAB else 140)
    assert budget_min + 30 <= limit_min <= job_min - 20


CELLS = [
    pytest.param(cell, id=f"{path.name}-{cell['name']}")
    for path in GITHUB
    for cell in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]["night"]["strategy"]["matrix"]["include"]
]


@pytest.mark.parametrize("cell", CELLS)
def test_the_broker_of_each_cell_is_one_that_can_be_had(cell: dict[str, str]) -> None:
    """A series is the image that the job pulls; where none is named, all homes are played."""
    if cell["driver"] == "containers":
        assert broker_image(cell["broker"], there=()).name == f"rabbitmq:{cell['broker']}-management"
    else:
        assert not cell["broker"]


@pytest.mark.installed
@pytest.mark.parametrize("cell", CELLS)
def test_each_cell_is_played_as_far_as_its_brokers_are_needed(cell: dict[str, str], tmp_path: Path) -> None:
    """Neither an engine nor a broker is there: what is missing is one of these, and no option is refused before."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "one.fault.yaml").write_text(
        "version: 1\ntitle: One\ntopology: three_nodes_three_zones\nworkload: {}\ninvariants: {no_loss: {}}\n"
    )
    named = {"RABBITMQ_RESILIENCE_DRIVER": cell["driver"], "RABBITMQ_RESILIENCE_BROKER": cell["broker"]}
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/nobody", "RABBITMQ_RESILIENCE_TOOLS": str(tmp_path / "tools")}
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "RABBITMQ"))}
    command = [sys.executable, "-m", "rabbitmq_resilience", "nightly", "--to", "night", "--limit-min", "2"]
    done = subprocess.run(
        [*command, "--resilience-budget-min", "1", "--resilience-each-home", str(folder)],
        cwd=tmp_path,
        env={**inherited, **named, **nowhere, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    missing = "no container engine answers" if cell["driver"] == "containers" else "no RabbitMQ found"
    assert missing in done.stdout, done.stdout + done.stderr
