"""Measure the time to judge an hour with 100 queues and 240 faults, to write its page, and to open this page.

``python -m benchmarks.judge_hour [--messages 25000000] [--queues 200 --pairs 1000]`` records such a run in a temporary
folder (5 GB). Then it judges the run and writes its page, each in a process of its own. For comparison, it counts a run
of a 25th of that size in plain Python sets, as Jepsen's total-queue checker does, and scales the time up. Chromium, if
there is one, draws the page and an empty one.
Limits: 60 s and 1.5 GB to judge it, 1 MB for the page, and three times the time of an empty page to open it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.hour import Hour
from benchmarks.judge_history import PEER_SHARE, count_in_sets, measured
from benchmarks.recorded_hour import record
from rabbitmq_resilience.checkers.judge import judge
from rabbitmq_resilience.checkers.measured import measures
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.report.run_page import write_page
from rabbitmq_resilience.runner.examination import recorded_history
from rabbitmq_resilience.scenario import fault_file

JUDGED_S_MAX = 60.0
BYTES_MAX = 1_500_000_000
PAGE_BYTES_MAX = 1_000_000
OPENED_RATIO_MAX = 3.0
OPENED_TIMES = 3


def judge_recorded(path: Path) -> str:
    run = RunDirectory.open(path)
    scenario = fault_file.load(run.fault_file)
    judgement = judge(recorded_history(run, scenario), scenario.chosen_invariants)
    run.write_verdict(judgement.as_dict() | {"numbers": measures(run.metrics)})
    return f"{judgement.verdict}{': ' if judgement.reason else ''}{judgement.reason}"


def write_its_page(path: Path) -> str:
    return f"{write_page(RunDirectory.open(path)).stat().st_size:,} bytes"


def opened_s(browser: str, page: Path) -> float:
    """Return the least time in which the browser starts, draws the whole page and prints its DOM."""
    quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
    taken_s = []
    for _ in range(OPENED_TIMES):
        with tempfile.TemporaryDirectory(prefix="judge-hour-") as profile:
            start_s = time.perf_counter()
            command = [browser, *quiet, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
            subprocess.run(command, capture_output=True, check=True)
            taken_s.append(time.perf_counter() - start_s)
    return min(taken_s)


def opens_quickly(page: Path) -> bool:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("page: no Chromium on PATH to open it with")
        return True
    empty = page.with_name("empty.html")
    empty.write_text("<!doctype html><title>empty</title>", encoding="utf-8")
    ours_s, peer_s = opened_s(browser, page), opened_s(browser, empty)
    print(f"page opened in {ours_s:.2f} s, an empty one in {peer_s:.2f} s; ratio: {ours_s / peer_s:.2f}")
    return ours_s <= OPENED_RATIO_MAX * peer_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=Hour.messages)
    parser.add_argument("--queues", type=int, default=Hour.queues)
    parser.add_argument("--pairs", type=int, help="pairs of a publisher and a consumer (default: one for each queue)")
    arguments = parser.parse_args()
    pairs = arguments.pairs or arguments.queues
    hour = Hour(messages=arguments.messages, queues=arguments.queues, pairs=pairs)
    with tempfile.TemporaryDirectory(prefix="judge-hour-") as folder:
        run = RunDirectory.create(Path(folder), "hour")
        record(run, hour)
        part = RunDirectory.create(Path(folder), "part")
        record(part, replace(hour, messages=hour.messages // PEER_SHARE, rounds=hour.rounds // PEER_SHARE))
        size_bytes = sum(file.stat().st_size for file in run.history.iterdir())
        steps = len(hour.scenario.schedule)
        scale = f"{hour.queues} queues, {2 * hour.pairs} clients, {steps} faults"
        print(f"{hour.messages:,} messages, {size_bytes / 1e9:.2f} GB, {scale}")
        result, judged_s, judged_bytes = measured(judge_recorded, run.path)
        print(f"judged: {judged_s:.1f} s, peak {judged_bytes / 1e9:.2f} GB: {result}")
        written, page_s, page_bytes = measured(write_its_page, run.path)
        print(f"page: {page_s:.1f} s, peak {page_bytes / 1e9:.2f} GB: {written}")
        counted, peer_s, peer_bytes = measured(count_in_sets, part.path)
        print(f"sets of messages, a {PEER_SHARE}th: {peer_s:.1f} s, peak {peer_bytes / 1e9:.2f} GB: {counted}")
        print(f"ratio: {judged_s / (peer_s * PEER_SHARE):.4f} of the time of sets (scaled by {PEER_SHARE})")
        quick = opens_quickly(run.report) and run.report.stat().st_size <= PAGE_BYTES_MAX
    kept = quick and result == "VALID" and judged_s <= JUDGED_S_MAX and max(judged_bytes, page_bytes) <= BYTES_MAX
    print(f"limits: {'kept' if kept else 'broken'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
