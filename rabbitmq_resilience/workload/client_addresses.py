"""Find the addresses at which clients reach the brokers of a cluster."""

from __future__ import annotations

from rabbitmq_resilience.model.links import ANY_CLIENT
from rabbitmq_resilience.sut.node_protocol import Endpoints
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.workload.load import Address, worker_name


def addresses(cluster: Endpoints, *, client: str | None = None) -> tuple[Address, ...]:
    """Return the addresses for clients, in the topology's order: its balancers, or without any the nodes for clients.

    They are on the links of ``client``, or with None on the links that clients share. Balancers have no zone.
    """
    topology, of_client = cluster.topology, client or ANY_CLIENT
    places = [(name, "") for name in topology.balancer_names] or [
        (node, zone) for node, zone in topology.nodes if node in topology.client_nodes
    ]
    endpoints = {name: cluster.amqp_endpoint(name, client=of_client) for name, _ in places}
    return tuple(Address(name, at.host, at.port, zone, at.tls_name) for name, zone in places if (at := endpoints[name]))


def proxied_addresses(cluster: Cluster) -> dict[str, tuple[Address, ...]]:
    """Return {worker: its addresses} for the workers whose links have proxies."""
    clients = {link.client for link in cluster.links.proxied} - {None}
    return {worker_name(client): addresses(cluster, client=client) for client in clients if client is not None}
