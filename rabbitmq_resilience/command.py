"""The console command ``rabbitmq-resilience``: set-up, a first folder, a fault file from evidence, a night, a trend,
a comparison, capacity, loads by name, clusters that are there already, and a Job in Kubernetes."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rabbitmq_resilience.tools.locations import TOOLS, content

USAGE = """\
usage: rabbitmq-resilience setup [perf-test|engine|engine-stop|images [VERSION ...]]
       rabbitmq-resilience init [FOLDER]
       rabbitmq-resilience fault-file EVIDENCE [MORE ...] [--to FILE]
       rabbitmq-resilience nightly [OPTION ...] [PATH ...]
       rabbitmq-resilience trend FOLDER [--to FILE] [--mix-machines]
       rabbitmq-resilience compare FIRST SECOND [OPTION ...]
       rabbitmq-resilience capacity FOLDER [OPTION ...]
       rabbitmq-resilience presets
       rabbitmq-resilience cluster FILE
       rabbitmq-resilience heal FILE
       rabbitmq-resilience find-pods LABEL [--namespace NAME] [--kubeconfig FILE] > FILE
       rabbitmq-resilience job CLUSTER_FILE FAULT_FILE ... --image IMAGE [--to DIR] [OPTION ...]

setup       finds RabbitMQ, Toxiproxy and Prometheus, and fetches what is missing into {tools};
            engine provides a container engine, images builds container images where they cannot be pulled
init        makes FOLDER (incidents) with a first fault file, a topology and a pytest.ini
fault-file  makes a first fault file from broker logs or a timeline
nightly     plays a night with pytest, and collects what came of it; options are its own (--help) and those of pytest
trend       makes a page of what the nights in FOLDER say together (trend.html)
compare     tells what differs between two nights, results of sweeps, fault files, settings or versions (--help)
capacity    tells what a load needs, by a sweep of messages for a CPU-second (--help)
presets     lists the loads that are known by name
cluster     tells what was found of the cluster that a cluster file describes, and what may be done to it
heal        heals what a run has left on that cluster
find-pods   writes a first cluster file of the brokers in pods that have LABEL
job         plays fault files by a Job beside brokers in pods, and fetches what was recorded (--help)
"""


PYTEST_INI = """\
# What holds for each session here; `pytest --help` has all of it, under "RabbitMQ resilience".
[pytest]
# resilience_driver = containers
# resilience_broker = 4.0.5
# resilience_runs_dir = reports/runs
"""


def setup(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.tools.command import main as fetch

    return fetch(arguments)


def init(arguments: Sequence[str]) -> int:
    """Copies the examples into a folder that does not exist yet, or holds nothing."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        return _misused(arguments)
    folder = Path(arguments[0] if arguments else "incidents")
    try:
        return _made(folder)
    except OSError as error:
        print(f"{folder} cannot be made: {error.strerror or error}", file=sys.stderr)
        return 1


def _made(folder: Path) -> int:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is no folder"
        print(f"{folder} is there already and {what}: name another folder", file=sys.stderr)
        return 1
    shutil.copytree(
        content("faults") / "examples", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".*")
    )
    (folder / "pytest.ini").write_text(PYTEST_INI, encoding="utf-8")
    print(f"made {folder}:")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        print(f"  {path.relative_to(folder)}")
    name = shlex.quote(str(folder))
    print(f"next: pytest --check-only {name}, then pytest {name}")
    return 0


def fault_file(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.evidence.command import main as draft

    return draft(list(arguments), program="rabbitmq-resilience fault-file")


def nightly(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.nights.command import main as night

    return night(arguments)


def trend(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.nights.trend_command import main as page

    return page(list(arguments), program="rabbitmq-resilience trend")


def compare(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.sweeps.compare_command import main as two

    return two(arguments, program="rabbitmq-resilience compare")


def capacity(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.sweeps.capacity_command import main as needed

    return needed(arguments, program="rabbitmq-resilience capacity")


def presets(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.workloads import presets as known

    if arguments:
        return _misused(["presets", *arguments])
    try:
        found = {name: known.load(name).source for name in known.names()}
    except known.BadPresetError as error:
        print(error, file=sys.stderr)
        return 1
    for name, source in found.items():
        print(f"{name:16} {source}")
    return 0


def cluster(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.clusters.attached.command import told

    return told(arguments) if len(arguments) == 1 else _misused(["cluster", *arguments])


def heal(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.clusters.attached.command import heal as healed

    return healed(arguments) if len(arguments) == 1 else _misused(["heal", *arguments])


def find_pods(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.clusters.attached.ways import client_module
    from rabbitmq_resilience.clusters.errors import ClusterError

    try:
        found: int = client_module("finding").main(arguments, program="rabbitmq-resilience find-pods")
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return found


def job(arguments: Sequence[str]) -> int:
    from rabbitmq_resilience.jobs.command import main as beside

    return beside(arguments, program="rabbitmq-resilience job")


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "setup": setup,
    "init": init,
    "fault-file": fault_file,
    "nightly": nightly,
    "trend": trend,
    "compare": compare,
    "capacity": capacity,
    "presets": presets,
    "cluster": cluster,
    "find-pods": find_pods,
    "heal": heal,
    "job": job,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 2 for what is no command."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name in ("-h", "--help"):
        print(USAGE.format(tools=TOOLS), end="")
        return 0
    return COMMANDS[name](rest) if name in COMMANDS else _misused([name])


def _misused(arguments: Sequence[str]) -> int:
    print(f"{USAGE.format(tools=TOOLS)}\ngot: {' '.join(arguments) or 'no command'}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
