"""The compose file, brought up for real as people do by hand."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import httpx
import pika
import pytest
import yaml
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.sut import compose
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.sut.containers.engine_client import find_broker_image, find_image
from rabbitmq_resilience.sut.drivers import DEFAULT_VERSION
from rabbitmq_resilience.sut.machine.port_claims import default_root
from rabbitmq_resilience.tools import image_names as images
from rabbitmq_resilience.tools.waiting import wait_until
from tests.needs import skipped_without

pytestmark = pytest.mark.engine

FILE = Path(__file__).resolve().parent.parent.parent / compose.COMPOSE_FILE
TOPOLOGY = topology_catalogue.load(compose.DEFAULT_TOPOLOGY)
QUEUE = "by_hand"

#: The number of the last node, which is added to the ports of the first.
LAST = len(TOPOLOGY.nodes) - 1

#: Everything of this test is of this project, also what a run that was killed has left behind.
PROJECT = f"resilience-compose-test-{os.getuid()}"
MINE: dict[str, Any] = {"label": f"com.docker.compose.project={PROJECT}"}

UP_WITHIN_S = 900.0
DOWN_WITHIN_S = 300.0
#: Brokers answer, and are scraped, late on a busy machine.
SEEN_WITHIN_S = 300.0


@dataclass(frozen=True)
class ByHand:
    """The project: ``command`` is the compose that is here, ``address`` where its ports are published."""

    command: tuple[str, ...]
    environ: Mapping[str, str]
    address: str
    show: Callable[[str], None]

    def up(self, log: Path) -> None:
        """Returns when every broker is healthy; what compose says meanwhile is told as it comes."""
        with log.open("wb") as written:
            process = subprocess.Popen(self._line("up", "-d"), env=self.environ, stdout=written, stderr=written)
        told = 0

        def status() -> int | None:
            nonlocal told
            lines = log.read_text(errors="replace").splitlines()
            for line in lines[told:]:
                self.show(f"{'COMPOSE':<8} {line.strip()}")
            told = len(lines)
            return process.poll()

        try:
            wait_until(status, timeout_s=UP_WITHIN_S, poll_s=0.5, what="compose up", until=lambda s: s is not None)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, log.read_text(errors="replace")

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self._line(*arguments), env=self.environ, capture_output=True, text=True, check=False, timeout=DOWN_WITHIN_S
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def await_formed(self) -> None:
        whole = {compose.broker_name(node) for node in TOPOLOGY.node_names}
        with ManagementApi(f"http://{self.address}:{compose.PORTS.management + LAST}") as api:

            def running() -> set[str]:
                try:
                    return {node["name"] for node in api.nodes() if node["running"]}
                except (ApiError, ApiUnreachable):
                    return set()

            wait_until(running, timeout_s=SEEN_WITHIN_S, what="all nodes to run", until=lambda seen: seen == whole)

    def send(self, port: int, text: bytes) -> None:
        """Returns when the message is confirmed to be in the queue."""
        with self._channel(port) as channel:
            channel.confirm_delivery()
            channel.basic_publish("", QUEUE, text, pika.BasicProperties(delivery_mode=2), mandatory=True)

    def take(self, port: int) -> bytes:
        """The next message, waited for and acknowledged."""
        with self._channel(port) as channel:
            for method, _, body in channel.consume(QUEUE, inactivity_timeout=SEEN_WITHIN_S):
                assert method is not None, f"nothing came from {QUEUE}"
                channel.basic_ack(method.delivery_tag)
                return bytes(body)
        raise AssertionError(f"the consumer of {QUEUE} was cancelled")

    def scraped(self) -> set[str]:
        """The nodes whose own numbers Prometheus has."""
        url = f"http://{self.address}:{compose.PROMETHEUS_PORT}/api/v1/targets"
        try:
            targets = httpx.get(url, timeout=5, trust_env=False).json()["data"]["activeTargets"]
        except (httpx.HTTPError, ValueError):
            return set()
        return {t["labels"]["node"] for t in targets if t["labels"]["job"] == "nodes" and t["health"] == "up"}

    def enable_proxy(self, node: str, *, enabled: bool) -> None:
        url = f"http://{self.address}:{compose.TOXIPROXY_PORT}/proxies/{node}"
        httpx.post(url, json={"enabled": enabled}, timeout=10, trust_env=False).raise_for_status()

    def _line(self, *arguments: str) -> list[str]:
        return [*self.command, "-p", PROJECT, "-f", str(FILE), *arguments]

    @contextmanager
    def _channel(self, port: int) -> Iterator[BlockingChannel]:
        parameters = pika.ConnectionParameters(self.address, port, socket_timeout=SEEN_WITHIN_S)
        with closing(pika.BlockingConnection(parameters)) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
            yield channel


@pytest.fixture(scope="module")
def command() -> tuple[str, ...]:
    """Skips where there is neither the plugin nor the program."""
    for known in (("docker", "compose"), ("docker-compose",)):
        version = [*known, "version"]
        if shutil.which(known[0]) and subprocess.run(version, capture_output=True, check=False).returncode == 0:
            return known
    pytest.skip("there is neither `docker compose` (the plugin) nor `docker-compose`, such as the package of Debian")


@pytest.fixture(scope="module")
def environ(command: tuple[str, ...], engine: docker.DockerClient) -> dict[str, str]:  # noqa: ARG001 - without it none
    """The variables of the compose file, for images that can be had here."""
    with skipped_without():
        chosen = {
            "BROKER_IMAGE": find_broker_image(engine, DEFAULT_VERSION).name,
            "TOXIPROXY_IMAGE": find_image(engine, images.TOXIPROXY),
            "PROMETHEUS_IMAGE": find_image(engine, images.PROMETHEUS),
        }
    return {**os.environ, **chosen, "ERLANG_COOKIE": secrets.token_hex(20), "PUBLISH_ON": free_address()}


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """Nobody else on this machine plays this project."""
    with (default_root() / "compose.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def by_hand(
    command: tuple[str, ...],
    engine: docker.DockerClient,
    environ: dict[str, str],
    alone: None,  # noqa: ARG001 - held meanwhile
    show: Callable[[str], None],
) -> Iterator[ByHand]:
    made = ByHand(command, environ, environ["PUBLISH_ON"], show)
    made.run("down", "--volumes", "--remove-orphans", "--timeout", "5")
    try:
        yield made
    finally:
        made.run("down", "--volumes", "--remove-orphans", "--timeout", "5")
    left = [engine.containers.list(all=True, filters=MINE), engine.networks.list(filters=MINE)]
    assert [*left, engine.volumes.list(filters=MINE)] == [[], [], []]


def free_address() -> str:
    """A loopback address on which all that is published is free; there are many of them on Linux."""
    services = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"].values()
    ports = [int(port.split(":")[-2]) for service in services for port in service["ports"]]
    addresses = [f"127.0.0.{last}" for last in range(1, 20)]
    found = next((address for address in addresses if all(is_free(address, port) for port in ports)), None)
    return found or pytest.skip(f"somebody listens on one of the ports {ports} on every address from {addresses[0]} on")


def is_free(address: str, port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def test_a_message_goes_in_through_toxiproxy_and_out_at_another_node(by_hand: ByHand, tmp_path: Path) -> None:
    first, last = TOPOLOGY.node_names[0], TOPOLOGY.node_names[LAST]
    text, other = b"through the proxy", b"to the node itself"
    by_hand.up(tmp_path / "up.log")
    by_hand.await_formed()

    by_hand.send(compose.PROXIED_AMQP_PORT, text)
    assert by_hand.take(compose.PORTS.amqp + LAST) == text

    by_hand.enable_proxy(first, enabled=False)
    with pytest.raises(AMQPConnectionError):
        by_hand.send(compose.PROXIED_AMQP_PORT, text)
    by_hand.send(compose.PORTS.amqp, other)
    by_hand.enable_proxy(first, enabled=True)

    told = by_hand.run("exec", "-T", last, "rabbitmqctl", "eval", "net_kernel:get_net_ticktime().")
    assert told.split() == [str(TOPOLOGY.net_ticktime_s)]
    nodes = set(TOPOLOGY.node_names)
    wait_until(
        by_hand.scraped, timeout_s=SEEN_WITHIN_S, what="all nodes to be scraped", until=lambda seen: seen == nodes
    )

    by_hand.run("kill")  # all at once: none of them may then wait for one that compose starts after it
    by_hand.up(tmp_path / "again.log")
    by_hand.await_formed()
    assert by_hand.take(compose.PROXIED_AMQP_PORT) == other
