"""The latency of a network, and the load balancers in front of the brokers."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.model.base import Spec

BALANCERS_MAX = 4


Count = Annotated[int, Field(ge=1, le=BALANCERS_MAX)]


class HealthCheck(Spec):
    """A balancer opens a connection to each broker every ``inter_s``. After ``fall`` failures it sends no client to
    that broker; after ``rise`` successes it does so again (HAProxy: ``check inter rise fall``)."""

    inter_s: Annotated[float, Field(ge=0.1, le=3600)] = 2
    rise: Annotated[int, Field(ge=1, le=100)] = 2
    fall: Annotated[int, Field(ge=1, le=100)] = 3


class Balancers(Spec):
    """Load balancers (HAProxy) in front of the brokers: ``count`` of them, named ``balancer:0``, ``balancer:1``, ...
    Clients connect only to balancers, and begin at different ones. ``algorithm`` (``balance``) chooses a broker for
    each connection. ``shutdown_sessions``: connections to a broker that failed its checks are closed at once
    (``on-marked-down shutdown-sessions``); otherwise they stay. ``idle_timeout_s``: how long a connection may be idle
    (``timeout client`` and ``timeout server``)."""

    count: Count = 1
    algorithm: Literal["roundrobin", "leastconn", "source", "random"] = "roundrobin"
    check: HealthCheck = HealthCheck()
    shutdown_sessions: bool = True
    idle_timeout_s: Annotated[float, Field(ge=1, le=86_400)] = 10_800


class Delay(Spec, title="delay"):
    """Data on a link arrives ``latency_ms`` later in each direction, plus or minus up to ``jitter_ms``. Both are whole
    milliseconds, as in Toxiproxy. Data arrives in the order in which it was sent."""

    latency_ms: Annotated[int, Field(ge=1, le=10_000)]
    jitter_ms: Annotated[int, Field(ge=0, le=10_000)] = 0

    @model_validator(mode="after")
    def _no_less_than_none(self) -> Self:
        if self.jitter_ms >= self.latency_ms:
            raise ValueError(f"jitter_ms ({self.jitter_ms}) must be less than latency_ms ({self.latency_ms})")
        return self

    @property
    def round_trip_s(self) -> float:
        """Return the longest round trip in seconds."""
        return 2 * (self.latency_ms + self.jitter_ms) / 1000


#: The largest one-way latency, with jitter, at which two sides can connect. Brokers have 7 s for five messages
#: (Erlang's net_setuptime; on 3.10.8 they connect at 1200 ms, and never at 1600). Our clients have 5 s for six.
BROKERS_APART_MS_MAX, CLIENTS_APART_MS_MAX = 1300, 800


class Network(Spec):
    """The latencies of a cluster's network during a run: between brokers of different zones, between brokers of one
    zone, between clients and the places they connect to, between balancers and brokers. Paths without a stated latency
    keep that of the machine. The latencies begin after the brokers have started and joined. Round trips are measured
    before and during the load, even without any latency (``network: {}``). Latency plus jitter is at most 1300 ms
    between brokers, and 800 ms from clients to brokers, including balancers: beyond that, connections time out."""

    between_zones: Delay | None = None
    within_zones: Delay | None = None
    clients: Delay | None = None
    balancers: Delay | None = None

    @model_validator(mode="after")
    def _can_connect(self) -> Self:
        ways = {
            "between_zones": ([self.between_zones], BROKERS_APART_MS_MAX),
            "within_zones": ([self.within_zones], BROKERS_APART_MS_MAX),
            "clients and balancers": ([self.clients, self.balancers], CLIENTS_APART_MS_MAX),
        }
        for field, (delays, most_ms) in ways.items():
            apart_ms = sum(delay.latency_ms + delay.jitter_ms for delay in delays if delay is not None)
            if apart_ms > most_ms:
                raise ValueError(f"{field}: with jitter {apart_ms} ms, but connections time out above {most_ms} ms")
        return self
