"""Play fault files by a Job next to the brokers, and fetch its records: ``rabbitmq-resilience job``.

::

    <to>/
        ended.json      the exit status of pytest
        junit.xml       the report of pytest, for programs
        runs/           run directories, as a run from this machine leaves them
"""

from __future__ import annotations

import argparse
import math
import re
import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml

from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.node_backends import client_module
from rabbitmq_resilience.extensions.jobs import manifests
from rabbitmq_resilience.extensions.jobs.interrupts import Interrupts
from rabbitmq_resilience.extensions.jobs.job_player import NOT_PLAYED, Playing
from rabbitmq_resilience.extensions.jobs.job_request import REFUSALS, JobRequest, ordered
from rabbitmq_resilience.extensions.jobs.manifests import JobSettings
from rabbitmq_resilience.extensions.jobs.paths import KEEPER, PLAYER, WORK
from rabbitmq_resilience.history.commands import recheck_command
from rabbitmq_resilience.model.errors import ClusterError

INTERRUPTED = 130
_LIMIT_MIN_MAX = 7 * 24 * 60
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kKMGT]i?)?")
#: Roughly, the names of accounts in Kubernetes (RFC 1123), and those of images.
_ACCOUNT = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_IMAGE = re.compile(r"[a-z0-9][\w.\-/:]*(@sha256:[0-9a-f]{64})?")


def main(arguments: Sequence[str], *, program: str) -> int:
    """Run the command; return pytest's exit status, NOT_PLAYED, LOST, or INTERRUPTED."""
    ours, for_pytest = _split(arguments)
    given = _parser(program).parse_args(ours)
    to = (given.to or Path("reports/job") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}").resolve()
    try:
        order = ordered(given.cluster, given.fault_files)
    except REFUSALS as error:
        return _refused(str(error))
    settings = JobSettings(
        name=f"resilience-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        image=given.image,
        pull=given.pull,
        account=given.service_account,
        limit_s=60 * given.limit_min,
        cpu=given.cpu,
        memory=given.memory,
        for_pytest=for_pytest,
    )
    for text in order.left_out:
        _say(f"will be skipped: {text}")
    if given.dry_run:
        print(_shown(order, settings), end="")
        return 0
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        return _refused(f"{to} exists and is not an empty folder: name another folder (--to)")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _refused(f"{to} cannot be made: {error.strerror or error}")
    try:
        return _played(order, settings, to)
    except KeyboardInterrupt:
        print("job: interrupted", file=sys.stderr)
        return INTERRUPTED


def _played(order: JobRequest, settings: JobSettings, to: Path) -> int:
    with Interrupts() as interrupts:
        try:
            module = client_module("job")
            containers = module.Containers(PLAYER, KEEPER, WORK)
            folder = order.known.path.resolve().parent
            remote = module.RemoteJob.of(order.offer, settings.name, containers, folder=folder)
            lacking = list(remote.lacking(settings.account))
        except (ClusterError, MachineError) as error:
            return _refused(str(error))
        if lacking:
            return _refused("\n".join(lacking))
        interrupts.end_if_asked()
        count = f"{len(order.scenarios)} fault file{'s' * (len(order.scenarios) > 1)}"
        _say(f"{settings.name} in {order.offer.namespace} plays {count}, for {settings.limit_s / 60:g} min at most")
        belongings = [manifests.config_map(order, settings), manifests.secret(order, settings)]
        playing = Playing(remote, interrupts, _say, _show)
        status = playing.play(manifests.job(order, settings), belongings, to)
    for run in sorted((to / "runs").glob("*/fault.yaml")) if to.is_dir() else ():
        _say(f"to judge it again: {recheck_command(run.parent)}")
    return status


def _shown(order: JobRequest, settings: JobSettings) -> str:
    """Return the objects that would be made, as YAML, without the secrets."""
    made = [
        manifests.config_map(order, settings),
        manifests.secret(order, settings, shown=True),
        manifests.job(order, settings),
    ]
    return str(yaml.dump_all(made, Dumper=_BlockDumper, sort_keys=False, width=110))


class _BlockDumper(yaml.SafeDumper):
    """Write texts of several lines as blocks, so that files stay readable."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_BlockDumper.add_representer(str, _BlockDumper.represent_str)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our own arguments, and those after ``--``."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    return list(arguments[:at]), list(arguments[at + 1 :])


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} CLUSTER_FILE FAULT_FILE ... --image IMAGE [--to DIR] [OPTION ...] [-- PYTEST_OPTION ...]",
        description="Play fault files by a Job in the brokers' namespace, and fetch the records as files. "
        "Options after -- are passed to pytest.",
        allow_abbrev=False,
    )
    parser.add_argument("cluster", type=Path, metavar="CLUSTER_FILE", help="with offers: {kubernetes: ...}")
    parser.add_argument("fault_files", type=Path, nargs="+", metavar="FAULT_FILE", help="or a folder of them")
    parser.add_argument(
        "--image", required=True, type=_image, help="the image of the suite: docs/kubernetes/Containerfile"
    )
    parser.add_argument("--to", type=Path, help="an empty folder (a new one in reports/job)")
    parser.add_argument("--limit-min", type=_minutes, default=60.0, help="end pytest after this many minutes (60)")
    parser.add_argument(
        "--service-account", type=_account, default="resilience", help="the account that acts there (resilience)"
    )
    parser.add_argument("--pull", choices=("Always", "IfNotPresent", "Never"), default="IfNotPresent")
    parser.add_argument("--cpu", type=_quantity, default="500m", help="CPU that a node must have free (500m)")
    parser.add_argument(
        "--memory", type=_quantity, default="512Mi", help="the memory that a node must have free (512Mi)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be made, without credentials")
    return parser


def _minutes(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= _LIMIT_MIN_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0 and up to a week")
    return found


def _quantity(text: str) -> str:
    if not _QUANTITY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a quantity as Kubernetes writes it: 500m, 2, 512Mi")
    return text


def _account(text: str) -> str:
    if not _ACCOUNT.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name of a service account")
    return text


def _image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an image; write it like registry.example/resilience:1")
    return text


def _refused(why: str) -> int:
    print(f"job: nothing was made: {why}", file=sys.stderr)
    return NOT_PLAYED


def _say(text: str) -> None:
    print(f"job: {text}", file=sys.stderr, flush=True)


def _show(line: str) -> None:
    print(line, flush=True)
