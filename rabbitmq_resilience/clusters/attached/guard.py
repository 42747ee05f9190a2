"""What ends a run on a cluster that is not ours: what its people watch, looked at all the time."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests import RequestException, Session
from requests.adapters import HTTPAdapter

from rabbitmq_resilience.clusters.attached.spec import AbortWhen, Metric
from rabbitmq_resilience.clusters.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.tools.closing import Closing

LOOKED_EVERY_S = 2.0
#: What cannot be looked at for so long is taken for the worst.
BLIND_S_MAX = 30.0
_ANSWER_TIMEOUT_S = 10

_ALARMS = {"mem_alarm": "memory", "disk_free_alarm": "disk"}


class AbortedError(ClusterError):
    """The run ends: something has come true for which its cluster's people want it to end."""


class _Look(Protocol):
    def __call__(self) -> str:
        """Why to abort; empty if nothing speaks for it. Raises _Blind."""
        ...


class _Blind(Exception):
    """It could not be looked at."""


class Guard(Closing):
    """Looks until ``close``, in a thread of its own. Raises AbortedError where it would abort right now. ``ours``: the
    nodes whose alarms the run itself has raised."""

    def __init__(
        self, when: AbortWhen, apis: Collection[ManagementApi], ours: Callable[[], Collection[str]] = tuple
    ) -> None:
        self._looks: list[tuple[str, _Look]] = []
        if when.alarm:
            self._looks.append(("alarms", lambda: _alarms(apis, ours)))
        if when.check is not None:
            command = when.check
            self._looks.append((f"the check {command!r}", lambda: _check(command)))
        self._looks += [(f"the query {metric.query!r}", _metric(metric)) for metric in when.metrics]
        self._blind_since_s: dict[str, float] = {}
        self._reason = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="guard", daemon=True)
        self._look()
        self.check()
        if self._looks:
            self._thread.start()

    def check(self) -> None:
        """Raises AbortedError once there was a reason; it stays one."""
        if self._reason:
            raise AbortedError(f"abort_when of the cluster file: {self._reason}")

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._reason and not self._closed.wait(LOOKED_EVERY_S):
            self._look()

    def _look(self) -> None:
        for what, look in self._looks:
            now_s = time.monotonic()
            try:
                reason = look()
            except _Blind as error:
                since_s = self._blind_since_s.setdefault(what, now_s)
                reason = f"nobody could look at {what} for {BLIND_S_MAX:g} s: {error}"
                if time.monotonic() - since_s < BLIND_S_MAX:
                    continue
            else:
                self._blind_since_s.pop(what, None)
            if reason:
                self._reason = reason
                return


def _alarms(apis: Collection[ManagementApi], ours: Callable[[], Collection[str]]) -> str:
    """As any node that answers tells."""
    trouble = "no node answers"
    for api in apis:
        try:
            rows = api.get("nodes", params={"columns": f"name,{','.join(_ALARMS)}"}, timeout_s=_ANSWER_TIMEOUT_S)
        except (ApiError, ApiUnreachable) as error:
            trouble = str(error)
            continue
        others = [row for row in rows if row["name"] not in ours()]
        told = [
            f"{row['name']} has an alarm of {what}" for row in others for key, what in _ALARMS.items() if row.get(key)
        ]
        return ", ".join(told)
    raise _Blind(trouble)


def _check(command: str) -> str:
    """Run by this machine's shell."""
    try:
        done = subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Blind(str(error)) from error
    if done.returncode == 0:
        return ""
    words = (done.stderr or done.stdout).strip()[:300] or "it said nothing"
    return f"the check {command!r} ended with status {done.returncode}: {words}"


def _metric(metric: Metric) -> _Look:
    session = Session()
    session.trust_env = False  # a proxy of the user's leads elsewhere
    server = PrometheusConnect(metric.prometheus, session=session, timeout=_ANSWER_TIMEOUT_S)
    session.mount(metric.prometheus, HTTPAdapter(max_retries=0))  # it is looked at again soon

    def look() -> str:
        try:
            rows: list[dict[str, Any]] = server.custom_query(metric.query)
            values = [float(row["value"][1]) for row in rows]
        except (PrometheusApiClientException, RequestException, KeyError, ValueError, TypeError) as error:
            raise _Blind(str(error)) from error
        if not values:
            raise _Blind("it has no value")
        if metric.above is not None and max(values) > metric.above:
            return f"{metric.query} is {max(values):g}, above {metric.above:g}"
        if metric.below is not None and min(values) < metric.below:
            return f"{metric.query} is {min(values):g}, below {metric.below:g}"
        return ""

    return look
