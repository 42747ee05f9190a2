"""Three machines that are not ours, and their cluster file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.cluster_command import describe
from rabbitmq_resilience.model.durations import TICKS_MAX
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until
from tests.clusters.attached.machines import NET_TICKTIME_S, Machines, running_machines
from tests.statistics_ended import HAVE_ENDED

ALLOWED = "{kill: 1, stop: 1, pause: 1, cut: 1, refuse: 1, lose_packets: 3, fill_disk: 1, alarm: 1, drain: 1}"

#: For the broker of a machine that is busy to be whole again.
WHOLE_WITHIN_S = 180.0
#: For that without help.
BY_ITSELF_WITHIN_S = 45.0


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with running_machines(3, tmp_path_factory.mktemp("machines")) as found:
        yield found


def silent(machines: Machines) -> list[str]:
    """Those whose brokers tell nothing of themselves any more."""
    asked = f"rabbitmqctl -q eval '{HAVE_ENDED}' || true"
    return [name for name in machines.names if machines.ask(name, asked).strip() == "true"]


@pytest.fixture
def file(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MACHINES_USER", "chaos")
    found = machines.cluster_file("abc", allow=ALLOWED)

    def whole() -> bool:
        """In two looks: nodes that were parted until just now do not tell of it before they notice."""
        if describe([str(found)]) != 0:
            return False
        time.sleep(TICKS_MAX * NET_TICKTIME_S)  # they notice within that (kernel(6), net_ticktime)
        return describe([str(found)]) == 0

    with suppress(WaitTimeout):
        wait_until(whole, timeout_s=BY_ITSELF_WITHIN_S, what="the cluster to be whole", poll_s=2.0)
        return found
    # One that was suspended for longer than net_ticktime may stay parted from its peers: they were back when it looked.
    for name in silent(machines) or ["host2"]:
        machines.run(name, "pkill -KILL beam.smp; sleep 1; rabbitmq-server -detached")
    wait_until(whole, timeout_s=WHOLE_WITHIN_S, what="the cluster to be whole", poll_s=2.0)
    return found
