"""Check that a broker has the plugins that a load needs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from rabbitmq_resilience.tools.distributions import BrokerHome, ToolMissingError

#: The prefix of a need (see ``nemesis.footprint.Footprint.needs``) for a plugin; the name of the plugin
#: follows.
PLUGIN = "plugin "


def require_plugins(
    broker: BrokerHome, needs: Collection[str], *, is_there: Callable[[Path], bool] = Path.exists
) -> None:
    """Raise ToolMissingError if ``needs`` names a plugin that is not in the broker's folder of plugins."""
    for need in sorted(needs):
        if not need.startswith(PLUGIN):
            continue
        name = need.removeprefix(PLUGIN)
        places = [broker.home / "plugins" / f"{name}-{broker.version}{end}" for end in ("", ".ez")]
        if not any(map(is_there, places)):
            raise ToolMissingError(
                f"the load needs the plugin {name}, but RabbitMQ {broker.version} lacks it in {places[0].parent}: take "
                "a broker with all plugins that come with RabbitMQ, or a load without exchanges of the type "
                "consistent_hash"
            )
