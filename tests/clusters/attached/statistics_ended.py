"""The end of a broker's statistics, which nothing starts again but a start of the broker."""

from __future__ import annotations

from tests.clusters.attached.machines import Machines

#: The process of the management agent that fails first.
_STATISTICS = "rabbit_mgmt_external_stats"

#: For ``rabbitmqctl eval``: ends it until its supervisor gives up, and tells whether that is gone.
END = (
    f"[begin catch exit(whereis({_STATISTICS}), kill), timer:sleep(2) end || _ <- lists:seq(1, 500)], "
    "whereis(rabbit_mgmt_agent_sup) =:= undefined."
)


def silent(machines: Machines) -> list[str]:
    """Those whose brokers tell nothing of themselves until they are started again. Statistics of 3.10.8 fail while
    there are two connections to one peer (rabbit_net:dist_info/0), as after a cut, and end for good if that lasts."""
    asked = f"rabbitmqctl -q eval 'whereis({_STATISTICS}).' || true"
    return [name for name in machines.names if "undefined" in machines.ask(name, asked)]
