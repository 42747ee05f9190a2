"""PerfTest is told what our own clients are told, or nothing at all; what it writes is read as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.workload.load import Address
from rabbitmq_resilience.workload.perf_test_options import PerfTestFailed, Window, options, problems, read
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages

THREE = [
    Address(node, "127.0.0.1", port, zone) for node, port, zone in (("a1", 1, "a"), ("b1", 2, "b"), ("c1", 3, "c"))
]

#: As PerfTest 2.22.1 wrote it; without confirms and without anything received its columns are empty or zero.
WRITTEN = """\
id,time (s),published (msg/s),returned (msg/s),confirmed (msg/s),nacked (msg/s),received (msg/s),\
min consumer latency (µs),median consumer latency (µs),75th p. consumer latency (µs),95th p. consumer latency (µs),\
99th p. consumer latency (µs),min confirm latency (µs),median confirm latency (µs),75th p. confirm latency (µs),\
95th p. confirm latency (µs),99th p. confirm latency (µs)
test-1,4.009,99,0,99,0,88,10280,148066,186802,329343,331039,12233,50358,84834,149925,155863
test-1,8.001,200,0,,,200,329,865,1623,4791,8614,,,,,
test-1,12.001,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0
"""


def said(**fields: Any) -> dict[str, str]:
    """The options and their values; flags have none."""
    workload = Workload.model_validate(fields)
    words = options(workload, THREE, vhost="a run", access=Access("me", "p/w"), interval_s=4, seconds_s=13)
    names = [i for i, word in enumerate(words) if word.startswith("--")]
    ends = [*names[1:], len(words)]
    return {words[i][2:]: " ".join(words[i + 1 : end]) for i, end in zip(names, ends, strict=True)}


def exchange(kind: str, headers: Mapping[str, str] | None = None, **publish: Any) -> dict[str, Any]:
    bound = {"exchange": "x", "queues": "all", **({"headers": headers} if headers else {})}
    turn = {"exchange": "x", **publish, **({"headers": headers} if headers else {})}
    return {"exchanges": [{"name": "x", "type": kind}], "bindings": [bound], "publish": [turn]}


def test_its_clients_are_ours() -> None:
    told = said(
        queue_type="classic",
        queues=2,
        publishers=4,
        consumers=2,
        rate_per_s=1000,
        in_flight=13,
        prefetch=50,
        ack_every=10,
        message_bytes=100,
        queue_pattern="orders-%d",
    )
    assert {name: told[name] for name in ("producers", "consumers", "rate", "confirm", "qos", "multi-ack-every")} == {
        "producers": "4",
        "consumers": "2",
        "rate": "250.0",
        "confirm": "13",
        "qos": "50",
        "multi-ack-every": "10",
    }
    assert (told["queue-pattern"], told["queue-pattern-from"], told["queue-pattern-to"]) == ("orders-%d", "1", "2")
    assert (told["size"], told["exchange"], told["interval"], told["time"]) == ("100", "amq.default", "4", "13")
    assert told["uris"].split(",") == [f"amqp://me:p%2Fw@127.0.0.1:{port}/a%20run" for port in (1, 2, 3)]


def test_one_pair_of_clients_goes_where_ours_goes() -> None:
    assert said()["uris"] == "amqp://me:p%2Fw@127.0.0.1:1/a%20run"


def test_what_is_not_asked_for_is_not_said() -> None:
    told = said(queue_type="classic", confirms="none", acks="automatic", persistent=False, rate_per_s=None)
    assert not {"confirm", "qos", "multi-ack-every", "rate", "routing-key"} & told.keys()
    assert "autoack" in told
    assert told["flag"] == "mandatory"
    assert said(ack_every=1).keys() & {"multi-ack-every", "autoack"} == set()


def test_it_publishes_where_we_do() -> None:
    told = said(routing=exchange("headers", {"kind": "price"}))
    assert (told["exchange"], told["routing-key"], told["message-properties"]) == ("x", "", "kind=price")
    assert said(routing=exchange("fanout", routing_key="k"))["routing-key"] == "k"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"message_sizes": [{"message_bytes": 100, "weight": 1}]}, "message_sizes"),
        ({"start_spread_s": 5}, "start_spread_s"),
        ({"idle_connections": 5}, "idle_connections"),
        ({"confirms": "ignored"}, "confirms"),
        ({"queues": 3, "publishers": 3}, "consumers"),
        ({"routing": exchange("fanout", routing_key="p.%d", routing_keys=2)}, "routing"),
        ({"routing": exchange("headers", {"priority": "x"})}, "routing"),
        ({"routing": exchange("headers", {"kind": "5"})}, "routing"),
    ],
)
def test_what_it_has_nothing_like_is_refused(fields: dict[str, Any], field: str, message: Messages) -> None:
    (told,) = problems(Workload.model_validate(fields))
    assert told.partition(":")[0] == field
    message(told)


def test_what_it_wrote_is_read(tmp_path: Path, message: Messages) -> None:
    file = tmp_path / "told.csv"
    file.write_text(WRITTEN, encoding="utf-8")
    assert read(file) == [
        Window(
            4.009,
            99,
            88,
            {50: 148.066, 75: 186.802, 95: 329.343, 99: 331.039},
            {50: 50.358, 75: 84.834, 95: 149.925, 99: 155.863},
        ),
        Window(8.001, None, 200, {50: 0.865, 75: 1.623, 95: 4.791, 99: 8.614}, {}),
        Window(12.001, 0, 0, {}, {}),
    ]
    file.write_text(WRITTEN.replace("received (msg/s)", "taken"), encoding="utf-8")
    with message.of(PerfTestFailed):
        read(file)
