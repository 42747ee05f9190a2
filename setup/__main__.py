"""``python -m setup`` sets everything up, ``python -m setup python`` only the Python packages."""

from __future__ import annotations

import sys

from setup import broker, environment, prometheus, toxiproxy
from setup.steps import Missing, take

STEPS = {
    "all": (environment.STEP, broker.STEP, toxiproxy.STEP, prometheus.STEP),
    "python": (environment.STEP,),
}


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "all"
    if name not in STEPS or len(arguments) > 1:
        print(f"usage: setup/start [{'|'.join(STEPS)}], got: {' '.join(arguments)}", file=sys.stderr)
        return 2
    try:
        take(STEPS[name])
    except Missing as error:
        print(f"\nSet-up cannot go on.\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nSet-up was interrupted; the next call goes on where it stopped.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
