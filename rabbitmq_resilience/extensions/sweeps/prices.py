"""The section ``leaderboard`` of a sweep file: prices of nodes, and the nodes of each cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.model.topology import NODES_MAX, BrokerSize

#: The measures that can be paid for: rates of a load.
RATES = ("confirmed_per_s", "received_per_s")

Label = Annotated[str, Field(min_length=1, max_length=60)]


class NodePrice(Spec):
    """A machine with its cores and its memory (1 GB: 2 ** 30 bytes), and what it costs a month."""

    cores: Annotated[float, Field(gt=0, le=1024)]
    memory_gb: Annotated[float, Field(gt=0, le=10_000)]
    per_month: Annotated[float, Field(gt=0)]

    def size(self, scale: float) -> BrokerSize:
        """Return the size of a broker for this machine at ``scale``. Raise ValueError if it is too small."""
        return BrokerSize(cores=round(scale * self.cores, 4), memory_mb=round(scale * self.memory_gb * 1024))


class Prices(Spec):
    """The content of a price file: ``nodes`` by name. ``source``: where and when the prices were seen."""

    currency: Annotated[str, Field(min_length=1, max_length=8)]
    source: Annotated[str, Field(max_length=300)] | None = None
    nodes: Annotated[dict[Label, NodePrice], Field(min_length=1)]


class Nodes(Spec):
    """``count`` machines of the kind ``node``."""

    node: Label
    count: Annotated[int, Field(ge=1, le=NODES_MAX)]


class Leaderboard(Spec):
    """Rank clusters by their cost for each 1,000 messages/s.

    ``axis``: its labels are the candidates, and ``clusters`` has the machines of each. ``prices``: the prices of the
    machines, or the path of a price file. Each broker is limited to ``scale`` times the cores and the memory of its
    machine. The costs are those of whole machines, which are assumed to carry 1 / scale times as much. ``rate``: the
    measure that is paid for. ``demands``: the highest value of other measures (the lowest one if more is better). A
    candidate that misses a demand, or breaks a promise, drops out."""

    axis: Label
    prices: Prices | Annotated[str, Field(pattern=r"\.ya?ml$")]
    clusters: Annotated[dict[Label, Nodes], Field(min_length=1)]
    scale: Annotated[float, Field(gt=0, le=1)] = 1
    rate: str = "confirmed_per_s"
    demands: Mapping[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_nodes(self) -> Self:
        if isinstance(self.prices, Prices):
            self.check_nodes(self.prices)
        return self

    def check_nodes(self, prices: Prices) -> None:
        """Raise ValueError if a cluster has machines without a price, or machines that are too small at this scale."""
        for label, nodes in self.clusters.items():
            if nodes.node not in prices.nodes:
                raise ValueError(f"clusters.{label}: no price for {nodes.node!r}; there are {', '.join(prices.nodes)}")
            try:
                prices.nodes[nodes.node].size(self.scale)
            except ValueError:
                raise ValueError(f"scale: {self.scale:g} of {nodes.node!r} is too little for a broker") from None

    def known_prices(self) -> Prices:
        """Return the prices; the price file must have been read (``priced``)."""
        assert isinstance(self.prices, Prices), "a sweep file is read together with its price file"
        return self.prices
