"""Read the arguments of the commands ``cluster``, ``heal`` and ``find-pods``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rabbitmq_resilience.command import COMMANDS
from rabbitmq_resilience.extensions.attached import cluster_command
from rabbitmq_resilience.extensions.attached.node_backends import client_module
from rabbitmq_resilience.model.errors import ClusterError


def cluster(arguments: Sequence[str], *, program: str) -> int:
    """Show what was found of a cluster that runs already; return the exit status."""
    return cluster_command.describe([_cluster_file("cluster", arguments, program)])


def heal(arguments: Sequence[str], *, program: str) -> int:
    """Heal what a run has left on a cluster that runs already; return the exit status."""
    return cluster_command.heal([_cluster_file("heal", arguments, program)])


def _cluster_file(command: str, arguments: Sequence[str], program: str) -> str:
    parser = argparse.ArgumentParser(prog=program, description=COMMANDS[command].does)
    parser.add_argument("file", help="a cluster file")
    file: str = parser.parse_args(arguments).file
    return file


def find_pods(arguments: Sequence[str], *, program: str) -> int:
    """Write a first cluster file of the brokers in pods that have a label; return the exit status."""
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
