"""The processes of a tap: what they leave, how they end, and that not a byte is lost or reordered on the way."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rabbitmq_resilience.history.history import END_OF_STREAM
from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.tap.method_rules import MethodRule
from rabbitmq_resilience.tap.tap import Tap, TapError
from rabbitmq_resilience.tap.wire_history import WIRE_FILE
from rabbitmq_resilience.tools.waiting import wait_until
from tests.tap.frames import ALIVE, PROTOCOL, content, cut, frame
from tests.tap.peers import WITHIN_S, Peer, connected, echo, received
from tests.tap.records import events, kinds, said
from tests.tap.reference.amqp_grammar import arguments

_OWNER = """
import sys, time
from pathlib import Path
from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.tap.tap import Tap
tap = Tap(Path(sys.argv[1]))
print(tap.pid, tap.listen("app", "a1", Endpoint("127.0.0.1", int(sys.argv[2]))), flush=True)
sys.stdin.read()
"""


def recorder_of(tap_pid: int) -> psutil.Process:
    (recorder,) = psutil.Process(tap_pid).children()
    return recorder


@pytest.fixture
def echoing() -> Iterator[Peer]:
    with Peer(echo) as peer:
        yield peer


@pytest.mark.core
def test_the_end_of_the_owner_ends_a_tap_and_its_recorder(tmp_path: Path, echoing: Peer) -> None:
    command = [sys.executable, "-c", _OWNER, str(tmp_path), str(echoing.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pid, port = map(int, owner.stdout.readline().split())
        tap = psutil.Process(pid)
        processes = [tap, recorder_of(pid)]
        with connected(port) as client:
            client.sendall(PROTOCOL + ALIVE)
            assert received(client, 16) == PROTOCOL + ALIVE
            owner.kill()
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
    gone, left = psutil.wait_procs(processes, timeout=WITHIN_S)
    assert (len(gone), left) == (2, [])
    assert said(tmp_path) == ["opened", "closed"]
    assert (tmp_path / WIRE_FILE).read_bytes().endswith(END_OF_STREAM)


@pytest.mark.core
def test_a_killed_tap_leaves_what_it_recorded(tmp_path: Path, echoing: Peer) -> None:
    tap = Tap(tmp_path)
    port = tap.listen("app", "a1", Endpoint("127.0.0.1", echoing.port))
    recorder = recorder_of(tap.pid)
    with connected(port) as client:
        sent = PROTOCOL + frame(1, 1, arguments("channel.open")) + frame(1, 1, arguments("basic.publish", key="k"))
        client.sendall(sent + b"".join(content(1, b"body")))
        received(client, len(sent))
        wait_until(lambda: tap.state()["waiting_bytes"] == 0, timeout_s=WITHIN_S, what="copies to be read")
        os.kill(tap.pid, signal.SIGKILL)
        assert psutil.wait_procs([recorder], timeout=WITHIN_S)[1] == []
    # The echo is what the client got as well: a broker does not publish, but it is recorded all the same.
    assert kinds(tmp_path)[0] == "PUBLISHED"
    assert said(tmp_path)[:2] == ["opened", "channel_opened"]
    with pytest.raises(TapError, match="ended"):
        tap.check()
    with pytest.raises(TapError, match="status -9"):
        tap.close()


@pytest.mark.core
def test_the_end_of_a_recorder_is_noticed_while_bytes_go_on(tmp_path: Path, echoing: Peer) -> None:
    tap = Tap(tmp_path)
    port = tap.listen("app", "a1", Endpoint("127.0.0.1", echoing.port))
    tap.check()
    with connected(port) as client:
        client.sendall(PROTOCOL)
        received(client, 8)
        recorder_of(tap.pid).kill()
        wait_until(lambda: not tap.state()["recording"], timeout_s=WITHIN_S, what="the tap to notice")
        with pytest.raises(TapError, match="by itself"):
            tap.check()
        for _ in range(20):
            client.sendall(ALIVE * 1000)
            assert received(client, 8000) == ALIVE * 1000
    with pytest.raises(TapError, match="not whole"):
        tap.close()


@pytest.mark.core
def test_orders_that_cannot_be_done_are_refused(tmp_path: Path) -> None:
    with Tap(tmp_path) as tap:
        with pytest.raises(TapError, match="IndexError"):
            tap.end_rule(4)
        with pytest.raises(TapError, match="listen"):
            tap.listen("app", "a1", Endpoint("127.0.0.1", 1), bind="192.0.2.1")
        rule = tap.add_rule(MethodRule(method="confirms", treatment="drop"))
        assert (tap.met(rule), tap.end_rule(rule)) == (0, 0)


@pytest.mark.core
def test_no_byte_of_many_connections_is_lost_or_moved(tmp_path: Path, echoing: Peer) -> None:
    """Frames come in pieces that split them everywhere, for 200 connections at once, while a rule is in effect."""
    chance = random.Random(1)  # noqa: S311 - it draws bytes
    sent = [
        PROTOCOL + b"".join(frame(3, 1, chance.randbytes(chance.randrange(300))) for _ in range(20)) for _ in range(200)
    ]
    with Tap(tmp_path) as tap:
        port = tap.listen("app", "a1", Endpoint("127.0.0.1", echoing.port))
        tap.add_rule(MethodRule(method="basic.publish", treatment="drop", times=None))
        clients = [connected(port) for _ in sent]
        pieces = [iter(cut(data, [chance.randrange(9000) for _ in range(8)])) for data in sent]
        left = list(range(len(sent)))
        while left:
            number = chance.choice(left)
            if (piece := next(pieces[number], None)) is None:
                left.remove(number)
                clients[number].shutdown(socket.SHUT_WR)
            else:
                clients[number].sendall(piece)
        for client, data in zip(clients, sent, strict=True):
            assert received(client, len(data) + 1) == data
            client.close()
    assert said(tmp_path).count("opened") == said(tmp_path).count("closed") == 200
    assert len({event.connection for event in events(tmp_path)}) == 200


def frames_of(chance: random.Random, size: int) -> bytes:
    """Return at least as many bytes of frames."""
    made, length = [], 0
    while length < size:
        made.append(frame(3, chance.randrange(3), chance.randbytes(chance.choice([0, 1, 100, 4_000, 130_000]))))
        length += len(made[-1])
    return b"".join(made)


def carry(folder: Path, *, blocks: int) -> int:
    """Send ``blocks`` times 8 MB in odd pieces through a tap to an echo, and read them slowly at first. Assert that the
    same bytes come back. Return the largest resident memory of the forwarding process in bytes."""
    block = frames_of(random.Random(2), 8 << 20)  # noqa: S311 - it draws bytes
    expected, found, memory = hashlib.blake2b(), hashlib.blake2b(), 0
    with Peer(echo) as peer, Tap(folder) as tap:
        port = tap.listen("app", "a1", Endpoint("127.0.0.1", peer.port))
        process = psutil.Process(tap.pid)
        with connected(port) as client:
            sending = threading.Thread(target=send_all, args=(client, block, blocks))
            sending.start()
            for _ in range(blocks):
                expected.update(block)
            # Until nothing moves any more, as all buffers on the way are full.
            before = -1
            while (sent := process.io_counters().write_chars) != before:
                before = sent
                with suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
                    process.wait(0.5)
            memory, left = process.memory_info().rss, blocks * len(block)
            while left and (data := client.recv(min(left, 77_777))):
                found.update(data)
                left -= len(data)
            sending.join()
            memory = max(memory, process.memory_info().rss)
    assert found.digest() == expected.digest()
    return memory


def send_all(client: socket.socket, block: bytes, blocks: int) -> None:
    for _ in range(blocks):
        for at in range(0, len(block), 99_991):
            client.sendall(block[at : at + 99_991])


@pytest.mark.core
def test_a_slow_reader_stops_its_sender(tmp_path: Path) -> None:
    assert carry(tmp_path, blocks=6) < 200 << 20


@pytest.mark.generated
def test_a_gigabyte_arrives_unchanged(tmp_path: Path) -> None:
    """The copies may wait in memory, up to their bound, while the recorder is busy."""
    assert carry(tmp_path, blocks=128) < 500 << 20
