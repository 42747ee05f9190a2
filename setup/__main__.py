"""``python -m setup`` sets everything up, ``python -m setup python`` only the Python packages.

Everything else that it is asked for is up to ``rabbitmq_resilience.tools.command``: what needs packages runs in
``.venv``, which is made first if it is not there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rabbitmq_resilience.tools import command
from rabbitmq_resilience.tools.steps import take
from setup import environment, kubernetes_steps


def main(arguments: Sequence[str]) -> int:
    match arguments or ["all"]:
        case ["all"]:
            return command.status_of(lambda: take((environment.STEP, *command.STEPS)))
        case ["python"]:
            return command.status_of(lambda: take((environment.STEP,)))
        case ["kubernetes" | "kubernetes-suite" as what]:
            return command.status_of(lambda: take(kubernetes_steps.BY_NAME[what]))
        case ["kubernetes-stop"]:
            return command.status_of(lambda: print(kubernetes_steps.stop()))
        case ["engine"] | ["images", *_]:
            return command.status_of(lambda: _in_environment(arguments))
        case _:
            return command.main(arguments)


def _in_environment(arguments: Sequence[str]) -> None:
    """Go on in ``.venv``, as this very process: what interrupts or ends it reaches the one that does the work."""
    if environment.found() is None:
        take((environment.STEP,))
    python = str(environment.PYTHON)
    os.execv(python, [python, "-m", command.__name__, *arguments])  # noqa: S606 - no shell is needed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
