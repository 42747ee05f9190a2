from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.report.index import write_index
from rabbitmq_resilience.report.run_page import write_page
from tests.messages import Messages
from tests.pages.synthetic_run import write_synthetic_run

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = _Elements()
    parser.feed(page)
    return parser.tags


@pytest.mark.parametrize("word", ["VALID", "INVALID", "UNKNOWN"])
def test_the_verdict_comes_first(tmp_path: Path, word: str) -> None:
    page = write_page(write_synthetic_run(tmp_path, rate_per_s=20, verdict=word)).read_text()

    body = page[page.index("<body>") :]
    assert f'<div class="word">{word}<span>' in body[:200]
    assert body.index("Timeline") < body.index("Invariants") < body.index("Assumptions")
    assert ".venv/bin/pytest " in body and "/fault.yaml" in body
    assert "pytest --recheck" in body
    assert 'href="logs/a1.log"' in body


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    page = write_page(write_synthetic_run(tmp_path, rate_per_s=20)).read_text()

    loading = [
        (tag, value) for tag, attributes in elements(page) for name, value in attributes.items() if name == "src"
    ]
    links = [attributes["href"] for tag, attributes in elements(page) if tag in ("link", "a") and "href" in attributes]
    assert loading == []
    assert not [link for link in links if link and re.match(r"(?!data:,)\w+:|//", link)]
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert len(page) < 150_000


def test_whatever_people_wrote_is_escaped(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, rate_per_s=20)
    harmless = elements(write_page(run).read_text())
    finding = {"verdict": "INVALID", "summary": EVIL, "numbers": {EVIL: EVIL}, "examples": [EVIL]}
    run.fault_file.write_text(f"title: {EVIL}\n")
    verdict = {key: EVIL for key in ("title", "scenario", "seed", "driver", "broker_version", "expected", "rerun")}
    run.write_verdict({**verdict, "verdict": "INVALID", "invariants": {EVIL: finding}, "assumptions": {EVIL: finding}})
    states = ("injected", "healed")
    evil = [
        {"t_us": n, "kind": "fault", "step": 0, "fault": EVIL, "state": s, "detail": EVIL} for n, s in enumerate(states)
    ]
    run.events_file.write_text("".join(json.dumps(event) + "\n" for event in evil))
    (run.logs / "<img src=x>.log").touch()

    page = write_page(run).read_text()
    index = write_index(tmp_path).read_text()

    assert "<script>alert" not in page + index
    assert "<img" not in page + index
    assert [tag for tag, _ in elements(page)].count("script") == [tag for tag, _ in harmless].count("script") == 2
    assert "script" not in [tag for tag, _ in elements(index)]


@pytest.mark.parametrize("as_expected", [True, False])
def test_the_page_shows_what_was_expected(tmp_path: Path, as_expected: bool, message: Messages) -> None:
    run = write_synthetic_run(tmp_path, rate_per_s=20)
    run.write_verdict({"verdict": "INVALID", "expected": "INVALID by no_loss", "as_expected": as_expected})

    (on_page,) = re.findall("[^>]*INVALID by no_loss[^<]*", write_page(run).read_text())
    (in_index,) = re.findall('[^>"]*INVALID by no_loss[^<"]*', write_index(tmp_path).read_text())
    message(on_page.strip())
    message(in_index.strip())


def test_a_run_that_broke_off_still_has_a_page(tmp_path: Path) -> None:
    page = write_page(RunDirectory.create(tmp_path, "broke off")).read_text()

    assert "UNKNOWN" in page
    assert "no verdict.json" in page
    assert "Nothing was recorded" in page


def test_a_torn_history_is_drawn_up_to_where_it_ends(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, rate_per_s=20)
    for stream in run.history.glob("*.arrows"):
        stream.write_bytes(stream.read_bytes()[:-5000])

    assert '"title":"Rates"' in write_page(run).read_text()


def test_a_damaged_history_is_reported(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, rate_per_s=20)
    stream = next(run.history.glob("*.publishes.arrows"))
    stream.write_bytes(b"nonsense" * 100)

    page = write_page(run).read_text()

    assert "damaged" in page
    assert "37 of 45,912" in page


