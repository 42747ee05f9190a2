"""Measure what a tap adds to the time of a confirm, compared with a direct connection and with Toxiproxy.

One client publishes messages of 1 KB at a fixed rate to ``benchmarks.confirming_sink``, which confirms each at once; so
the time of a broker is not part of it. The three ways are taken in turn, in rounds. A message's time runs from when it
was due until its confirm is read. Processor time is that of the client and the sink, of the forwarding process, of the
recorder, and of Toxiproxy. The machine's processors must have time left, or the numbers are those of a queue for them.
The speed of finding the borders of frames is measured as well, without sockets.

    .venv/bin/python -m benchmarks.tapped_latency [--rate 5000] [--seconds 10] [--rounds 3]
"""

from __future__ import annotations

import argparse
import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from pika import frame, spec

from benchmarks.confirming_sink import sink
from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK, take_claim
from rabbitmq_resilience.sut.machine.reaper import Reaper
from rabbitmq_resilience.sut.network.toxiproxy import Call, ToxiproxyServer
from rabbitmq_resilience.sut.processes.process_cluster import LocalHost
from rabbitmq_resilience.tap.frame_stream import FrameStream
from rabbitmq_resilience.tap.tap import Tap

BODY_BYTES = 1_000
#: Messages at the beginning of a round that do not count.
WARM_UP_S = 1.0
_RECEIVE_BYTES = 1 << 16
_WITHIN_S = 60.0


@dataclass
class Way:
    """One way to the echo. ``processes``: by name those whose processor time counts."""

    port: int
    processes: Mapping[str, psutil.Process] = field(default_factory=dict)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)


def method(channel: int, what: object) -> bytes:
    return bytes(frame.Method(channel, what).marshal())


MESSAGE = (
    method(1, spec.Basic.Publish(exchange="", routing_key="measured"))
    + bytes(frame.Header(1, BODY_BYTES, spec.BasicProperties(delivery_mode=2)).marshal())
    + bytes(frame.Body(1, bytes(BODY_BYTES)).marshal())
)


def await_method(peer: socket.socket, wanted: type, rest: bytearray) -> None:
    while True:
        taken, found = frame.decode_frame(bytes(rest))
        if found is None:
            rest += peer.recv(_RECEIVE_BYTES)
            continue
        del rest[:taken]
        if isinstance(getattr(found, "method", None), wanted):
            return


def log_in(port: int) -> socket.socket:
    """Connect, open a channel with confirms, and return the socket."""
    peer, rest = socket.create_connection((LOOPBACK, port), _WITHIN_S), bytearray()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(frame.ProtocolHeader().marshal())
    await_method(peer, spec.Connection.Start, rest)
    peer.sendall(method(0, spec.Connection.StartOk({}, "PLAIN", "\0a\0b", "en_US")))
    await_method(peer, spec.Connection.Tune, rest)
    peer.sendall(method(0, spec.Connection.TuneOk(9, 131_072, 0)) + method(0, spec.Connection.Open("/")))
    await_method(peer, spec.Connection.OpenOk, rest)
    peer.sendall(method(1, spec.Channel.Open()) + method(1, spec.Confirm.Select()))
    await_method(peer, spec.Confirm.SelectOk, rest)
    return peer


