"""A tap between clients and a real broker: what rules do, and what is recorded."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ConnectionClosedByBroker

from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tap.method_rules import MethodRule
from rabbitmq_resilience.tap.run_certificates import RunAuthority
from rabbitmq_resilience.tap.tap import Certificate, Tap
from rabbitmq_resilience.tools.waiting import wait_until
from tests.needs import skipped_without
from tests.tap.frames import content, frame
from tests.tap.raw_client import RawClient
from tests.tap.records import events, kinds, only, rows, said
from tests.tap.reference.amqp_grammar import arguments

pytestmark = pytest.mark.core

NODE = "a1"
#: Within this a broker starts, or a tap records, on a busy machine.
WITHIN_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with skipped_without():
        formed = LocalCluster.form(
            Topology(name="tapped", zones={"a": 1}, partition_handling="ignore"), timeout_s=5 * WITHIN_S
        )
    with formed as cluster:
        yield cluster


@pytest.fixture
def tap(tmp_path: Path) -> Iterator[Tap]:
    with Tap(tmp_path) as tap:
        yield tap


@pytest.fixture
def port(tap: Tap, cluster: LocalCluster) -> int:
    if cluster.process(NODE) == "gone":  # a test before ended early
        cluster.start(NODE)
        cluster.await_formed(timeout_s=WITHIN_S)
    return tap.listen("app", NODE, cluster.amqp_endpoint(NODE))


def parameters(port: int, access: Access | None = None, tls_name: str = "") -> pika.ConnectionParameters:
    given = (access or Access()).parameters(Endpoint("127.0.0.1", port, tls_name))
    return pika.ConnectionParameters(**given, socket_timeout=60, blocked_connection_timeout=60)


def test_a_held_reply_keeps_its_channel_back_and_no_other(tap: Tap, port: int, tmp_path: Path) -> None:
    """The order within the channel is kept, and both sides hear each other's heartbeats meanwhile."""
    with RawClient(port, heartbeat_s=1).log_in() as client:
        for channel in (1, 2):
            client.open(channel)
        client.say(1, "queue.declare", queue="held", auto_delete=True)
        client.expect("queue.declare-ok", 1)
        client.publish(1, "held", b"waits")
        client.say(2, "confirm.select")
        client.expect("confirm.select-ok", 2)
        tap.add_rule(MethodRule(method="basic.consume-ok", treatment="hold", for_s=4))
        client.say(1, "basic.consume", queue="held", tag="c", no_ack=True)
        client.say(1, "queue.declare", queue="held", passive=True)
        heard: list[str] = []
        begun_s, confirmed = time.monotonic(), 0
        while not heard or heard[-1] != "queue.declare-ok":
            frame_of_broker = client.next()
            if frame_of_broker.name == "alive":
                client.alive()
                client.publish(2, "nowhere", b"x")
            elif frame_of_broker.channel == 2:
                confirmed += not heard
            else:
                heard.append(frame_of_broker.name)
                assert time.monotonic() - begun_s >= 4
        assert heard == ["basic.consume-ok", "basic.deliver", "header", "body", "queue.declare-ok"]
        assert confirmed >= 2
    tap.close()
    assert said(tmp_path).count("held") == said(tmp_path).count("let go") == 1
    assert "silent" not in said(tmp_path)
    (delivered,) = [row for row in rows(tmp_path) if row["place"] == "held"]
    assert (delivered["mode"], delivered["tag"]) == (3, 1)


def test_a_dropped_confirm_goes_missing_alone(tap: Tap, port: int, tmp_path: Path) -> None:
    rule = tap.add_rule(MethodRule(method="confirms", treatment="drop"))
    with RawClient(port).log_in() as client:
        client.open(1)
        client.say(1, "confirm.select")
        client.expect("confirm.select-ok", 1)
        client.publish(1, "nowhere", b"first")
        wait_until(lambda: tap.met(rule) == 1, timeout_s=WITHIN_S, what="the confirm to be dropped")
        client.publish(1, "nowhere", b"second")
        assert client.expect("basic.ack", 1).fields == {"delivery": 2, "multiple": False}
    tap.close()
    assert kinds(tmp_path) == ["PUBLISHED", "PUBLISHED", "CONFIRMED"]
    assert [row["tag"] for row in rows(tmp_path)] == [1, 2, 2]


def test_errors_close_a_channel_and_a_connection(tap: Tap, port: int, tmp_path: Path) -> None:
    tap.add_rule(MethodRule(method="queue.declare", treatment="answer", code=404, text="NOT_FOUND - gone"))
    connection = pika.BlockingConnection(parameters(port))
    channel = connection.channel(3)
    with pytest.raises(ChannelClosedByBroker, match="gone"):
        channel.queue_declare("answered", exclusive=True)
    again = connection.channel(3)
    assert again.queue_declare("answered", exclusive=True).method.queue == "answered"
    tap.add_rule(MethodRule(method="basic.publish", treatment="answer", code=541, text="INTERNAL_ERROR"))
    again.basic_publish("", "answered", b"x")
    with pytest.raises(ConnectionClosedByBroker, match="INTERNAL_ERROR"):
        again.queue_declare("answered", passive=True)
    wait_until(lambda: tap.state()["connections"]["app@a1"] == 0, timeout_s=WITHIN_S, what="its end")
    with pika.BlockingConnection(parameters(port)) as other:
        other.channel().queue_declare("answered", exclusive=True)
    tap.close()
    assert said(tmp_path).count("answered") == 2
    closed = [event.fields for event in events(tmp_path) if event.what == "channel_closed"]
    assert [(each["code"], each["method"]) for each in closed if each["by"] == "broker"] == [(404, "queue.declare")]
    assert [e.fields["code"] for e in events(tmp_path) if e.what == "connection_closed"] == [541, 200]


