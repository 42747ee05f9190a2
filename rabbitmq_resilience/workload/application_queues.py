"""Read from a broker which queues the application has, and which of them a message must arrive in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from rabbitmq_resilience.history.application_events import AUTO_DELETE, EXCLUSIVE, EXPIRES, NOT_DURABLE
from rabbitmq_resilience.history.events import WireEvent
from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.workload.matching import DEFAULT_EXCHANGE, Bound, ExchangeType, Router
from rabbitmq_resilience.workload.queues import QueuePlace

_COLUMNS = (
    *("name", "type", "node", "leader", "members", "online", "durable", "exclusive", "auto_delete", "arguments"),
    "effective_policy_definition",
)
#: What may make a queue drop messages, or be gone, by design. Arguments have ``x-`` before these names, policies do
#: not.
_LIMITS = {
    "expires": EXPIRES,
    "message-ttl": "its messages expire",
    "max-length": "it has a maximum length",
    "max-length-bytes": "it has a maximum length",
    "dead-letter-exchange": "it has dead letters",
}
_TYPES = frozenset(get_args(ExchangeType))


@dataclass(frozen=True)
class ApplicationQueues:
    """The queues of an application, at one moment.

    ``places``: the queues whose messages must arrive, in the order of their names. ``skipped``: the other queues, each
    with the reason why its messages may be gone by design. ``router`` knows all of them. ``asked_us``: when the broker
    was asked. ``computed``: whether the bindings alone say where messages go, of every exchange that has any.
    """

    places: Mapping[str, QueuePlace]
    skipped: Mapping[str, str]
    router: Router
    exchanges: frozenset[str]
    asked_us: int = 0
    computed: bool = True

    @property
    def names(self) -> frozenset[str]:
        return frozenset({*self.places, *self.skipped})

    def owed(self, exchange: str, routing_key: str) -> tuple[str, ...]:
        """Return the queues in which a message must arrive. None, if it depends on its headers, or on a hash."""
        if exchange != DEFAULT_EXCHANGE and exchange not in self.exchanges:
            return ()
        reached = self.router.reached(exchange, routing_key, {})
        return tuple(sorted(queue for queue in reached.queues if queue in self.places))


def read_queues(cluster: Cluster, vhost: str) -> ApplicationQueues:
    """Ask a broker for the application's queues and bindings. Raise ApiError or ApiUnreachable."""
    asked_us, topology = now_us(), cluster.topology
    api = cluster.api(topology.node_names[0])
    node_of = {cluster.broker_name(node): node for node in topology.node_names}
    places: dict[str, QueuePlace] = {}
    skipped: dict[str, str] = {}
    for row in sorted(api.queues(vhost, columns=_COLUMNS), key=lambda row: str(row["name"])):
        if reason := _may_lose(row):
            skipped[row["name"]] = reason
        elif (place := _place(row, node_of)) is not None:
            places[row["name"]] = place
        else:
            skipped[row["name"]] = "its leader is not known"
    # Definitions are shown to administrators only, who a user of a given virtual host need not be.
    listed = {row["name"]: row for row in api.exchanges(vhost) if row["name"] != DEFAULT_EXCHANGE}
    bindings = [row for row in api.bindings(vhost) if row["source"] != DEFAULT_EXCHANGE]
    exchanges = {
        name: (_type(row), alternate if (alternate := _alternate(row)) in listed else None)
        for name, row in listed.items()
        if _is_routed(row)
    }
    bound = [
        Bound(row["source"], row["destination"], row["destination_type"] == "exchange", row["routing_key"])
        for row in bindings
        if row["source"] in exchanges and (row["destination_type"] == "queue" or row["destination"] in exchanges)
    ]
    routed = {name: (kind, to if to in exchanges else None) for name, (kind, to) in exchanges.items()}
    others = {row["source"] for row in bindings} | {to for _, to in exchanges.values() if to is not None}
    by_policy = any("alternate-exchange" in row["definition"] for row in api.policies(vhost))
    computed = others <= exchanges.keys() and not by_policy
    return ApplicationQueues(places, skipped, Router(routed, bound), frozenset(exchanges), asked_us, computed)


def declared(wire: Sequence[WireEvent]) -> dict[str, set[str]]:
    """Return the names of the ``queues`` and ``exchanges`` that an application has declared and that outlive it."""
    fields = {
        what: [event.fields for event in wire if event.what == f"{what}_declared"] for what in ("queue", "exchange")
    }
    exchanges = {one["exchange"] for one in fields["exchange"] if not one["passive"]}
    return {
        "queues": {one["queue"] for one in fields["queue"] if not one["passive"] and not one["exclusive"]},
        "exchanges": {name for name in exchanges if name and not name.startswith("amq.")},
    }


def _may_lose(row: Mapping[str, Any]) -> str:
    """Return why messages of a queue may be gone by design; empty if they must arrive."""
    arguments: Mapping[str, Any] = row.get("arguments") or {}
    policy: Mapping[str, Any] = row.get("effective_policy_definition") or {}
    if row.get("exclusive"):
        return EXCLUSIVE
    if row.get("auto_delete"):
        return AUTO_DELETE
    if not row.get("durable", True):
        return NOT_DURABLE
    if row.get("type") not in {"quorum", "classic"}:
        return f"it is of the type {row.get('type')}"
    return next((text for name, text in _LIMITS.items() if f"x-{name}" in arguments or name in policy), "")


def _place(row: Mapping[str, Any], node_of: Mapping[str, str]) -> QueuePlace | None:
    quorum = row["type"] == "quorum"
    leader = node_of.get(row.get("leader") or row.get("node") or "")
    members: Sequence[str] = [node_of[name] for name in (row.get("members") or ()) if name in node_of]
    if leader is None:
        return None
    others = [node for node in members if node != leader] if quorum else []
    return QueuePlace(type=str(row["type"]), members=[leader, *others], leader=leader)


def _is_routed(row: Mapping[str, Any]) -> bool:
    """Return whether routes of an exchange can be computed without a message's headers."""
    return row["type"] in _TYPES - {"headers", "consistent_hash"}


def _type(row: Mapping[str, Any]) -> ExchangeType:
    kind: ExchangeType = row["type"]
    return kind


def _alternate(row: Mapping[str, Any]) -> str | None:
    alternate = (row.get("arguments") or {}).get("alternate-exchange")
    return str(alternate) if alternate is not None else None
