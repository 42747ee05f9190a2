"""Check before any connection is opened whether this machine allows all connections of a load."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rabbitmq_resilience.sut.balancing import connections_max
from rabbitmq_resilience.workload.churn import UNDER_WAY_MAX
from rabbitmq_resilience.workload.load import IDLE_TOGETHER, PROCESSES_MAX
from rabbitmq_resilience.workload.workload_model import Workload

PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Files, pipes and the like that a process has open in addition to its connections.
OTHERS = 64


@dataclass(frozen=True)
class Limits:
    """The limits for connections. None: no limit is known.

    ``descriptors``: the number of descriptors to which a process may raise its limit. ``broker_descriptors``: those of
    each broker. ``ports``: the number of this machine's ports for connections to one address.
    """

    descriptors: int | None = None
    broker_descriptors: int | None = None
    ports: int | None = None

    @classmethod
    def of_this_machine(cls, *, broker_descriptors: int | None) -> Self:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(None if hard == resource.RLIM_INFINITY else hard, broker_descriptors, _ports())

    def problems(
        self,
        workload: Workload,
        *,
        addresses: int,
        brokers: int,
        balanced: bool = False,
        away: int = 0,
        proxied: bool = False,
    ) -> Iterator[tuple[str, str]]:
        """Yield (field, reason) for each field of the workload that has too many clients.

        Clients are spread evenly over the ``addresses``, and connections over the ``brokers``. ``balanced``: the
        addresses are load balancers, and a step takes ``away`` of them at once. ``proxied``: all connections go through
        the one process of proxies.
        """
        together = {
            "publishers": math.ceil(workload.publishers / PROCESSES_MAX),
            "consumers": math.ceil(workload.consumers / PROCESSES_MAX),
            "idle_connections": min(workload.idle_connections, IDLE_TOGETHER),
        }
        for field, count in together.items():
            if self.descriptors is not None and count + OTHERS > self.descriptors:
                yield (
                    field,
                    f"a process with {count} of {getattr(workload, field)} connections needs "
                    f"{count + OTHERS} descriptors, and may have {self.descriptors} (ulimit -H -n); have fewer, or "
                    "raise that limit",
                )
        total = workload.publishers + workload.consumers + workload.idle_connections
        total += UNDER_WAY_MAX if workload.churn else 0
        field = "idle_connections" if workload.idle_connections > total / 2 else "publishers"
        each = math.ceil(total / brokers)
        if self.broker_descriptors is not None and each > _sockets(self.broker_descriptors):
            yield (
                field,
                f"{total} connections are {each} to each of {brokers} nodes, and with {self.broker_descriptors} "
                f"descriptors (ulimit -H -n) RabbitMQ takes {_sockets(self.broker_descriptors)}; have fewer "
                "connections or more nodes, or raise that limit",
            )
        if proxied and self.descriptors is not None and 2 * total + OTHERS > self.descriptors:
            yield (
                field,
                f"{total} connections through the proxies of one process need {2 * total + OTHERS} descriptors, and it "
                f"may have {self.descriptors} (ulimit -H -n); have fewer connections, or leave their links unchanged",
            )
        each = math.ceil(total / addresses)
        at_left = math.ceil(total / (addresses - away)) if away < addresses else 0
        if balanced and max(each, at_left) > (most := connections_max(self.descriptors)):
            meanwhile = f", and {at_left} while a step takes {away} of them away" if away else ""
            yield (
                field,
                f"{total} connections are {each} to each of {addresses} load balancers{meanwhile}; one takes {most}. "
                "Have fewer connections or more balancers, or raise the limit of descriptors (ulimit -H -n)",
            )
        if self.ports is not None and each > self.ports:
            yield (
                field,
                f"{total} connections are {each} to each of {addresses} addresses, and this machine has {self.ports} "
                "ports for connections to one address (net.ipv4.ip_local_port_range); have fewer connections, or more "
                "nodes or balancers, or widen that range",
            )


def _sockets(descriptors: int) -> int:
    """Return how many connections RabbitMQ takes with these descriptors (file_handle_cache:obtain_limit)."""
    return int((descriptors - 100) * 0.9) - 2


def _ports() -> int | None:
    try:
        lowest, highest = map(int, PORT_RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None
    return highest - lowest + 1
