"""Which plugins a broker comes with, where a load asks for one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from rabbitmq_resilience.tools.distributions import BrokerHome, ToolMissingError

#: What a load needs, as in ``faults.step.Step.needs``: followed by the name of the plugin.
PLUGIN = "plugin "


def require_plugins(
    broker: BrokerHome, needs: Collection[str], *, is_there: Callable[[Path], bool] = Path.exists
) -> None:
    """Raises ToolMissingError where ``needs`` has a plugin that does not lie beside the broker."""
    for need in sorted(needs):
        if not need.startswith(PLUGIN):
            continue
        name = need.removeprefix(PLUGIN)
        places = [broker.home / "plugins" / f"{name}-{broker.version}{end}" for end in ("", ".ez")]
        if not any(map(is_there, places)):
            raise ToolMissingError(
                f"the load needs the plugin {name}, and RabbitMQ {broker.version} has none in {places[0].parent}: take "
                "a broker with all plugins that come with RabbitMQ, or a load without exchanges of the type "
                "consistent_hash"
            )
