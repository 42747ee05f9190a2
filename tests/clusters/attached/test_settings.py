"""What brokers tell of their settings, held against what a cluster file states."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.broker_settings import contrary
from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile
from tests.messages import Messages

ALL_DOWN = {"partition_handling": "pause_if_all_down", "pause_if_all_down": {"nodes": ["rabbit@h1", "rabbit@h2"]}}


class Broker:
    description = "a machine"

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:  # noqa: ARG002 - the protocol's
        assert script.startswith("exec rabbitmqctl -q -n rabbit@h1 eval '{application:get_env(")
        return self.answer


def found(answer: str, **stated: Any) -> list[str]:
    nodes = [
        {"name": f"rabbit@h{i}", "zone": f"z{i}", "amqp": f"amqp://h{i}", "management": f"http://h{i}"} for i in (1, 2)
    ]
    file = ClusterFile.model_validate(
        {"cluster": "c", "nodes": nodes, "user": {"env": "U"}, "password": {"env": "P"}}
        | {"partition_handling": "pause_minority", "net_ticktime_s": 60}
        | stated
    )
    return contrary(file, {"rabbit@h1": Broker(answer)})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("answer", "stated"),
    [
        ("{{ok,pause_minority},60}\n", {}),
        ("{{ok,pause_minority},{ongoing_change_to,60}}\n", {}),
        ("{{ok,autoheal},5}", {"partition_handling": "autoheal", "net_ticktime_s": 5}),
        ("{{ok,{pause_if_all_down,[rabbit@h1,rabbit@h2],autoheal}},60}", ALL_DOWN),
        ("{{ok,{pause_if_all_down,['rabbit@h2',\n                'rabbit@h1'],autoheal}},\n 60}", ALL_DOWN),
    ],
)
def test_what_is_as_stated_is_not_reported(answer: str, stated: dict[str, Any]) -> None:
    assert found(answer, **stated) == []


@pytest.mark.parametrize(
    ("answer", "stated", "told"),
    [
        ("{{ok,ignore},60}", {}, "partition_handling ignore"),
        ("{{ok,pause_minority},5}", {}, "net_ticktime 5"),
        (
            "{{ok,{pause_if_all_down,[rabbit@h1],autoheal}},60}",
            ALL_DOWN,
            "partition_handling pause_if_all_down rabbit@h1 aut",
        ),
        ("{{ok,{pause_if_all_down,[rabbit@h1,rabbit@h2],ignore}},60}", ALL_DOWN, "rabbit@h1 rabbit@h2 ignore"),
        ("{undefined,60}", {}, "{undefined,60}"),
    ],
)
def test_what_is_otherwise_is_reported(answer: str, stated: dict[str, Any], told: str, message: Messages) -> None:
    (text,) = found(answer, **stated)
    assert text.startswith("rabbit@h1 ")
    assert told in text
    message(text)
