"""What containers of brokers print, as the kubelet keeps it: until the pod is gone, and of one container before."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from rabbitmq_resilience.clusters.attached.kubernetes.pods import Pods
from rabbitmq_resilience.clusters.attached.machine import MachineError

_TIMEOUT_S = 60.0


@dataclass
class PodLog:
    """Lines are told apart by when they were printed (RFC 3339, to the nanosecond)."""

    pods: Pods
    pod: str
    _last: str = field(default="", init=False)
    _kept: list[str] = field(default_factory=list, init=False)

    def begin(self) -> None:
        self._kept.clear()
        self._last = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def more(self) -> str:
        self.pull()
        kept, self._kept = self._kept, []
        return "".join(kept)

    def pull(self) -> None:
        """Keep what is there now, as before a pod is deleted, and its log with it."""
        began = datetime.fromisoformat(self._last[:19] + "+00:00")
        since_s = max(1, round((datetime.now(UTC) - began).total_seconds()) + 2)
        for previous in (True, False):
            try:
                text = self.pods.ask(
                    f"the log of pod {self.pod}",
                    lambda api, previous=previous: api.read_namespaced_pod_log(  # type: ignore[misc]
                        self.pod,
                        self.pods.namespace,
                        container=self.pods.container,
                        since_seconds=since_s,
                        timestamps=True,
                        previous=previous,
                        _request_timeout=_TIMEOUT_S,
                    ),
                )
            except MachineError:
                continue  # there was none before, or it does not run now
            for line in text.splitlines():
                at, _, said = line.partition(" ")
                if _sorted(at) > _sorted(self._last):
                    self._last = at
                    self._kept.append(said + "\n")


def _sorted(at: str) -> tuple[str, str]:
    """Fractions of a second have as many digits as they need."""
    whole, _, rest = at.rstrip("Z").partition(".")
    return whole, rest.ljust(9, "0")
