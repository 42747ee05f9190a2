"""Write a first cluster file of the brokers that a label selects: ``rabbitmq-resilience find-pods``.

The facts come from the API server, and from the brokers' own tools. Nothing is changed. The file allows nothing yet;
its head says which numbers the shipped scenarios need.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rabbitmq_resilience.extensions.attached.broker_settings import ASK, BrokerSettings, understood
from rabbitmq_resilience.extensions.attached.kubernetes.containers import STATE, ContainerMachine
from rabbitmq_resilience.extensions.attached.kubernetes.pods import ANSWERS_WITHIN_S, Pods, configured, resolved
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import Kubernetes
from rabbitmq_resilience.model.actions import ACTIONS
from rabbitmq_resilience.model.errors import ClusterError

#: Prints the node's own name and that of its cluster, a line each.
_WHO = 'io:format("~s~n~s~n", [node(), rabbit_nodes:cluster_name()]).'
_TOOL_TIMEOUT_S = 60.0
_HEAD = """\
# The {count} pods with the label {label} in {namespace}. Still to be written: the user and the password (by reference),
# and in allow: what may be done, and at how many nodes at once. If each zone has one node, the scenarios of
# faults/platforms need {needed};
# `pytest --cluster THIS_FILE --check-only SCENARIO` says what others need.
"""
#: At how many nodes at once the scenarios of ``faults/platforms`` do each act, on three nodes in three zones.
NEEDED: Mapping[str, int] = {verb: action.on_platforms for verb, action in ACTIONS.items() if action.on_platforms}


def found_file(offer: Kubernetes, label: str) -> str:
    """Return the text of a cluster file. Raise ClusterError if the pods are missing or not alike."""
    pods = Pods(configured(offer, Path.cwd()), offer.namespace, offer.container)
    names = _selected(pods, label)
    answers = {name: _asked(pods, name) for name in names}
    clusters, settings = {who[1] for who, _ in answers.values()}, {each for _, each in answers.values()}
    if len(clusters) > 1 or len(settings) > 1:
        differing = ", ".join(sorted({*clusters, *map(str, settings)}))
        raise ClusterError(f"the pods with the label {label} are not of one cluster, or not alike: {differing}")
    setting = settings.pop()
    nodes = [
        {
            "name": who[0],
            "zone": pods.zone(pods.get(name).node) or "WRITE ITS ZONE HERE",
            "amqp": "port-forward:5672",
            "management": "port-forward:15672",
            "prometheus": "port-forward:15692",
        }
        for name, (who, _) in answers.items()
    ]
    odd = {who[0]: name for name, (who, _) in answers.items() if offer.pod_of(who[0]) != name}
    # Otherwise another context of kubectl would lead the file to another cluster.
    context = resolved(offer, Path.cwd()).context
    offering = offer.model_copy(update={"context": context}).model_dump(mode="json", exclude_defaults=True)
    offering |= {"pods": odd} if odd else {}
    stated: dict[str, Any] = {
        "version": 1,
        "cluster": clusters.pop(),
        "user": {"env": "RABBITMQ_USER"},
        "password": {"env": "RABBITMQ_PASSWORD"},
        **_handling(setting),
        "net_ticktime_s": setting.net_ticktime_s,
        "nodes": sorted(nodes, key=lambda node: (node["zone"], node["name"])),
        "offers": {"kubernetes": offering},
        "allow": {},
    }
    needed = f"allow: {{{', '.join(f'{act}: {nodes}' for act, nodes in NEEDED.items())}}}"
    head = _HEAD.format(count=len(names), label=label, namespace=offer.namespace, needed=needed)
    return head + yaml.safe_dump(stated, sort_keys=False, width=110)


def _handling(setting: BrokerSettings) -> dict[str, Any]:
    """Return the fields for the partition handling.

    The words after ``pause_if_all_down`` name its nodes and how it recovers."""
    first, *rest = setting.handling
    if first != "pause_if_all_down":
        return {"partition_handling": first}
    recover = next((word for word in rest if word in ("ignore", "autoheal")), "ignore")
    named = [word for word in rest if "@" in word]
    return {"partition_handling": first, "pause_if_all_down": {"nodes": named, "recover": recover}}


def _selected(pods: Pods, label: str) -> list[str]:
    listed: Any = pods.ask(
        f"pods with the label {label}",
        lambda api: api.list_namespaced_pod(pods.namespace, label_selector=label, _request_timeout=ANSWERS_WITHIN_S),
    )
    names = sorted(pod.metadata.name for pod in listed.items)
    if not names:
        raise ClusterError(f"{pods.namespace} has no pods with the label {label}")
    return names


def _asked(pods: Pods, name: str) -> tuple[tuple[str, str], BrokerSettings]:
    """Return ((node name, cluster name), settings) as the broker of this pod reports them.

    Raise MachineError if it reports settings that are not understood."""
    machine = ContainerMachine(pods, name, lambda: pods.container, STATE)
    script = 'exec rabbitmqctl -q eval "$1"'
    node, cluster, *_ = machine.run(script, _WHO, timeout_s=_TOOL_TIMEOUT_S).splitlines()
    setting = understood(machine.run(script, ASK, timeout_s=_TOOL_TIMEOUT_S))
    if setting is None:
        raise MachineError(f"{machine.description} reports settings that are not understood")
    return (node.strip(), cluster.strip()), setting


def main(label: str, **stated: Any) -> int:
    """Print the file; return the exit status. ``stated``: fields of ``offers.kubernetes``, None if not stated."""
    try:
        offer = Kubernetes.model_validate({name: value for name, value in stated.items() if value is not None})
        print(found_file(offer, label), end="")
    except (ClusterError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
