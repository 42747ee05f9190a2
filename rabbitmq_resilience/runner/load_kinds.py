"""Put each kind of workload on a cluster: a new kind is one class here, and one line in ``KINDS``."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rabbitmq_resilience.history.event_log import EventLog
from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.nemesis.fault import ActiveLoad, FaultContext
from rabbitmq_resilience.runner.beginning import LOAD_FLOWS_WITHIN_S, await_flow
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload import running_workload as workloads
from rabbitmq_resilience.workload.application_model import ApplicationWorkload
from rabbitmq_resilience.workload.application_queues import ApplicationQueues, read_queues
from rabbitmq_resilience.workload.client_addresses import addresses, proxied_addresses
from rabbitmq_resilience.workload.declarations import declaring, read_metadata
from rabbitmq_resilience.workload.exchanges import establish
from rabbitmq_resilience.workload.kinds import APPLICATION, GENERATED
from rabbitmq_resilience.workload.queues import QueuePlace, declare, declared_by_consumers, insist
from rabbitmq_resilience.workload.running_application import RunningApplication
from rabbitmq_resilience.workload.running_workload import RunningWorkload
from rabbitmq_resilience.workload.workload_model import Workload

#: A consumer subscribes to its queues one after another.
SUBSCRIBED_WITHIN_S = 0.03
#: How long until the brokers' numbers show the end of the load, while consumers are connected. Quorum queues and nodes
#: (for their memory) renew them every 5 s.
NUMBERS_SETTLE_S = 7.0
#: How long the last declaration may take to reach every node.
METADATA_AGREES_WITHIN_S = 10.0
_KNOWN_WITHIN_S = 60.0


@dataclass(frozen=True)
class LoadPlace:
    """Where a load is put: the cluster and its virtual host, the folders of its record and of its logs."""

    cluster: Cluster
    vhost: str
    history: Path
    logs: Path
    events: EventLog


class LoadKind(Protocol):
    """One kind of workload on its way through a run. The methods are called in this order."""

    def prepare(self) -> None:
        """Declare what the load finds when it begins, before anything is watched."""

    def start(self, *, alone: Collection[str]) -> AbstractContextManager[ActiveLoad]:
        """Start the load. ``alone``: clients that faults kill."""

    def await_flow(self, context: FaultContext) -> Mapping[str, QueuePlace]:
        """Wait until messages flow, and return the queues that they must arrive in. Raise LoadNotBegunError."""

    def declaring(self) -> AbstractContextManager[None]:
        """Declare items until the block ends, if the load does. They are judged by the invariant ``metadata``."""

    def load_event(self, begins_us: int) -> dict[str, Any]:
        """Return the fields of the event "load"."""

    def after_drain(self) -> None:
        """Record what the load left on the brokers."""


class GeneratedKind:
    """Our own publishers and consumers."""

    def __init__(self, scenario: Scenario, place: LoadPlace) -> None:
        self._scenario = scenario
        self._workload = scenario.generated
        self._place = place
        self._queues: Mapping[str, QueuePlace] = {}
        self._routes: Routes | None = None

    def prepare(self) -> None:
        place, record = self._place, self._place.events.record
        self._queues = declare(place.cluster, self._workload, vhost=place.vhost, record=record)
        self._routes = establish(place.cluster, self._workload, vhost=place.vhost, record=record)
        record("queues", queues=self._queues, **_queue_fields(self._workload, list(self._queues), self._routes))

    def start(self, *, alone: Collection[str]) -> RunningWorkload:
        cluster = self._place.cluster
        if self._workload.idle_connections:
            time.sleep(NUMBERS_SETTLE_S)  # to compare memory with and without them
        return workloads.start(
            self._workload,
            addresses=addresses(cluster),
            proxied_addresses=proxied_addresses(cluster),
            queues=list(self._queues),
            routes=self._routes,
            declared_with=declared_by_consumers(self._workload, cluster.topology),
            vhost=self._place.vhost,
            run=now_us(),
            seed=self._scenario.seed,
            folder=self._place.history,
            alone=alone,
            nodes=cluster.topology.node_names,
            access=cluster.access,
        )

    def await_flow(self, context: FaultContext) -> Mapping[str, QueuePlace]:
        connected_within_s = LOAD_FLOWS_WITHIN_S + SUBSCRIBED_WITHIN_S * self._workload.queues
        spread_s = self._workload.start_spread_s
        load = context.load
        assert isinstance(load, RunningWorkload)
        within_s = spread_s + connected_within_s
        await_flow(load, self._place.cluster, self._workload, connected_within_s=within_s)
        return self._queues

    def declaring(self) -> AbstractContextManager[None]:
        place = self._place
        return declaring(place.cluster, self._workload, vhost=place.vhost, record=place.events.record)

    def after_drain(self) -> None:
        if self._workload.declare_every_s is not None:
            place = self._place
            known = read_metadata(place.cluster, place.vhost, timeout_s=METADATA_AGREES_WITHIN_S)
            place.events.record("metadata", nodes=known)

    def load_event(self, begins_us: int) -> dict[str, Any]:
        workload = self._workload
        varying = {"rate_per_s", "variable_rate", "processing_ms", "variable_processing"}
        fields = varying | {"publishers", "priorities", "reconnect", "confirm_timeout_s"}
        limit = workload.in_flight if workload.confirms == "awaited" else None
        stated = workload.model_dump(mode="json", include=fields)
        services = [service.model_dump(mode="json") for service in workload.services]
        return {"begins_us": begins_us, "in_flight": limit, **stated, **({"services": services} if services else {})}


class ApplicationKind:
    """The user's own program."""

    def __init__(self, scenario: Scenario, place: LoadPlace) -> None:
        assert isinstance(scenario.workload, ApplicationWorkload)
        self._workload = scenario.workload
        self._place = place

    def prepare(self) -> None:
        api = self._place.cluster.api(self._place.cluster.topology.node_names[0])
        vhost = self._place.vhost
        insist(lambda: api.create_vhost(vhost), what=f"virtual host {vhost}", timeout_s=_KNOWN_WITHIN_S)

    def start(self, *, alone: Collection[str]) -> RunningApplication:  # noqa: ARG002 - each process is alone
        return RunningApplication(
            self._workload,
            self._place.cluster,
            vhost=self._place.vhost,
            folder=self._place.history,
            logs=self._place.logs,
            record=self._place.events.record,
        )

    def await_flow(self, context: FaultContext) -> Mapping[str, QueuePlace]:
        load = context.load
        assert isinstance(load, RunningApplication)
        load.await_flowing()
        what = "a broker to list the application's queues"
        queues = wait_until(self._read, timeout_s=_KNOWN_WITHIN_S, what=what)
        assert queues is not None
        load.know(queues)
        self._place.events.record("queues", queues=queues.places)
        return queues.places

    def _read(self) -> ApplicationQueues | None:
        try:
            return read_queues(self._place.cluster, self._place.vhost)
        except (ApiError, ApiUnreachable):
            return None

    def declaring(self) -> AbstractContextManager[None]:
        return nullcontext()

    def after_drain(self) -> None:
        """Record nothing: the tap sees what an application declares."""

    def load_event(self, begins_us: int) -> dict[str, Any]:
        awaited = self._workload.unconfirmed == "reported"
        fields: dict[str, Any] = {"rate_per_s": None, "variable_rate": [], "publishers": len(self._workload.instances)}
        return {"begins_us": begins_us, "in_flight": 65_535 if awaited else None, **fields}


KINDS: Mapping[str, Callable[[Scenario, LoadPlace], LoadKind]] = {
    GENERATED: GeneratedKind,
    APPLICATION: ApplicationKind,
}


def _queue_fields(workload: Workload, queues: Sequence[str], routes: Routes) -> dict[str, Any]:
    """Return the fields of the event "queues" that only some loads have."""
    fields: dict[str, Any] = {}
    if workload.drained_queues:
        fields["read_at_drain"] = workload.drained_queues
    if routes.shards:
        fields["shards"] = [[queues[queue] for queue in group] for group in routes.shards]
    if workload.dead_letters is not None:
        stated = workload.dead_letters.model_dump(include={"strategy", "reject_one_in"})
        limited = workload.dead_letters.limited(workload.limits)
        consumers = {"held_s": workload.held_s, "acks": workload.acks}
        fields["dead_letters"] = {"queues": workload.dead_letter_queues, **stated, "limited": limited, **consumers}
        if (delivery_limit := workload.arguments.get("x-delivery-limit")) is not None:
            fields["dead_letters"]["delivery_limit"] = delivery_limit
    return fields
