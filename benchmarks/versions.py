"""Form a cluster of each version that a benchmark compares, and take them in turn."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.distributions import find_broker


def add_homes(parser: argparse.ArgumentParser) -> None:
    """Add the option with the brokers' folders, as ``homes``."""
    parser.add_argument(
        "--rabbitmq-home",
        dest="homes",
        metavar="DIR",
        type=Path,
        nargs="+",
        default=[None],
        help="of each version that is measured, in turn (default: the one of set-up)",
    )


@contextmanager
def formed(homes: Sequence[Path | None]) -> Iterator[Mapping[str, LocalCluster]]:
    """Form a cluster of three nodes for each home, and yield them by version. Each is idle while another is measured.

    Raises:
        ValueError: Two homes have the same version.
    """
    brokers = [find_broker(home) for home in homes]
    versions = [str(broker.version) for broker in brokers]
    if len(set(versions)) < len(versions):
        raise ValueError(f"two of the homes have the same version: {', '.join(versions)}; name each version once")
    with ExitStack() as stack:
        yield {
            version: stack.enter_context(LocalCluster.form(_topology(number), broker=broker))
            for number, (version, broker) in enumerate(zip(versions, brokers, strict=True))
        }


def _topology(number: int) -> Topology:
    return Topology(name=f"benchmark{number}", zones={"a": 1, "b": 1, "c": 1})


def turns(title: str, rounds: int, versions: Sequence[str], sides: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yield the number of a round, a version and a side, for all of them in turn; each round in the order opposite to
    the one before. Progress goes to standard error."""
    for number in range(rounds):
        for version, side in list(itertools.product(versions, sides))[:: 1 if number % 2 == 0 else -1]:
            print(f"{title}, round {number + 1} of {rounds}: {version}, {side}", file=sys.stderr, flush=True)
            yield number, version, side


def with_range(values: Sequence[float], form: str = ",.0f") -> str:
    """Return the median of values, and the lowest and the highest if there are several."""
    middle = format(median(values), form)
    return middle if len(values) == 1 else f"{middle} ({min(values):{form}} to {max(values):{form}})"
