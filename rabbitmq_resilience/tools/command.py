"""Provides what is no Python package, as its arguments say.

``all``, or nothing, finds or fetches broker, Toxiproxy, Prometheus and HAProxy. ``perf-test`` fetches PerfTest, for
sweeps and benchmarks whose numbers stand beside its own. ``engine`` provides a container engine,
and ``engine-stop`` ends the one that it started. ``images`` builds container images: of the broker versions named after
it, or of all.

Engines and images need docker's package, which is imported only when they are asked for. All else needs no package:
``python -m setup`` does it before there is any.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rabbitmq_resilience.tools import broker, dockerd, perf_test, toxiproxy
from rabbitmq_resilience.tools.haproxy import HAPROXY
from rabbitmq_resilience.tools.locations import CHECKOUT
from rabbitmq_resilience.tools.prometheus import PROMETHEUS
from rabbitmq_resilience.tools.steps import Missing, take

STEPS = (*broker.steps(), toxiproxy.STEP, PROMETHEUS.step, HAPROXY.step)
_WORDS = "perf-test|engine|engine-stop"
WORDS = f"all|{_WORDS}" if CHECKOUT is None else f"all|python|{_WORDS}"
PROGRAM = "rabbitmq-resilience setup" if CHECKOUT is None else "setup/start"
USAGE = f"{PROGRAM} [{WORDS}|images [VERSION ...]]"


def main(arguments: Sequence[str]) -> int:
    match arguments or ["all"]:
        case ["all"]:
            return status_of(lambda: take(STEPS))
        case ["perf-test"]:
            return status_of(lambda: take((perf_test.STEP,)))
        case ["engine"]:
            return status_of(_engine)
        case ["engine-stop"]:
            return status_of(lambda: print(dockerd.stop()))
        case ["images", *versions]:
            return status_of(lambda: _images(versions))
        case _:
            print(f"usage: {USAGE}, got: {' '.join(arguments)}", file=sys.stderr)
            return 2


def status_of(work: Callable[[], object]) -> int:
    """Do it, and say what it lacked if it could not be done; returns the exit status for that."""
    try:
        work()
    except Missing as error:
        print(f"\nSet-up cannot go on.\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nSet-up was interrupted; the next call goes on where it stopped.", file=sys.stderr)
        return 130
    return 0


def _engine() -> None:
    from rabbitmq_resilience.tools import engine  # noqa: PLC0415 - it needs docker's package

    take((engine.STEP,))


def _images(versions: Sequence[str]) -> None:
    from rabbitmq_resilience.tools import images  # noqa: PLC0415 - it needs docker's package

    take(images.steps(versions))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
