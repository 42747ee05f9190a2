"""Remove everything of one cluster from the container engine: ``python -m`` this module, and the cluster's folder.

The reaper (``sut.machine.reaper``) runs it. The exit status is 0 if nothing is left.
"""

from __future__ import annotations

import sys
from pathlib import Path

from docker.errors import DockerException
from requests import RequestException

from rabbitmq_resilience.sut.containers.engine_client import remove_all_of
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: How long to try. A busy engine may answer late, or refuse a removal that is already under way.
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
            left,
            until=lambda error: not error,
            timeout_s=TRIED_FOR_S,
            what=f"everything of {folder} in the engine to be gone",
        )
    except WaitTimeout as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
