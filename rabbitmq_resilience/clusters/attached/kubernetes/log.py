"""What containers of brokers print, as the kubelet keeps it: until the pod is gone, and of one container before."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rabbitmq_resilience.clusters.attached.kubernetes.pods import Pods
from rabbitmq_resilience.clusters.attached.machine import MachineError

_TIMEOUT_S = 60.0
#: Asked for beside what was printed since the beginning.
_MARGIN_S = 5
#: Brokers colour what they print; those who read logs do not expect it (ECMA-48, SGR).
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


@dataclass
class PodLog:
    """Lines are told apart by when they were printed (RFC 3339, to the nanosecond), by the clock of their node."""

    pods: Pods
    pod: str
    _last: str = field(default="", init=False)
    _begun_s: float = field(default_factory=time.monotonic, init=False)
    _kept: list[str] = field(default_factory=list, init=False)

    def begin(self) -> None:
        self._kept.clear()
        self._begun_s = time.monotonic()
        with suppress(MachineError):  # it does not run now
            self._last = self._read(tail_lines=1).partition(" ")[0]

    def more(self) -> str:
        self.pull()
        kept, self._kept = self._kept, []
        return "".join(kept)

    def pull(self) -> None:
        """Keep what is there now, as before a pod is deleted, and its log with it."""
        since_s = round(time.monotonic() - self._begun_s) + _MARGIN_S
        for previous in (True, False):
            try:
                text = self._read(since_seconds=since_s, previous=previous)
            except MachineError:
                continue  # there was none before, or it does not run now
            for line in text.splitlines():
                at, _, said = line.partition(" ")
                if printed_at(at) > printed_at(self._last):
                    self._last = at
                    self._kept.append(_COLOUR.sub("", said) + "\n")

    def _read(self, **which: Any) -> str:
        """Raises MachineError."""
        return self.pods.ask(
            f"the log of pod {self.pod}",
            lambda api: str(
                api.read_namespaced_pod_log(
                    self.pod,
                    self.pods.namespace,
                    container=self.pods.container,
                    timestamps=True,
                    _request_timeout=_TIMEOUT_S,
                    **which,
                )
            ),
        )


def printed_at(at: str) -> tuple[str, str]:
    """When a line was printed, to be compared: fractions of a second have as many digits as they need."""
    whole, _, rest = at.rstrip("Z").partition(".")
    return whole, rest.ljust(9, "0")
