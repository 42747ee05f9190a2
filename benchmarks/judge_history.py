"""Measure the time and the memory to judge a history of 25 million messages.

``python -m benchmarks.judge_history [--messages 25000000]`` records such a history in a temporary folder (1.4 GB), and
judges it by every invariant in a process of its own. For comparison, it counts a history of a 25th of that size in
plain Python sets of messages, as Jepsen's total-queue checker does, and scales the time up. Limits: 15 s and 1.5 GB.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS
from rabbitmq_resilience.checkers.judge import judge
from rabbitmq_resilience.checkers.recorded_history import load_history
from rabbitmq_resilience.history.history import (
    DELIVERIES,
    DELIVERIES_SUFFIX,
    PUBLISHES,
    PUBLISHES_SUFFIX,
    Outcome,
    StreamWriter,
)
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.history.run_directory import RunDirectory

LIMIT_S = 15.0
LIMIT_BYTES = 1_500_000_000
PEER_SHARE = 25
LANES = 4  # publishers, queues and consumers
#: Rows in a batch, as workers write them: a consumer records before it acknowledges, every 50 messages.
PUBLISHES_ROWS = 4096
DELIVERIES_ROWS = 50
NODES = ("a1", "b1", "c1")
PHASES_S = {"steady": 0, "chaos": 10, "recovery": 520, "drain": 540, "end": 600}
PUBLISHING_S = PHASES_S["drain"]
ORIGIN_US = 3_600_000_000


def record(run: RunDirectory, messages: int) -> None:
    """Record a valid history: 1 in 500 messages confirmed late, every 100th batch delivered again as redelivered."""
    run.fault_file.write_text("version: 1\n")
    run.events_file.write_text("".join(json.dumps(event) + "\n" for event in _events()))
    Routes.plain(LANES).save(run.history)
    total = messages // LANES
    for lane in range(LANES):
        publishes = StreamWriter(run.history / f"p{lane}{PUBLISHES_SUFFIX}", PUBLISHES)
        for start in range(0, total, PUBLISHES_ROWS):
            publishes.append(_published(lane, np.arange(start, min(start + PUBLISHES_ROWS, total)), total))
        publishes.close()
        deliveries = StreamWriter(run.history / f"c{lane}{DELIVERIES_SUFFIX}", DELIVERIES)
        for number, start in enumerate(range(0, total, DELIVERIES_ROWS)):
            sequence = np.arange(start, min(start + DELIVERIES_ROWS, total))
            deliveries.append(_delivered(lane, sequence, total, redelivered=False))
            if number % 100 == 0:
                deliveries.append(_delivered(lane, sequence, total, redelivered=True))
        deliveries.close()


def _published(lane: int, sequence: Any, total: int) -> dict[str, Any]:
    sent_us, size = _sent_us(sequence, total), len(sequence)
    return {
        "publisher": np.full(size, lane),
        "route": np.full(size, lane),
        "sequence": sequence,
        "due_us": sent_us,
        "sent_us": sent_us,
        "outcome": np.full(size, Outcome.CONFIRMED),
        "outcome_us": sent_us + 5_000 + (sequence % 500 == 0) * 200_000,
        "node": np.full(size, 1 + lane % (len(NODES) - 1)),  # the first node is cut off
    }


def _delivered(lane: int, sequence: Any, total: int, *, redelivered: bool) -> dict[str, Any]:
    lanes = np.full(len(sequence), lane)
    return {
        "consumer": lanes,
        "publisher": lanes,
        "queue": lanes,
        "sequence": sequence,
        "received_us": _sent_us(sequence, total) + 7_000,
        "redelivered": np.full(len(sequence), redelivered),
        "intact": np.full(len(sequence), True),
    }


def _sent_us(sequence: Any, total: int) -> Any:
    return ORIGIN_US + sequence * (PUBLISHING_S * 1_000_000) // total


def _events() -> Iterator[dict[str, Any]]:
    def event(at_s: float, kind: str, **fields: Any) -> dict[str, Any]:
        return {"t_us": ORIGIN_US + int(at_s * 1e6), "kind": kind, **fields}

    queues = {f"q{i + 1}": {"type": "quorum", "members": NODES, "leader": NODES[i % 3]} for i in range(LANES)}
    zones = {node: node[0] for node in NODES}
    yield event(
        0, "cluster", topology="three", nodes=zones, partition_handling="pause_minority", net_ticktime_s=5,
        broker_version="3.10.8", driver="local",
    )  # fmt: skip
    yield event(0, "queues", queues=queues)
    effect = {"nodes_down": [], "links_cut": [["a1", "b1"], ["a1", "c1"]], "links_slow": []}
    for at_s, state in ((15, "injecting"), (15.2, "injected"), (22, "proven"), (40, "healing"), (40.1, "healed")):
        yield event(at_s, "fault", step=0, fault="partition", state=state, effect=effect, detail="")
    yield event(45, "fault", step=0, fault="partition", state="heal_proven", effect=effect, detail="")
    for half_second in range(2 * PHASES_S["end"]):
        paused = 42 <= half_second < 84
        yield event(half_second / 2, "nodes", states={n: "paused" if paused and n == "a1" else "up" for n in NODES})
        sample = {name: {"ready": 0, "unacked": 0, "leader": "b1", "members": 3, "online": 3} for name in queues}
        yield event(half_second / 2, "sample", queues=sample, memory_bytes={})
    for at_s, state in ((30, "asked"), (30.1, "created")):
        yield event(at_s, "declaration", item="queue declared", node="b1", state=state, detail="")
    yield event(PHASES_S["end"] - 1, "metadata", nodes={node: ["queue declared"] for node in NODES})
    for phase, at_s in PHASES_S.items():
        yield event(at_s, "phase", phase=phase)
    yield event(PHASES_S["end"] - 1, "drain", complete=True, confirmed=1, received=1, unconsumed=0, detail="")


def judge_all(path: Path) -> str:
    judgement = judge(load_history(path), {name: kind() for name, kind in INVARIANTS.items()})
    return f"{judgement.verdict}{': ' if judgement.reason else ''}{judgement.reason}"


def count_in_sets(path: Path) -> str:
    """Count lost and unexpected messages, with sets of (publisher, sequence), and return the counts in words."""
    history = load_history(path)

    def read(batches: Iterable[pa.RecordBatch], keep: Callable[[dict[str, Any]], bool]) -> set[tuple[int, int]]:
        return {(row["publisher"], row["sequence"]) for batch in batches for row in batch.to_pylist() if keep(row)}

    confirmed = read(history.publishes(), lambda row: row["outcome"] == Outcome.CONFIRMED)
    received = read(history.deliveries(), lambda row: row["intact"])
    return f"{len(confirmed - received)} lost, {len(received - confirmed)} unexpected, of {len(confirmed)}"


def measured(work: Callable[[Path], str], path: Path) -> tuple[str, float, int]:
    """Run ``work`` in a process of its own, and return its result, its seconds and the peak bytes of the process."""
    context = multiprocessing.get_context("spawn")
    answers, ours = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(work, path, ours))
    process.start()
    ours.close()
    answer: tuple[str, float, int] = answers.recv()
    process.join()
    return answer


def _measure(work: Callable[[Path], str], path: Path, answer: Any) -> None:
    start_s = time.perf_counter()
    result = work(path)
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes
    print(f"  ({time.process_time():.1f} s of CPU, with starting)")
    answer.send((result, time.perf_counter() - start_s, peak_bytes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=25_000_000)
    messages = parser.parse_args().messages
    with tempfile.TemporaryDirectory(prefix="judge-history-") as folder:
        run = RunDirectory.create(Path(folder), "benchmark")
        record(run, messages)
        part = RunDirectory.create(Path(folder), "part")
        record(part, messages // PEER_SHARE)
        size_bytes = sum(file.stat().st_size for file in run.history.iterdir())
        print(f"history: {messages:,} messages, {size_bytes / 1e9:.2f} GB")
        result, ours_s, peak_bytes = measured(judge_all, run.path)
        print(f"all invariants: {ours_s:.1f} s, peak {peak_bytes / 1e9:.2f} GB: {result}")
        judged, (result, peer_s, peer_bytes) = result, measured(count_in_sets, part.path)
        print(f"sets of messages, a {PEER_SHARE}th: {peer_s:.1f} s, peak {peer_bytes / 1e9:.2f} GB: {result}")
        print(f"ratio: {ours_s / (peer_s * PEER_SHARE):.4f} of the time of sets (scaled by {PEER_SHARE})")
    within = ours_s <= LIMIT_S and peak_bytes <= LIMIT_BYTES and judged == "VALID"
    print(f"limits of {LIMIT_S:g} s and {LIMIT_BYTES / 1e9:g} GB: {'kept' if within else 'broken'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
