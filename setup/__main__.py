"""Set up everything by ``python -m setup``, or only the Python packages by ``python -m setup python``.

All other words are passed to ``rabbitmq_resilience.tools.setup_command``. If they need Python packages, that runs in
``.venv``, which is made first if it is missing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rabbitmq_resilience.extensions.setup import setup_command
from rabbitmq_resilience.extensions.setup.setup_tasks import take
from setup import environment, kubernetes_steps


def main(arguments: Sequence[str]) -> int:
    """Set up what the arguments say; return the exit status."""
    word, *rest = arguments or ["all"]
    if word in _WORK and not rest:
        return setup_command.status_of(_WORK[word])
    if word == "images" or (word == "engine" and not rest):
        return setup_command.status_of(lambda: _in_environment(arguments))
    return setup_command.main(arguments, program="setup/start")


def _in_environment(arguments: Sequence[str]) -> None:
    """Go on in ``.venv`` with the same process id, so that signals reach the process that does the work."""
    if environment.found() is None:
        take((environment.STEP,))
    python = str(environment.PYTHON)
    os.execv(python, [python, "-m", setup_command.__name__, *arguments])  # noqa: S606 - no shell is needed


def _kubernetes() -> None:
    take(kubernetes_steps.STEPS)
    print(kubernetes_steps.what_next())


_WORK: Mapping[str, Callable[[], object]] = {
    "all": lambda: take((environment.STEP, *setup_command.STEPS)),
    "try": lambda: take((environment.STEP, *setup_command.FIRST_STEPS)),
    "python": lambda: take((environment.STEP,)),
    "kubernetes-suite": partial(take, kubernetes_steps.SUITE),
    "kubernetes": _kubernetes,
    "kubernetes-stop": lambda: print(kubernetes_steps.stop()),
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
