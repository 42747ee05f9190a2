"""What ends a run on a cluster that is not ours: what its people watch, looked at all the time."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from typing import Any

from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests import Session
from requests.adapters import HTTPAdapter

from rabbitmq_resilience.clusters.attached.held_links import on_each
from rabbitmq_resilience.clusters.attached.spec import AbortWhen, Metric
from rabbitmq_resilience.clusters.broker.management import Alarm, ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.tools.closing import Closing

LOOKED_EVERY_S = 2.0
#: What cannot be looked at for so long is taken for the worst.
BLIND_S_MAX = 30.0
ANSWER_TIMEOUT_S = 10


class AbortedError(ClusterError):
    """The run ends: something has come true for which its cluster's people want it to end."""


@dataclass
class _Watch:
    """One thing that is looked at. ``look`` tells why to abort, empty if nothing speaks for it; whatever it raises
    means that nobody could look."""

    what: str
    look: Callable[[], str]
    #: When somebody could look last (``time.monotonic``).
    _seen_s: float = field(default_factory=time.monotonic, init=False)
    _trouble: str = field(default="no look has ended", init=False)
    _reason: str = field(default="", init=False)

    def once(self) -> None:
        try:
            reason = self.look()
        except Exception as error:  # also what nobody has thought of
            self._trouble = f"{type(error).__name__}: {error}"
            return
        self._seen_s = time.monotonic()
        self._reason = self._reason or reason

    def until(self, closed: threading.Event) -> None:
        while not self._reason and not closed.wait(LOOKED_EVERY_S):
            self.once()

    @property
    def reason(self) -> str:
        """Why to abort, which stays a reason; empty without one."""
        if not self._reason and time.monotonic() - self._seen_s >= BLIND_S_MAX:
            self._reason = f"nobody could look at {self.what} for {BLIND_S_MAX:g} s: {self._trouble}"
        return self._reason


class Guard(Closing):
    """Looks until ``close``, at each thing in a thread of its own. Raises AbortedError where it would abort right now.
    ``ours``: the alarms that the run itself has raised."""

    def __init__(
        self, when: AbortWhen, apis: Collection[ManagementApi], ours: Callable[[], Collection[Alarm]] = tuple
    ) -> None:
        self._watches = [_Watch(f"the query {one.query!r}", _metric(one)) for one in when.metrics]
        if when.alarm:
            self._watches.append(_Watch("alarms", partial(_alarms, apis, ours)))
        if when.check is not None:
            self._watches.append(_Watch("the check", partial(_check, when.check)))
        self._closed = threading.Event()
        on_each(self._watches, _Watch.once)
        self.check()
        self._threads = [
            threading.Thread(target=watch.until, args=[self._closed], name=f"guard: {watch.what}", daemon=True)
            for watch in self._watches
        ]
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raises AbortedError once there was a reason; it stays one. What nobody has looked at for long is one too,
        whatever has become of who should look."""
        if reasons := [watch.reason for watch in self._watches if watch.reason]:
            raise AbortedError(f"abort_when of the cluster file: {'; '.join(reasons)}")

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join()


def _alarms(apis: Collection[ManagementApi], ours: Callable[[], Collection[Alarm]]) -> str:
    """As all nodes that answer tell: one that is cut off knows nothing of others' alarms."""

    def told_by(api: ManagementApi) -> set[Alarm] | ApiError | ApiUnreachable:
        try:
            return api.alarms(timeout_s=ANSWER_TIMEOUT_S)
        except (ApiError, ApiUnreachable) as error:
            return error

    answers = on_each(apis, told_by)
    told = [found for found in answers if isinstance(found, set)]
    if not told:
        why = "; ".join(str(answer) for answer in answers if isinstance(answer, Exception))
        raise ClusterError(f"no node tells whether it has one{why and f': {why}'}")
    raised = set().union(*told)
    return ", ".join(f"{node} has an alarm of {what}" for node, what in sorted(raised.difference(ours())))


def _check(command: str) -> str:
    """Run by this machine's shell. The command itself is not told, as there may be a secret in it."""
    try:
        done = subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"it did not end within {ANSWER_TIMEOUT_S} s") from None
    if done.returncode == 0:
        return ""
    words = (done.stderr or done.stdout).strip()[:300] or "it said nothing"
    return f"the check ended with status {done.returncode}: {words}"


def _metric(metric: Metric) -> Callable[[], str]:
    session = Session()
    session.trust_env = False  # a proxy of the user's leads elsewhere
    server = PrometheusConnect(metric.prometheus, session=session, timeout=ANSWER_TIMEOUT_S)
    session.mount(metric.prometheus, HTTPAdapter(max_retries=0))  # it is looked at again soon
    return lambda: _beyond(metric, server.custom_query(metric.query))


def _beyond(metric: Metric, rows: list[dict[str, Any]]) -> str:
    """Which value is beyond its bound; empty if none is. Raises ClusterError where one is no number."""
    values = [float(row["value"][1]) for row in rows]
    for value in values:
        if metric.above is not None and value > metric.above:
            return f"{metric.query} is {value:g}, above {metric.above:g}"
        if metric.below is not None and value < metric.below:
            return f"{metric.query} is {value:g}, below {metric.below:g}"
    if not values:
        raise ClusterError("it has no value")
    if unknown := sum(map(isnan, values)):
        raise ClusterError(f"{unknown} of its {len(values)} values is no number (NaN), as where nothing is measured")
    return ""
