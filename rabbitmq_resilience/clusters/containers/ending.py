"""Removes what belongs to the cluster of one folder in a container engine: ``python -m`` this module, and the folder.

The reaper runs it (``clusters.machine.reaper``). Its exit status is 0 if nothing is left there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from docker.errors import DockerException
from requests import RequestException

from rabbitmq_resilience.clusters.containers.engine import remove_all_of
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: An engine that is busy may take its time to answer, or refuse what it is about to do already.
TRIED_FOR_S = 5.0


def main(folder: Path) -> int:
    def left() -> str:
        try:
            remove_all_of(folder)
        except (DockerException, RequestException, ToolMissingError) as error:
            return str(error) or repr(error)
        return ""

    try:
        wait_until(
            left, until=lambda told: not told, timeout_s=TRIED_FOR_S, what=f"what belongs to {folder} to be gone"
        )
    except WaitTimeout as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
