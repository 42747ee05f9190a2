"""Run the console command ``rabbitmq-resilience`` and its subcommands, each with ``--help``."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rabbitmq_resilience.tools.extras import PACKAGE
from rabbitmq_resilience.tools.locations import TOOLS, content

PROGRAM = "rabbitmq-resilience"
#: The examples that ``init`` copies without ``--all``.
FIRST_EXAMPLES = ("zone_cut_off.fault.yaml", "test_broker_dies.py", "topologies/three_zones.yaml")
PYTEST_INI = """\
# Options for each session here; `pytest --help` lists all of them, under "RabbitMQ resilience".
[pytest]
# resilience_driver = containers
# resilience_broker = 4.0.5
# resilience_runs_dir = reports/runs
"""


@dataclass(frozen=True)
class Command:
    """A command.

    ``run`` takes the program with the command's name, for its help, and the arguments after the name; it returns the
    exit status. It imports what it needs.
    """

    does: str
    run: Callable[[str, Sequence[str]], int]


def _setup(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.setup.setup_command import main as fetch

    return fetch(arguments, program=program)


def _try(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.setup.trying import main as first

    return first(arguments, program=program)


def _init(program: str, arguments: Sequence[str]) -> int:
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


def _fault_file(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.incidents.fault_file_command import main as draft

    return draft(arguments, program=program)


def _nightly(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.nights.night_command import main as night

    return night(arguments, program=program)


def _trend(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.nights.trend_command import main as page

    return page(arguments, program=program)


def _compare(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.sweeps.compare_command import main as two

    return two(arguments, program=program)


def _capacity(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.sweeps.capacity_command import main as needed

    return needed(arguments, program=program)


def _presets(program: str, arguments: Sequence[str]) -> int:
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


def _cluster(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.attached.cluster_command import describe

    return describe([_cluster_file(program, "cluster", arguments)])


def _heal(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.attached.cluster_command import heal

    return heal([_cluster_file(program, "heal", arguments)])


def _cluster_file(program: str, command: str, arguments: Sequence[str]) -> str:
    parser = argparse.ArgumentParser(prog=program, description=COMMANDS[command].does)
    parser.add_argument("file", help="a cluster file")
    file: str = parser.parse_args(arguments).file
    return file


def _find_pods(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.attached.ways import client_module
    from rabbitmq_resilience.model.errors import ClusterError

    parser = argparse.ArgumentParser(prog=program, description=COMMANDS["find-pods"].does)
    parser.add_argument(
        "label", help="the pods' label: app=rabbit, or app.kubernetes.io/name=NAME of a RabbitmqCluster"
    )
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--container", default="rabbitmq", help="the container of the broker (rabbitmq)")
    parser.add_argument("--kubeconfig", type=Path, help="default: the one of kubectl")
    parser.add_argument("--context")
    stated = vars(parser.parse_args(arguments))
    try:
        found: int = client_module("finding").main(stated.pop("label"), **stated)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return found


def _job(program: str, arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.extensions.jobs.job_command import main as job

    return job(arguments, program=program)


#: The exit status of a program that Ctrl-C ends.
INTERRUPTED = 130

COMMANDS: Mapping[str, Command] = {
    "try": Command("Set up what one scenario needs, play it, and say where its page is.", _try),
    "setup": Command(f"Find RabbitMQ, Toxiproxy and Prometheus, and fetch what is missing into {TOOLS}.", _setup),
    "init": Command("Make a folder with fault files, topologies and a pytest.ini to begin with.", _init),
    "fault-file": Command("Make a first fault file from broker logs or a timeline.", _fault_file),
    "nightly": Command("Play a night with pytest, and collect its results.", _nightly),
    "trend": Command("Make a page about many nights together.", _trend),
    "compare": Command("Show what differs between two nights, sweeps, fault files, settings or versions.", _compare),
    "capacity": Command("Estimate what a load needs, from a sweep that measured messages for a CPU-second.", _capacity),
    "presets": Command("List the loads that have a name.", _presets),
    "cluster": Command("Show what was found of a cluster that runs already, and what may be done to it.", _cluster),
    "heal": Command("Heal what a run has left on a cluster that runs already.", _heal),
    "find-pods": Command("Write a first cluster file for brokers in pods that have a label.", _find_pods),
    "job": Command("Play fault files by a Job in the Kubernetes of the brokers, and fetch what was recorded.", _job),
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
        return COMMANDS[command].run(f"{PROGRAM} {command}", rest)
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
    for name, command in COMMANDS.items():
        # A percent sign would be a format of argparse, and names of folders may have one.
        commands.add_parser(name, help=command.does.replace("%", "%%"), add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(main())