def published_ms(port: int, *, rate_per_s: int, for_s: float) -> np.ndarray:
    """Publish at a rate, and return the times of the confirms after the warm-up, in ms."""
    total, sent, confirmed = int(rate_per_s * for_s), 0, 0
    waited_ms = np.zeros(total)
    ack_bytes = len(method(1, spec.Basic.Ack(1)))
    with log_in(port) as peer:
        begun_s, left = time.monotonic(), 0
        while confirmed < total:
            due = min(total, int((time.monotonic() - begun_s) * rate_per_s) + 1)
            if due > sent:
                peer.sendall(MESSAGE * (due - sent))
                sent = due
            next_s = max(0.0, begun_s + sent / rate_per_s - time.monotonic()) if sent < total else _WITHIN_S
            if select.select([peer], [], [], next_s)[0]:
                left += len(peer.recv(_RECEIVE_BYTES))
                now_s, count = time.monotonic(), left // ack_bytes
                due_s = begun_s + np.arange(confirmed, confirmed + count) / rate_per_s
                waited_ms[confirmed : confirmed + count] = (now_s - due_s) * 1000
                confirmed, left = confirmed + count, left % ack_bytes
    return waited_ms[int(WARM_UP_S * rate_per_s) :]


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def play(way: Way, *, rate_per_s: int, for_s: float) -> None:
    before_s = {name: cpu_s(process) for name, process in way.processes.items()}
    waited_ms = published_ms(way.port, rate_per_s=rate_per_s, for_s=for_s)
    way.p50_ms.append(float(np.percentile(waited_ms, 50)))
    way.p99_ms.append(float(np.percentile(waited_ms, 99)))
    for name, process in way.processes.items():
        used_us = (cpu_s(process) - before_s[name]) * 1e6 / (rate_per_s * for_s)
        way.cpu_us.setdefault(name, []).append(used_us)


@contextmanager
def ways() -> Iterator[Mapping[str, Way]]:
    """Yield the three ways to one sink."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tapped-")))
        direct = stack.enter_context(sink(len(MESSAGE)))
        ends = {"client": psutil.Process(), "sink": psutil.Process(active_children()[0].pid)}
        claim = take_claim(root, ports=2)
        stack.callback(Reaper(claim.folder, claim.lock_file, claim.claim_fds).close)
        server = ToxiproxyServer(LocalHost(claim.folder), port=claim.base_port, published=[], folder=claim.folder)
        stack.callback(server.close)
        server.await_ready()
        proxied = claim.base_port + 1
        server.call([Call.create("p", listen=f"{LOOPBACK}:{proxied}", upstream=f"{LOOPBACK}:{direct}")])
        children = psutil.Process().children(recursive=True)
        toxiproxy = next(child for child in children if "toxiproxy" in child.name())
        (root / "tap").mkdir()
        tap = stack.enter_context(Tap(root / "tap"))
        tapped = tap.listen("measured", "echo", Endpoint(LOOPBACK, direct))
        forwarding = psutil.Process(tap.pid)
        (recorder,) = forwarding.children()
        yield {
            "direct": Way(direct, ends),
            "Toxiproxy": Way(proxied, {**ends, "forwarding": toxiproxy}),
            "tap": Way(tapped, {**ends, "forwarding": forwarding, "recorder": recorder}),
        }


def frames_per_s(take: Callable[[FrameStream, bytes], object]) -> float:
    """Return how many frames a core looks at in a second, of messages of 1 KB in pieces as they come from a socket."""
    data, stream, count = MESSAGE * 20_000, FrameStream(), 3 * 20_000
    pieces = [data[at : at + _RECEIVE_BYTES] for at in range(0, len(data), _RECEIVE_BYTES)]
    begun_s = time.process_time()
    for piece in pieces:
        take(stream, piece)
    return count / (time.process_time() - begun_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with ways() as measured:
        for _ in range(asked.rounds):
            for way in measured.values():
                play(way, rate_per_s=asked.rate, for_s=asked.seconds)
    direct = measured["direct"]
    print("| way | p50 | p99 | added p50 | added p99 | CPU a message |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, way in measured.items():
        p50_ms, p99_ms = median(way.p50_ms), median(way.p99_ms)
        cpu = ", ".join(f"{each} {median(used):.0f} µs" for each, used in way.cpu_us.items())
        added = [f"{p50_ms - median(direct.p50_ms):.2f} ms", f"{p99_ms - median(direct.p99_ms):.2f} ms"]
        print("| " + " | ".join([name, f"{p50_ms:.2f} ms", f"{p99_ms:.2f} ms", *added, cpu]) + " |")
    print(f"frames that pass: {max(frames_per_s(FrameStream.passed) for _ in range(3)):,.0f} frames/s")
    looked = max(frames_per_s(lambda stream, piece: list(stream.frames(piece))) for _ in range(3))
    print(f"frames that rules look at: {looked:,.0f} frames/s")


if __name__ == "__main__":
    main()
