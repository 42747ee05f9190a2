"""Delete all data of a broker: its pod, and the volume claims that its StatefulSet has made for the pod.

The StatefulSet makes new claims. The reclaim policy of the old volumes decides what becomes of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.extensions.attached.kubernetes.pods import (
    ANSWERS_WITHIN_S,
    Pod,
    Pods,
    connected,
    stored_in,
    words_of,
)
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_AGAIN_WITHIN_S = 30.0
GONE_WITHIN_S = 60.0
BACK_WITHIN_S = 120.0
_LOOKED_WITHIN_S = 60.0
_NOT_FOUND = 404
#: How much the clocks of nodes and of the API server may differ.
_CLOCKS_APART_S = 5

#: Prints the total size, in bytes, of the files in some folders that were last written before a time (epoch seconds).
_OLDER = """
set -eu
mark=$(mktemp)
trap 'rm -f "$mark"' EXIT
touch -d "@$1" "$mark"
shift
find "$@" -type f ! -newer "$mark" -exec ls -ln {} + | {
    total=0
    while read -r _ _ _ _ size _; do total=$(( total + size )); done
    echo "$total"
}
"""


@dataclass
class PodClaims:
    """The volume claims of one pod. ``inside``: its broker's container."""

    pods: Pods
    pod: str
    inside: Machine
    #: The deleted claims: uid by name.
    _deleted: dict[str, str] = field(default_factory=dict)
    _folders: list[str] = field(default_factory=list)

    def delete(self) -> None:
        """Delete the claims with their pod, and return once the claims are gone.

        Raise MachineError if the StatefulSet has made no claim for the pod, or if a claim does not go."""
        found = self._awaited()
        mine = self.of(found)
        if not mine:
            raise MachineError(f"pod {self.pod} has no claim that its StatefulSet has made for it; nothing was done")
        stored = stored_in(found.raw, self.pods.container)
        self._folders = [folder for folder, claim in stored.items() if claim in mine]
        self._deleted = {name: self._uid(name) or "" for name in mine}
        for name, uid in self._deleted.items():
            self._delete(name, uid)
        self.pods.delete(self.pod, uid=found.uid, grace_s=0)  # a claim stays as long as a pod uses it
        try:
            wait_until(
                lambda: not self._still_there(),
                timeout_s=GONE_WITHIN_S,
                what=f"the claims {', '.join(mine)} to be gone",
                poll_s=0.5,
            )
        except WaitTimeout as error:
            raise MachineError(str(error)) from error

    def stored_bytes(self) -> int:
        """Return the total size of the files that are older than the claims that the pod has now.

        Raise MachineError if the pod has an old claim, or does not run with new ones in time."""
        if still := self._still_there():
            raise MachineError(f"{', '.join(still)} of pod {self.pod} is still the old claim")
        try:
            wait_until(
                lambda: self.pods.broker_runs(self.pod),
                timeout_s=BACK_WITHIN_S,
                what=f"the broker of {self.pod} to run again, with new claims",
                poll_s=0.5,
            )
        except WaitTimeout as error:
            raise MachineError(str(error)) from error
        made = [new.metadata.creation_timestamp for name in self._deleted if (new := self._read(name)) is not None]
        if len(made) < len(self._deleted):
            raise MachineError(f"pod {self.pod} runs, but has no new claims")
        since = int(min(made).timestamp()) - _CLOCKS_APART_S
        return int(self.inside.run(_OLDER, str(since), *self._folders, timeout_s=_LOOKED_WITHIN_S))

    def of(self, found: Pod) -> list[str]:
        """Return the names of the claims that its StatefulSet has made for the pod, and its broker stores in."""
        owner = next((one for one in found.raw.metadata.owner_references or () if one.kind == "StatefulSet"), None)
        if owner is None:
            return []
        keeper = self._ask(
            f"StatefulSet {owner.name}",
            lambda api: client.AppsV1Api(api).read_namespaced_stateful_set(
                owner.name, self.pods.namespace, _request_timeout=ANSWERS_WITHIN_S
            ),
        )
        made = {f"{one.metadata.name}-{found.name}" for one in keeper.spec.volume_claim_templates or ()}
        return sorted(made & {*stored_in(found.raw, self.pods.container).values()})

    def _awaited(self) -> Pod:
        """Return the pod; wait for it if it was deleted a moment ago. Raise MachineError if it does not come."""
        try:
            wait_until(
                lambda: self.pods.find(self.pod) is not None,
                timeout_s=_AGAIN_WITHIN_S,
                what=f"Kubernetes to make {self.pod} again",
                poll_s=0.5,
            )
        except WaitTimeout as error:
            raise MachineError(str(error)) from error
        return self.pods.get(self.pod)

    def _still_there(self) -> list[str]:
        return [name for name, uid in self._deleted.items() if uid and self._uid(name) == uid]

    def _uid(self, name: str) -> str | None:
        claim = self._read(name)
        return None if claim is None else str(claim.metadata.uid)

    def _read(self, name: str) -> Any:
        def read(api: client.ApiClient) -> Any:
            try:
                return client.CoreV1Api(api).read_namespaced_persistent_volume_claim(
                    name, self.pods.namespace, _request_timeout=ANSWERS_WITHIN_S
                )
            except client.ApiException as error:
                if error.status == _NOT_FOUND:
                    return None
                raise

        return self._ask(f"claim {name}", read)

    def _delete(self, name: str, uid: str) -> None:
        options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=uid))
        self._ask(
            f"claim {name} cannot be deleted",
            lambda api: client.CoreV1Api(api).delete_namespaced_persistent_volume_claim(
                name, self.pods.namespace, body=options, _request_timeout=ANSWERS_WITHIN_S
            ),
        )

    def _ask(self, what: str, call: Any) -> Any:
        try:
            with connected(self.pods.configuration) as api:
                return call(api)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise MachineError(f"{what} in {self.pods.namespace}: {words_of(error)}") from error