def test_a_rule_is_for_its_process_only(tap: Tap, port: int, cluster: LocalCluster) -> None:
    other = tap.listen("other", NODE, cluster.amqp_endpoint(NODE))
    tap.add_rule(MethodRule(method="basic.qos", treatment="answer", code=403, processes=["other"]))
    with pika.BlockingConnection(parameters(port)) as connection:
        connection.channel().basic_qos(prefetch_count=3)
    with pika.BlockingConnection(parameters(other)) as connection, pytest.raises(ChannelClosedByBroker):
        connection.channel().basic_qos(prefetch_count=3)


def test_clients_of_a_killed_broker_are_refused_until_it_serves_again(
    tap: Tap, port: int, cluster: LocalCluster, tmp_path: Path
) -> None:
    connection = pika.BlockingConnection(parameters(port))
    cluster.kill(NODE)
    with pytest.raises(AMQPConnectionError):
        connection.channel()

    def refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 10).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # it came while the tap stopped listening
            pass
        return False

    wait_until(refused, timeout_s=WITHIN_S, what="connections to be refused")
    cluster.start(NODE)
    cluster.await_formed(timeout_s=WITHIN_S)
    wait_until(lambda: not refused(), timeout_s=WITHIN_S, what="connections to be accepted")
    pika.BlockingConnection(parameters(port)).close()
    tap.close()
    lost = next(event for event in events(tmp_path) if event.what == "lost")
    assert (lost.connection, lost.fields["by"]) == (0, "broker")
    assert "refused" in said(tmp_path)
    assert said(tmp_path).count("connected") == 2


def test_clients_and_brokers_may_speak_tls(tap: Tap, cluster: LocalCluster, tmp_path: Path) -> None:
    """A client of TLS meets the tap, and the tap meets a server of TLS: another listener of its own."""
    authority, ca, pair = RunAuthority(), tmp_path / "ca.pem", tmp_path / "tap.pem"
    ca.write_text(authority.certificate, encoding="utf-8")
    pair.write_text(authority.for_addresses("127.0.0.1"), encoding="utf-8")
    secure = tap.listen("secure", NODE, cluster.amqp_endpoint(NODE), certificate=Certificate(pair, pair))
    onward = tap.listen("onward", NODE, Endpoint("127.0.0.1", secure, "127.0.0.1"), ca=str(ca))
    stranger = tap.listen("stranger", NODE, Endpoint("127.0.0.1", secure, "example.org"), ca=str(ca))
    body = bytes(range(256)) * 2000
    for place in (parameters(secure, Access(ca=str(ca)), "127.0.0.1"), parameters(onward)):
        with pika.BlockingConnection(place) as connection:
            channel = connection.channel()
            channel.queue_declare("secure", exclusive=True)
            channel.basic_publish("", "secure", body)
            assert channel.basic_get("secure", auto_ack=True)[2] == body
    with pytest.raises(AMQPConnectionError):
        pika.BlockingConnection(parameters(stranger))
    with RawClientRefused(secure) as answer:
        assert b"AMQP" not in answer
    wait_until(lambda: set(tap.state()["connections"].values()) == {0}, timeout_s=WITHIN_S, what="no connection")
    tap.close()
    assert kinds(tmp_path) == ["PUBLISHED", "GOT"] + ["PUBLISHED"] * 2 + ["GOT"] * 2
    assert len({row["body"] for row in rows(tmp_path)}) == len({row["identity"] for row in rows(tmp_path)}) == 1


