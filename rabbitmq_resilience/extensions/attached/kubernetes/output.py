"""Follow the output of a container line by line; each line is reported once, also after broken connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rabbitmq_resilience.extensions.attached.kubernetes.containers import FAILURES
from rabbitmq_resilience.extensions.attached.kubernetes.log import printed_at
from rabbitmq_resilience.extensions.attached.kubernetes.pods import ANSWERS_WITHIN_S, Pods
from rabbitmq_resilience.tools.closing import Closing

#: After this time without output the log is requested again: a connection may be lost without an error.
_SILENT_S = 60.0
AGAIN_AFTER_S = 1.0
_MARGIN_S = 5
_ENDS_WITHIN_S = 30.0


class Output(Closing):
    """Pass each line that the container of ``pods`` prints in ``pod`` to ``say``, from the beginning until ``close``.

    ``close`` waits for the last lines."""

    def __init__(self, pods: Pods, pod: str, say: Callable[[str], None]) -> None:
        self._pods = pods
        self._pod = pod
        self._say = say
        self._last = ""
        self._last_s: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"output of {pod}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following, after one last look at the log."""
        self._over.set()
        self._thread.join(_ENDS_WITHIN_S)

    def _follow(self) -> None:
        while True:
            last_time = self._over.is_set()
            try:
                for line in self._lines():
                    self._report(line)
            except FAILURES:
                pass  # the log is requested again
            if last_time:
                return
            self._over.wait(AGAIN_AFTER_S)

    def _report(self, line: str) -> None:
        at, _, said = line.partition(" ")
        if printed_at(at) > printed_at(self._last):
            self._last, self._last_s = at, time.monotonic()
            self._say(said)

    def _lines(self) -> Iterator[str]:
        since: dict[str, Any] = {}
        if self._last_s is not None:
            since["since_seconds"] = round(time.monotonic() - self._last_s) + _MARGIN_S
        with self._pods.api() as api:
            answer: Any = api.read_namespaced_pod_log(
                self._pod,
                self._pods.namespace,
                container=self._pods.container,
                follow=True,
                timestamps=True,
                _preload_content=False,
                _request_timeout=(ANSWERS_WITHIN_S, _SILENT_S),
                **since,
            )
            rest = b""
            for data in answer.stream(decode_content=True):
                *lines, rest = (rest + data).split(b"\n")
                yield from (one.decode(errors="replace") for one in lines)
            if rest and self._over.is_set():  # before that, it may be the beginning of a line, and comes again
                yield rest.decode(errors="replace")
