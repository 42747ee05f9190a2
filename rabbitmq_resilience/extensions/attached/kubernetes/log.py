"""Read the logs of brokers in pods.

The kubelet keeps what a container prints until the pod is gone, and the output of one previous container.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods
from rabbitmq_resilience.extensions.attached.machine import MachineError

_TIMEOUT_S = 60.0
#: How much more than the time since ``begin`` is requested.
_MARGIN_S = 5
#: Brokers colour what they print, and readers of logs do not expect colours (ECMA-48, SGR).
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


@dataclass
class PodLog:
    """The log of one broker's pod.

    A line is new if its timestamp (RFC 3339, to the nanosecond, by the clock of its node) is later than the last."""

    pods: Pods
    pod: str
    _last: str = field(default="", init=False)
    _begun_s: float = field(default_factory=time.monotonic, init=False)
    _kept: list[str] = field(default_factory=list, init=False)

    def begin(self) -> None:
        """Forget all lines up to now."""
        self._kept.clear()
        self._begun_s = time.monotonic()
        with suppress(MachineError):  # the container does not run now
            self._last = self._read(tail_lines=1).partition(" ")[0]

    def more(self) -> str:
        """Return the lines since ``begin`` or the last call, without colours."""
        self.pull()
        kept, self._kept = self._kept, []
        return "".join(kept)

    def pull(self) -> None:
        """Keep the lines up to now: call this before a pod is deleted, as its log is deleted with it."""
        since_s = round(time.monotonic() - self._begun_s) + _MARGIN_S
        for previous in (True, False):
            try:
                text = self._read(since_seconds=since_s, previous=previous)
            except MachineError:
                continue  # there was no previous container, or the container does not run now
            for line in text.splitlines():
                at, _, said = line.partition(" ")
                if printed_at(at) > printed_at(self._last):
                    self._last = at
                    self._kept.append(_COLOUR.sub("", said) + "\n")

    def _read(self, **which: Any) -> str:
        """Return lines with timestamps; ``which``: arguments of the API. Raise MachineError if there is no log."""
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
    """Return a timestamp in a form that can be compared: fractions of a second vary in their number of digits."""
    whole, _, rest = at.rstrip("Z").partition(".")
    return whole, rest.ljust(9, "0")
