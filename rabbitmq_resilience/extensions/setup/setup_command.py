"""Provide programs and images that are not Python packages, as the arguments say (``WORDS``).

Engines and images need docker's Python package, which is imported only if they are requested. The rest needs no Python
package, so ``python -m setup`` can do it before any is installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rabbitmq_resilience.extensions.setup import (
    broker_packages,
    disk_faults_build,
    dockerd,
    perf_test,
    toxiproxy_package,
)
from rabbitmq_resilience.extensions.setup.haproxy import HAPROXY
from rabbitmq_resilience.extensions.setup.prometheus_package import PROMETHEUS
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, take
from rabbitmq_resilience.tools.locations import CHECKOUT

STEPS = (
    *broker_packages.steps(),
    toxiproxy_package.STEP,
    PROMETHEUS.step,
    HAPROXY.step,
    disk_faults_build.STEP,
)
#: What a first scenario needs: one broker and Toxiproxy.
FIRST_STEPS = (STEPS[0], toxiproxy_package.STEP)
WORDS = {
    "all": "brokers, Toxiproxy, Prometheus, HAProxy and the library that lets disks fail (the default)",
    "try": "what a first scenario needs: one broker and Toxiproxy",
    **({} if CHECKOUT is None else {"python": "only the Python packages"}),
    "perf-test": "PerfTest, for the numbers that sweeps and benchmarks compare with ours; needs Java and Maven",
    "disk-faults": "the library that lets disks fail, for containers too; fetches a compiler of 101 MB",
    "engine": "a container engine",
    "engine-stop": "stop the engine that it started",
    "images": "build container images, for machines that cannot pull them: of the VERSIONs, or of all",
}
PROGRAM = "rabbitmq-resilience setup" if CHECKOUT is None else "setup/start"


def main(arguments: Sequence[str], *, program: str = PROGRAM) -> int:
    """Provide what the arguments say; return the exit status. ``program``: the name of the program for the help."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Find the programs that scenarios need, and fetch or build the missing ones.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["what:", *(f"  {word:12} {meaning}" for word, meaning in WORDS.items())]),
    )
    parser.add_argument("what", nargs="?", default="all", choices=WORDS, metavar="WHAT", help="see below")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="for images: broker versions, such as 4.0.5")
    asked = parser.parse_args(arguments)
    if asked.versions and asked.what != "images":
        parser.error(f"only images takes versions, and {asked.what} got {' '.join(asked.versions)}")
    if asked.what not in _WORK:
        parser.error(f"{asked.what} is done by setup/start of a checkout")
    return status_of(partial(_WORK[asked.what], asked.versions))


def status_of(work: Callable[[], object]) -> int:
    """Call ``work``; print what is missing if it fails. Return the exit status."""
    try:
        work()
    except Missing as error:
        print(f"\nSet-up stopped.\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nSet-up was interrupted; the next call continues from there.", file=sys.stderr)
        return 130
    return 0


def _engine() -> None:
    from rabbitmq_resilience.extensions.setup import engine  # noqa: PLC0415 - it needs docker's package

    take((engine.STEP,))


def _images(versions: Sequence[str]) -> None:
    from rabbitmq_resilience.extensions.setup import images  # noqa: PLC0415 - it needs docker's package

    take(images.steps(versions))


_WORK: Mapping[str, Callable[[Sequence[str]], object]] = {
    "all": lambda _: take(STEPS),
    "try": lambda _: take(FIRST_STEPS),
    "perf-test": lambda _: take((perf_test.STEP,)),
    "disk-faults": lambda _: take((disk_faults_build.PORTABLE_STEP,)),
    "engine": lambda _: _engine(),
    "engine-stop": lambda _: print(dockerd.stop()),
    "images": _images,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
