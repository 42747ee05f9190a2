"""Cut links by NetworkPolicy: an object that says from where a pod takes packets.

The network plugin of the cluster must enforce it. If it does not, the API server accepts the object all the same, and
the proof of the cut finds that packets still pass. A policy is ours if it has our label, whatever its name is. A policy
does not expire: a watchdog on this machine deletes it, and runs this module as a program.
"""

from __future__ import annotations

import ipaddress
import shlex
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.commanded import OurMachine, key_of
from rabbitmq_resilience.extensions.attached.kubernetes.pods import (
    ANSWERS_WITHIN_S,
    Pods,
    configured,
    connected,
    words_of,
)
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import Kubernetes
from rabbitmq_resilience.extensions.attached.packet_rules import DROP, PacketRule
from rabbitmq_resilience.tools.locations import IMPORTED_FROM

_POD_NAME = "statefulset.kubernetes.io/pod-name"
#: The label that names the receiving pod.
LABEL = "rabbitmq-resilience"
_NOT_FOUND = 404


@dataclass(frozen=True)
class NetworkPolicies:
    """The policies of one receiving pod, used as ``packet_rules.Rules``.

    ``folder``: relative paths in the offer start there."""

    pods: Pods
    pod: str
    #: The Erlang name of the broker, with which the key of the watchdog begins.
    broker: str
    offer: Kubernetes
    folder: Path
    keeper: OurMachine

    tool = "NetworkPolicy"

    @property
    def name(self) -> str:
        return f"resilience-{self.pod}"

    def put(self, rules: Collection[PacketRule], *, for_s: float) -> None:
        """Replace the policy of this pod, or delete it if there are no rules.

        Raise MachineError if a rule is more than a drop of all packets, or if the API server refuses."""
        key = f"{key_of(self.broker)}:policy"
        if not rules:
            if not watchdog.heal(self.keeper, key):
                self._delete()
            return
        if any(rule.treatment != DROP or rule.port is not None for rule in rules):
            raise MachineError("a NetworkPolicy can only drop packets, and only all of them")
        body = self._policy(sorted({rule.address for rule in rules}))
        try:
            with connected(self.pods.configuration) as connection:
                api = client.NetworkingV1Api(connection)
                _refuse_if_others(api, self.pods.namespace, self.pods.get(self.pod).raw.metadata.labels or {})
                watchdog.arm(self.keeper, key, heal=self._deleted_by, after_s=for_s)
                _replaced(api, self.pods.namespace, body)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise MachineError(f"{self.name} in {self.pods.namespace}: {words_of(error)}") from error

    def lost(self) -> Mapping[str, int]:
        """Return nothing: a NetworkPolicy counts no packets."""
        return {}

    def _delete(self) -> None:
        try:
            deleted(self.offer, self.folder, self.name)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise MachineError(f"{self.name} in {self.pods.namespace}: {words_of(error)}") from error

    @property
    def _deleted_by(self) -> str:
        program = [sys.executable, "-m", __name__, self.offer.model_dump_json(), str(self.folder), self.name]
        return f"cd {shlex.quote(str(IMPORTED_FROM))} && exec {shlex.join(program)}"

    def _policy(self, addresses: list[str]) -> dict[str, Any]:
        if _POD_NAME not in (self.pods.get(self.pod).raw.metadata.labels or {}):
            raise MachineError(f"pod {self.pod} has no label {_POD_NAME}, which a NetworkPolicy needs to select it")
        families = {4: "0.0.0.0/0", 6: "::/0"}
        without = {
            family: [str(ipaddress.ip_network(one)) for one in addresses if ipaddress.ip_address(one).version == family]
            for family in families
        }
        others = [
            {"ipBlock": {"cidr": whole, **({"except": without[family]} if without[family] else {})}}
            for family, whole in families.items()
        ]
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": self.name, "labels": {LABEL: self.pod}},
            "spec": {
                "podSelector": {"matchLabels": {_POD_NAME: self.pod}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": others}],
            },
        }


def _refuse_if_others(api: client.NetworkingV1Api, namespace: str, labels: Mapping[str, str]) -> None:
    """Raise MachineError if policies of others may decide what a pod with these labels takes.

    A pod takes what any policy allows, so ours would allow what theirs refuse."""
    listed: Any = api.list_namespaced_network_policy(namespace, _request_timeout=ANSWERS_WITHIN_S)
    others = sorted(one.metadata.name for one in listed.items if not _is_ours(one) and _may_select(one.spec, labels))
    if others:
        raise MachineError(
            f"{namespace} has policies of its own for this pod ({', '.join(others)}); ours would let in what they keep "
            "out"
        )


def _may_select(spec: Any, labels: Mapping[str, str]) -> bool:
    """Return whether a policy may decide what a pod with these labels takes; its expressions are not evaluated."""
    wanted = spec.pod_selector.match_labels or {}
    return "Ingress" in (spec.policy_types or ["Ingress"]) and wanted.items() <= labels.items()


def _is_ours(policy: Any) -> bool:
    return LABEL in (policy.metadata.labels or {})


def _replaced(api: client.NetworkingV1Api, namespace: str, body: dict[str, Any]) -> None:
    """Create the policy, or patch the one that exists."""
    name = body["metadata"]["name"]
    create: Any = api.create_namespaced_network_policy
    try:
        create(namespace, body, _request_timeout=ANSWERS_WITHIN_S)
    except client.ApiException as error:
        if error.reason != "Conflict":
            raise
        api.patch_namespaced_network_policy(name, namespace, body, _request_timeout=ANSWERS_WITHIN_S)


def deleted(offer: Kubernetes, folder: Path, name: str) -> None:
    """Delete the policy of that name if it is ours. A policy that does not exist is no error.

    Raise MachineError if it still exists afterwards, and ApiException or other errors of the client if a request
    fails."""
    with connected(configured(offer, folder)) as connection:
        api = client.NetworkingV1Api(connection)
        try:
            found: Any = api.read_namespaced_network_policy(name, offer.namespace, _request_timeout=ANSWERS_WITHIN_S)
            if not _is_ours(found):
                return
            this_one = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=found.metadata.uid))
            api.delete_namespaced_network_policy(
                name, offer.namespace, body=this_one, _request_timeout=ANSWERS_WITHIN_S
            )
            api.read_namespaced_network_policy(name, offer.namespace, _request_timeout=ANSWERS_WITHIN_S)
        except client.ApiException as error:
            if error.status != _NOT_FOUND:
                raise
        else:
            raise MachineError(f"{name} still exists")


if __name__ == "__main__":
    deleted(Kubernetes.model_validate_json(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
