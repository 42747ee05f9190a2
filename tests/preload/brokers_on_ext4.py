"""Cut the power of a cluster whose files lie on an ext4 of its own, and say what that left of confirmed messages.

python -m tests.preload.brokers_on_ext4 --broker HOME --queue-type quorum --for-s 10

The preloaded library has no part in it. Three brokers keep all their files on an ext4 in a file. Three queues are
declared, and messages confirmed until the file system is shut down, so that nothing reaches the file any more. Then
all brokers are killed, a copy of the file is mounted in its place, and they start. It needs root, loop devices,
``mkfs.ext4`` and 1.5 GB in FOLDER, so it is no test.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pika
from pika.exceptions import AMQPError

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.distributions import find_broker
from rabbitmq_resilience.tools.waiting import WaitTimeout, let_pass, wait_until
from rabbitmq_resilience.workload.queues import declare
from rabbitmq_resilience.workload.workload_model import Workload

_IMAGE_BYTES = 1_500_000_000
#: A new cluster still writes files of its own, which are to be on the disk before queues are declared.
_FORMED_S = 15.0
#: So long after each round of messages, so that the brokers' queues do not grow.
_PAUSE_S = 0.01
_BACK_WITHIN_S = 90.0
_VHOST = "on_ext4"
#: FS_IOC_SHUTDOWN, without flushing the journal first (linux/fs.h and fs/ext4/ext4.h).
_SHUTDOWN = 0x8004587D
_WITHOUT_JOURNAL = 2
_CANARY = b"x" * 5000


def connected(cluster: LocalCluster) -> pika.BlockingConnection:
    at, access = cluster.amqp_endpoint("a1"), cluster.access
    login = pika.PlainCredentials(access.user, access.password)
    return pika.BlockingConnection(pika.ConnectionParameters(at.host, at.port, _VHOST, login))


def confirm(cluster: LocalCluster, queues: Sequence[str], *, for_s: float) -> Mapping[str, int]:
    """Publish to all queues in turn; return how many messages of each were confirmed."""
    confirmed = dict.fromkeys(queues, 0)
    channel = connected(cluster).channel()
    channel.confirm_delivery()
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        for queue in queues:
            channel.basic_publish("", queue, bytes(1000), pika.BasicProperties(delivery_mode=2), mandatory=True)
            confirmed[queue] += 1
        let_pass(_PAUSE_S)
    return confirmed


def count(cluster: LocalCluster, queue: str) -> int | None:
    """Return how many messages wait in a queue; None if the broker does not say."""
    try:
        connection = connected(cluster)
        answer = connection.channel().queue_declare(queue, passive=True)
        connection.close()
    except (AMQPError, OSError):
        return None
    waiting = answer.method.message_count
    assert isinstance(waiting, int)
    return waiting


def left_in(cluster: LocalCluster, queues: Sequence[str]) -> Mapping[str, int | None]:
    """Return how many messages each queue has, as soon as the broker says it of all, or after a time."""
    found: dict[str, int | None] = dict.fromkeys(queues)

    def look() -> Mapping[str, int | None]:
        found.update({queue: count(cluster, queue) for queue in queues})
        return found

    with suppress(WaitTimeout):
        wait_until(look, timeout_s=_BACK_WITHIN_S, what="an answer of each queue", poll_s=3.0, until=_is_known)
    return found


def _is_known(found: Mapping[str, int | None]) -> bool:
    return None not in found.values()


def cut(cluster: LocalCluster, image: Path, copy: Path, mounted: Path) -> None:
    """Let nothing reach the file system any more, kill all brokers, and mount a copy of it in its place."""
    folder = os.open(mounted, os.O_RDONLY)
    fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_JOURNAL))
    os.close(folder)
    for node in cluster.topology.node_names:
        cluster.kill(node)
    subprocess.run(["cp", "--sparse=always", image, copy], check=True)
    subprocess.run(["umount", "--lazy", mounted], check=True)
    subprocess.run(["mount", "-o", "loop", copy, mounted], check=True)


def is_there(canary: Path) -> bool:
    """Return whether the content of a file is on the disk."""
    return canary.exists() and canary.read_bytes() == _CANARY


def play(home: Path | None, queue_type: str, for_s: float, folder: Path) -> str:
    image, copy, mounted = folder / "image", folder / "copy", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mounted], check=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(mounted)
    broker = find_broker(home)
    topology = Topology(name="on_ext4", zones={"a": 1, "b": 1, "c": 1})
    try:
        with LocalCluster.form(topology, broker=broker) as cluster:
            let_pass(_FORMED_S)
            os.sync()
            workload = Workload(queue_type=queue_type, queues=3, publishers=3, consumers=3, rate_per_s=100)
            queues = [*declare(cluster, workload, vhost=_VHOST)]
            early, late = mounted / "early", mounted / "late"
            early.write_bytes(_CANARY)
            confirmed = confirm(cluster, queues, for_s=for_s)
            late.write_bytes(_CANARY)
            cut(cluster, image, copy, mounted)
            if is_there(late):
                raise SystemExit("the cut took nothing: what was written just before it is there")
            written_back = is_there(early)
            for node in cluster.topology.node_names:
                cluster.start(node)
            left = left_in(cluster, queues)
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)
    what = "written back" if written_back else "in memory only"
    return (
        f"RabbitMQ {broker.version}, {queue_type}, {for_s:g} s: confirmed {confirmed}, left {left}; "
        f"what was written as the first message was sent was {what}"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", type=Path, help="the home of RabbitMQ (the one that set-up has unpacked)")
    parser.add_argument("--queue-type", default="quorum")
    parser.add_argument("--for-s", type=float, default=10.0, help="how long messages are published")
    parser.add_argument("--folder", type=Path, help="where the file system lies (the system's temporary folder)")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        print(play(asked.broker, asked.queue_type, asked.for_s, Path(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
