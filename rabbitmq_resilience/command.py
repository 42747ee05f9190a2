"""Run the console command ``rabbitmq-resilience`` and its subcommands, each with ``--help``."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rabbitmq_resilience.extension_points import ExtensionMissingError, is_installed, load
from rabbitmq_resilience.tools.extras import PACKAGE
from rabbitmq_resilience.tools.locations import TOOLS, content

PROGRAM = "rabbitmq-resilience"
#: The examples that ``init`` copies without ``--all``.
FIRST_EXAMPLES = (
    *("zone_cut_off.fault.yaml", "test_broker_dies.py", "topologies/three_zones.yaml"),
    *("application.fault.yaml", "shop.py"),
)
PYTEST_INI = """\
# Options for each session here; `pytest --help` lists all of them, under "RabbitMQ resilience".
[pytest]
# resilience_driver = containers
# resilience_broker = 4.0.5
# resilience_runs_dir = reports/runs
"""


@dataclass(frozen=True)
class Command:
    """A command: what it ``does``, and the function that does it, as ``module:name``.

    The function takes the arguments after the command's name, and ``program``, the words before them; it returns the
    exit status. Its module is imported when the command is run.
    """

    does: str
    target: str


def init(arguments: Sequence[str], *, program: str) -> int:
    parser = argparse.ArgumentParser(prog=program, description=COMMANDS["init"].does)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("incidents"), help="default: incidents")
    parser.add_argument("--all", action="store_true", help="copy all examples, not only the first ones")
    asked = parser.parse_args(arguments)
    folder: Path = asked.folder
    try:
        return _made(folder, every=asked.all)
    except OSError as error:
        print(f"{folder} cannot be made: {error.strerror or error}", file=sys.stderr)
        return 1


def _made(folder: Path, *, every: bool) -> int:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is no folder"
        print(f"{folder} exists already and {what}: name another folder", file=sys.stderr)
        return 1
    examples = content("faults") / "examples"
    if every:
        shutil.copytree(examples, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    else:
        for name in FIRST_EXAMPLES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(examples / name, folder / name)
    (folder / "pytest.ini").write_text(PYTEST_INI, encoding="utf-8")
    print(f"made {folder}:")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        print(f"  {path.relative_to(folder)}")
    name = shlex.quote(str(folder))
    print(f"next: pytest --check-only {name}, then pytest {name}")
    if not every:
        print("more examples: rabbitmq-resilience init --all FOLDER")
    return 0


def presets(arguments: Sequence[str], *, program: str) -> int:
    from rabbitmq_resilience.workload import presets as known

    argparse.ArgumentParser(prog=program, description=COMMANDS["presets"].does).parse_args(arguments)
    try:
        found = {name: known.load(name).source for name in known.names()}
    except known.BadPresetError as error:
        print(error, file=sys.stderr)
        return 1
    for name, source in found.items():
        print(f"{name:16} {source}")
    return 0


#: The exit status of a program that Ctrl-C ends.
INTERRUPTED = 130

_EXTENSIONS = "rabbitmq_resilience.extensions"

COMMANDS: Mapping[str, Command] = {
    "try": Command(
        "Set up what one scenario needs, play it, and say where its page is.", f"{_EXTENSIONS}.setup.trying:main"
    ),
    "setup": Command(
        f"Find RabbitMQ, Toxiproxy and Prometheus, and fetch what is missing into {TOOLS}.",
        f"{_EXTENSIONS}.setup.setup_command:main",
    ),
    "init": Command("Make a folder with fault files, topologies and a pytest.ini to begin with.", f"{__name__}:init"),
    "fault-file": Command(
        "Make a first fault file from broker logs or a timeline.", f"{_EXTENSIONS}.incidents.fault_file_command:main"
    ),
    "nightly": Command(
        "Play a night with pytest, and collect its results.", f"{_EXTENSIONS}.nights.night_command:main"
    ),
    "trend": Command("Make a page about many nights together.", f"{_EXTENSIONS}.nights.trend_command:main"),
    "compare": Command(
        "Show what differs between two nights, sweeps, fault files, settings or versions.",
        f"{_EXTENSIONS}.sweeps.compare_command:main",
    ),
    "capacity": Command(
        "Estimate what a load needs, from a sweep that measured messages for a CPU-second.",
        f"{_EXTENSIONS}.sweeps.capacity_command:main",
    ),
    "tap": Command(
        "Record what an application says to its brokers, and say where that is unsafe; nothing is broken.",
        "rabbitmq_resilience.workload.tap_command:main",
    ),
    "presets": Command("List the loads that have a name.", f"{__name__}:presets"),
    "cluster": Command(
        "Show what was found of a cluster that runs already, and what may be done to it.",
        f"{_EXTENSIONS}.attached.cluster_arguments:cluster",
    ),
    "heal": Command(
        "Heal what a run has left on a cluster that runs already.", f"{_EXTENSIONS}.attached.cluster_arguments:heal"
    ),
    "find-pods": Command(
        "Write a first cluster file for brokers in pods that have a label.",
        f"{_EXTENSIONS}.attached.cluster_arguments:find_pods",
    ),
    "job": Command(
        "Play fault files by a Job in the Kubernetes of the brokers, and fetch what was recorded.",
        f"{_EXTENSIONS}.jobs.job_command:main",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return its exit status; return 2 if they name none."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    parser = _parser()
    if not name:
        parser.print_help(sys.stderr)
        return 2
    command: str = parser.parse_args([name]).command
    try:
        program = f"{PROGRAM} {command}"
        found: int = load(COMMANDS[command].target, what=program)(rest, program=program)
        return found
    except ExtensionMissingError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROGRAM} {command} was interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the first argument: a command, or an option such as ``--version``."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Play chaos and resilience scenarios on RabbitMQ clusters."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version(PACKAGE)}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", description="COMMAND --help shows its arguments"
    )
    there = {name: command for name, command in COMMANDS.items() if is_installed(command.target)}
    for name, command in there.items():
        # A percent sign would be a format of argparse, and names of folders may have one.
        commands.add_parser(name, help=command.does.replace("%", "%%"), add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(main())