class RawClientRefused:
    """What a plain client gets from a listener of TLS."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)

    def __enter__(self) -> bytes:
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        try:
            return self._socket.recv(1000)
        except ConnectionError:
            return b""

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def test_a_connection_that_ends_in_a_frame_is_recorded_as_cut_short(tap: Tap, port: int, tmp_path: Path) -> None:
    client = RawClient(port).log_in()
    client.open(1)
    client.say(1, "basic.publish", key="nowhere")
    client.send(b"".join(content(1, b"never whole"))[:-5])
    client.close()
    wait_until(lambda: tap.state()["connections"]["app@a1"] == 0, timeout_s=WITHIN_S, what="its end")
    tap.close()
    assert only(tmp_path, "lost").fields["by"] == "client"
    assert only(tmp_path, "cut_short").fields["sender"] == "client"
    assert kinds(tmp_path) == []


def blocks(client: RawClient) -> bool:
    """Publish, and return whether the broker says that it blocks the connection: it checks its memory now and then."""
    client.publish(1, "nowhere", b"x")
    client.socket.settimeout(1)
    try:
        return client.expect("connection.blocked") is not None
    except TimeoutError:
        return False
    finally:
        client.socket.settimeout(WITHIN_S)


def test_an_alarm_of_the_broker_is_recorded(tap: Tap, port: int, cluster: LocalCluster, tmp_path: Path) -> None:
    with RawClient(port).log_in() as client:
        client.open(1)
        cluster.run_tool(NODE, "rabbitmqctl", "set_vm_memory_high_watermark", "0.000001", timeout_s=5 * WITHIN_S)
        try:
            wait_until(partial(blocks, client), timeout_s=WITHIN_S, what="the broker to block a publisher")
        finally:
            cluster.run_tool(NODE, "rabbitmqctl", "set_vm_memory_high_watermark", "0.4", timeout_s=5 * WITHIN_S)
        client.expect("connection.unblocked")
    tap.close()
    assert "memory" in str(only(tmp_path, "blocked").fields["detail"])
    assert "unblocked" in said(tmp_path)


@pytest.mark.parametrize(
    ("spoken", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", (b"AMQP\x00\x00\x09\x01", "begin with the byte 0x47")),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (b"AMQP\x00\x00\x09\x01", "begin with the byte 0x16")),
        (b"AMQP\x03\x01\x00\x00", (b"AMQP", "another protocol than AMQP 0-9-1 (03 01 00 00)")),
    ],
)
def test_another_protocol_passes_and_is_unreadable(
    tap: Tap, port: int, tmp_path: Path, spoken: bytes, answer: tuple[bytes, str]
) -> None:
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(spoken)
        assert client.recv(100).startswith(answer[0])
    tap.close()
    assert answer[1] in str(only(tmp_path, "unreadable").fields["detail"])


def test_no_name_is_mistaken_and_no_tag_is_lost(tap: Tap, port: int, tmp_path: Path) -> None:
    """Publishes follow confirm.select at once, a consumer has no tag of its own, and channel 1 is used again."""
    with RawClient(port).log_in() as client:
        client.open(1)
        client.say(1, "queue.declare", exclusive=True)
        client.say(1, "basic.consume", no_ack=True)
        client.say(1, "basic.qos", count=7)
        client.say(1, "confirm.select", nowait=True)
        for body in (b"", b"x" * 300_000):
            client.say(1, "basic.publish", key="unroutable", mandatory=True)
            client.send(b"".join(content(1, body, pieces=4)))
        names: list[str] = []
        while (last := client.next()).name != "basic.ack" or last.fields["delivery"] != 2:
            names.append(last.name)
        assert names.count("basic.return") == 2
        if "basic.consume-ok" not in names:  # the queue sends it, after other replies perhaps
            client.expect("basic.consume-ok", 1)
        client.say(1, "channel.close", code=200)
        client.expect("channel.close-ok", 1)
        client.open(1)
        client.say(1, "queue.declare", queue="of the second", exclusive=True)
        client.expect("queue.declare-ok", 1)
        client.say(1, "basic.get")
        client.expect("basic.get-empty", 1)
        client.say(1, "tx.select")
        client.publish(1, "of the second", b"rolled back")
        client.say(1, "tx.rollback")
        client.publish(1, "of the second", b"committed")
        client.say(1, "tx.commit")
        for reply in ("tx.select-ok", "tx.rollback-ok", "tx.commit-ok"):  # a broker takes nothing during a commit
            client.expect(reply, 1)
        client.say(1, "basic.get")
        assert [client.next().name for _ in range(3)] == ["basic.get-ok", "header", "body"]
        client.say(1, "basic.ack", delivery=0, multiple=True)
        client.say(1, "tx.commit")
        client.expect("tx.commit-ok", 1)
        client.send(frame(1, 0, arguments("connection.close", code=200)))
        client.expect("connection.close-ok")
    tap.close()
    found = [row for row in rows(tmp_path) if row["session"] == 0]
    published = [(row["tag"], row["size_bytes"]) for row in found if row["kind"] == 0]
    returned = [row["size_bytes"] for row in found if row["kind"] == 3]
    assert (published, returned) == ([(1, 0), (2, 300_000)], [0, 300_000])
    assert max(row["tag"] for row in found if row["kind"] == 1) == 2
    consuming = only(tmp_path, "consuming").fields
    assert (consuming["queue"][:8], consuming["consumer"][:9]) == ("amq.gen-", "amq.ctag-")
    later = [row for row in rows(tmp_path) if row["session"] == 1]
    ends = [(row["kind"], row["tag"]) for row in later if row["kind"] in {0, 8, 9}]
    assert sorted(ends) == [(0, 1), (0, 2), (8, 2), (8, 2), (9, 1)]  # the rollback has the first, the commit the second
    assert [(row["kind"], row["place"]) for row in later if row["kind"] in {5, 6}] == [(5, "of the second"), (6, "")]
