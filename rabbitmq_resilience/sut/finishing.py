"""Finish a cluster that has just formed: check its RAM nodes, enable feature flags, import definitions."""

from __future__ import annotations

import json

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.configuration import read_user_file
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi


def finish(topology: Topology, api: ManagementApi) -> None:
    """Enable the topology's feature flags and import its definitions by ``api``, the API of the first node.

    Raise ClusterError if a broker refuses that, or if the RAM nodes are not those of the topology.
    """
    _check_ram_nodes(topology, api)
    for flag in topology.enable_feature_flags:
        try:
            api.enable_feature_flag(flag)
        except (ApiError, ApiUnreachable) as error:
            raise ClusterError(f"the feature flag {flag} could not be enabled: {error}") from error
    if topology.definitions is not None:
        text = read_user_file(topology.definitions)
        try:
            api.import_definitions(json.loads(text))
        except ValueError as error:
            raise ClusterError(f"{topology.definitions} is no JSON: {error}") from error
        except (ApiError, ApiUnreachable) as error:
            raise ClusterError(f"the broker refused {topology.definitions}: {error}") from error


def _check_ram_nodes(topology: Topology, api: ManagementApi) -> None:
    listed = api.nodes() if topology.ram_nodes else []
    found = {str(node["name"]).partition("@")[0] for node in listed if node.get("type") == "ram"}
    if found != {*topology.ram_nodes}:
        raise ClusterError(f"the RAM nodes are {sorted(found)} and not {sorted(topology.ram_nodes)}")
