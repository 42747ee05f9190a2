"""``python -m setup`` sets everything up, ``python -m setup python`` only the Python packages.

``engine`` provides a container engine, ``engine-stop`` ends the one that it started, and ``images`` builds container
images: of the broker versions named after it, or of all.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from setup import broker, dockerd, environment, images, prometheus, toxiproxy
from setup.steps import Missing, Step, take

STEPS = {
    "all": (environment.STEP, broker.STEP, toxiproxy.STEP, prometheus.STEP),
    "python": (environment.STEP,),
    "engine": (dockerd.STEP,),
}
USAGE = f"setup/start [{'|'.join(STEPS)}|engine-stop|images [VERSION ...]]"


def main(arguments: list[str]) -> int:
    name, *more = arguments or ["all"]
    if name not in (*STEPS, "engine-stop", "images") or (more and name != "images"):
        print(f"usage: {USAGE}, got: {' '.join(arguments)}", file=sys.stderr)
        return 2
    try:
        if name == "engine-stop":
            print(dockerd.stop())
        else:
            take(_steps(name, more))
    except Missing as error:
        print(f"\nSet-up cannot go on.\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nSet-up was interrupted; the next call goes on where it stopped.", file=sys.stderr)
        return 130
    return 0


def _steps(name: str, versions: Sequence[str]) -> Sequence[Step]:
    return images.steps(versions) if name == "images" else STEPS[name]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
