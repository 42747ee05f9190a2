"""The disk and the clock that a node can be given, in real containers without a broker."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from rabbitmq_resilience.sut.containers.clocks import LIBRARY, NodeClock
from rabbitmq_resilience.sut.containers.disks import VolumeDisk
from rabbitmq_resilience.sut.containers.engine_client import CLUSTER_LABEL, USER, BrokerImage, has_file, remove_all_of
from rabbitmq_resilience.tools.waiting import wait_until

pytestmark = pytest.mark.engine

SIZE_BYTES = 32 * 2**20
HOUR_S = 3600
#: Prints how far its real time and Erlang's own are ahead of the start, and its monotonic time, for ever.
_TELL = """
Tell = fun(Again) ->
    Now = [os:system_time(second), erlang:system_time(second), erlang:monotonic_time(second)],
    io:format("~p ~p ~p~n", Now), timer:sleep(500), Again(Again)
end, Tell(Tell).
"""


@pytest.fixture
def cluster(tmp_path: Path, engine: docker.DockerClient) -> Iterator[Path]:
    """The folder by which containers and volumes are known; nothing of it is left."""
    yield tmp_path
    remove_all_of(tmp_path)
    mine: dict[str, Any] = {"label": f"{CLUSTER_LABEL}={tmp_path}"}
    assert engine.volumes.list(filters=mine) == []
    assert engine.containers.list(all=True, filters=mine) == []


def test_a_disk_takes_nothing_when_it_is_full_and_keeps_what_a_dead_container_wrote(
    engine: docker.DockerClient, engine_image: BrokerImage, cluster: Path
) -> None:
    name = f"{cluster.name}-{os.getpid()}"
    disk = VolumeDisk(engine, engine_image.name, name, size_bytes=SIZE_BYTES, labels={CLUSTER_LABEL: str(cluster)})
    assert disk.free_bytes() == SIZE_BYTES

    mounts = {str(cluster): {"bind": "/cluster", "mode": "rw"}, name: {"bind": "/cluster/data", "mode": "rw"}}

    def beside(script: str) -> None:
        command: dict[str, Any] = {"entrypoint": [], "remove": True, "user": USER, "network_mode": "none"}
        engine.containers.run(engine_image.name, ["sh", "-c", script], volumes=mounts, **command)

    beside("printf stored > /cluster/data/file; head -c 1000000 /dev/zero > /cluster/data/old")
    assert disk.stored_bytes() == len("stored") + 1_000_000

    disk.fill()
    wait_until(lambda: not disk.takes(), timeout_s=60, what="the disk to be full")
    assert disk.free_bytes() == 0
    beside("rm /cluster/data/old")  # as brokers do with what they need no more
    wait_until(lambda: disk.free_bytes() == 0, timeout_s=60, what="the disk to be full again")
    disk.empty()
    disk.empty()
    assert disk.takes()
    assert disk.stored_bytes() == len("stored")
    disk.wipe()
    assert disk.free_bytes() == SIZE_BYTES


def test_real_time_jumps_both_ways_and_monotonic_time_does_not(
    engine: docker.DockerClient, engine_image: BrokerImage, cluster: Path
) -> None:
    if not has_file(engine, engine_image.name, LIBRARY):
        pytest.skip(f"{engine_image.name} has no {LIBRARY}")
    clock = NodeClock(cluster / "a1.clock")
    running = engine.containers.run(
        engine_image.name,
        ["erl", "-noinput", "-eval", _TELL],
        entrypoint=[],
        detach=True,
        environment=dict(clock.environ),
        labels={CLUSTER_LABEL: str(cluster)},
        network_mode="none",
        user=USER,
        volumes={str(cluster): {"bind": str(cluster), "mode": "rw"}},
    )

    def ahead() -> tuple[int, int, int] | None:
        """Of real time, of Erlang's own, and of monotonic time, by the last line."""
        lines = [line.split() for line in bytes(running.logs()).decode().splitlines()]
        if not lines:
            return None
        system_s, erlang_s, monotonic_s = map(int, lines[-1])
        now_s = round(time.time())
        return system_s - now_s, erlang_s - now_s, monotonic_s - int(lines[0][2])

    def await_ahead(seconds_s: int) -> tuple[int, int, int]:
        seen = wait_until(
            ahead,
            timeout_s=120,
            poll_s=0.5,
            what=f"a clock that is {seconds_s} s ahead",
            until=lambda seen: seen is not None and abs(seen[0] - seconds_s) < HOUR_S / 10,
        )
        assert seen is not None
        return seen

    await_ahead(0)
    clock.turn(by_s=HOUR_S)
    _, erlang_s, monotonic_s = await_ahead(HOUR_S)
    assert erlang_s < HOUR_S / 2, "Erlang lets its own time follow slowly"
    assert 0 <= monotonic_s < HOUR_S / 2
    clock.turn(by_s=-2 * HOUR_S)
    _, erlang_s, monotonic_s = await_ahead(-HOUR_S)
    assert erlang_s > -HOUR_S / 2
    assert 0 <= monotonic_s < HOUR_S / 2
