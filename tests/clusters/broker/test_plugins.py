from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.sut.broker.configuration import enabled_plugins
from rabbitmq_resilience.sut.broker.plugins import require_plugins
from rabbitmq_resilience.tools.distributions import BrokerHome, ToolMissingError
from tests.messages import Messages

NEEDS = {"haproxy", "plugin rabbitmq_consistent_hash_exchange"}


def test_plugins_that_are_asked_for_are_enabled_next_to_the_usual_ones() -> None:
    assert enabled_plugins() == "[rabbitmq_management, rabbitmq_prometheus].\n"
    assert enabled_plugins({"b", "a"}) == "[rabbitmq_management, rabbitmq_prometheus, a, b].\n"


@pytest.mark.parametrize("end", ["", ".ez"])
def test_a_plugin_that_is_needed_lies_next_to_the_broker(tmp_path: Path, end: str, message: Messages) -> None:
    broker = BrokerHome(tmp_path, tmp_path, "3.10.8")
    require_plugins(broker, {"haproxy"})
    with message.of(ToolMissingError):
        require_plugins(broker, NEEDS)
    (tmp_path / "plugins" / f"rabbitmq_consistent_hash_exchange-3.10.8{end}").mkdir(parents=True)
    require_plugins(broker, NEEDS)
    with pytest.raises(ToolMissingError):
        require_plugins(broker, NEEDS, is_there=lambda _: False)