def test_damaged_events_are_reported(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, rate_per_s=20)
    run.events_file.write_text('{"kind": \n')

    assert "damaged" in write_page(run).read_text()


def test_the_index_lists_the_newest_first_and_unfinished_runs_too(tmp_path: Path) -> None:
    for name in ("20260101T000000Z-cut", "20260101T000000Z-cut-10", "20260101T000000Z-cut-2", "20260202T000000Z-cut"):
        (tmp_path / name).mkdir()
    run = RunDirectory(tmp_path / "20260101T000000Z-cut")
    numbers = {"throughput": {"numbers": {"ratio": 0.7}}, "recovery": {"numbers": {"recovered_after_s": 8.44}}}
    run.write_verdict({"verdict": "VALID", "duration_s": 61, "invariants": numbers})

    page = write_index(tmp_path).read_text()

    order = re.findall(r'<small class="quiet">(.*?)</small>|<span class="chip (\w+)"', page)
    assert [word for _, word in order if word] == ["UNKNOWN", "UNKNOWN", "UNKNOWN", "VALID"]
    assert [link[:25] for link in re.findall(r'<a href="(.*?)"', page)][1] == "20260101T000000Z-cut-10"
    assert "4 runs: 1 VALID, 0 INVALID, 3 UNKNOWN" in page
    assert "70%" in page
    assert "8.4 s" in page
    assert "1 min 01 s" in page
    assert page.count("<svg") == 2


def test_an_empty_index(tmp_path: Path) -> None:
    index = write_index(tmp_path).read_text()
    assert "no run yet" in index
    assert "report.html" not in index


def many_faults(run: RunDirectory, count: int, *, unproven: int, kinds: int = 3) -> None:
    def event(at_s: float, step: int, state: str) -> str:
        effect = {"nodes_down": [f"n{step % kinds}"]}
        told = {"kind": "fault", "step": step, "fault": f"stop{step % kinds // 20}", "state": state, "effect": effect}
        return json.dumps({"t_us": round(5e9 + at_s * 1e6), **told, "detail": ""}) + "\n"

    states = ("injecting", "injected", "proven", "healing", "healed", "heal_proven")
    run.events_file.write_text(
        "".join(
            event(10 * step + i, step, "unproven" if state == "proven" and step == unproven else state)
            for step in range(count)
            for i, state in enumerate(states)
        )
    )


def run_data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="run-data">(.*?)</script>', page)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_hundreds_of_faults_share_lanes_and_only_doubtful_ones_are_unfolded(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "rolling")
    many_faults(run, 240, unproven=100)

    page = write_page(run).read_text()

    data = run_data(page)
    (schedule,) = (panel for panel in data["panels"] if panel["title"] == "Phases and faults")
    assert [lane["name"] for lane in schedule["lanes"]] == ["stop0 n0 down", "stop0 n1 down", "stop0 n2 down"]
    bars = [bar for lane in schedule["lanes"] for bar in lane["intervals"]]
    assert len(bars) == len(data["faults"]) == 240
    assert [(bar["text"], bar["start_s"]) for bar in bars if bar["text"]] == [("not proven", 1001)]
    shown, folded = page[page.index("<h2>Faults</h2>") : page.index("<h2>Run it again")].split("<details>")
    assert "1 of 240" in shown
    assert (shown.count("<tr>"), folded.count("<tr>")) == (1 + 1, 1 + 240)


def test_lanes_stay_few_though_every_fault_acts_on_something_else(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "rolling")
    many_faults(run, 40, unproven=-1, kinds=40)

    (schedule,) = run_data(write_page(run).read_text())["panels"]

    assert [(lane["name"], len(lane["intervals"])) for lane in schedule["lanes"]] == [("stop0", 20), ("stop1", 20)]


def test_a_step_that_never_began_says_why(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "skipped")
    told = {"t_us": 1, "kind": "fault", "step": 0, "fault": "kill", "state": "skipped", "detail": "no node was left"}
    run.events_file.write_text(json.dumps(told) + "\n")

    assert '<span class="doubt">no node was left</span>' in write_page(run).read_text()
