"""End a run on a cluster that is not ours if a condition of ``abort_when`` comes true, checked all the time."""

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

from rabbitmq_resilience.extensions.attached.cluster_model import AbortWhen, BoundedMetric
from rabbitmq_resilience.extensions.attached.held_links import on_each
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker.management import Alarm, ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.tools.closing import Closing

LOOKED_EVERY_S = 2.0
#: A condition that cannot be checked for so long counts as true.
BLIND_S_MAX = 30.0
ANSWER_TIMEOUT_S = 10


class AbortedError(ClusterError):
    """The run ends, as a condition of ``abort_when`` has come true."""


@dataclass
class _Watch:
    """One condition that is checked.

    ``look`` returns why to abort, or an empty text. If it raises any exception, the condition could not be checked.
    """

    what: str
    look: Callable[[], str]
    #: When the condition was last checked with success (``time.monotonic``).
    _seen_s: float = field(default_factory=time.monotonic, init=False)
    _trouble: str = field(default="no attempt has ended", init=False)
    _reason: str = field(default="", init=False)

    def once(self) -> None:
        try:
            reason = self.look()
        except Exception as error:  # also an unforeseen one
            self._trouble = f"{type(error).__name__}: {error}"
            return
        self._seen_s = time.monotonic()
        self._reason = self._reason or reason

    def until(self, closed: threading.Event) -> None:
        while not self._reason and not closed.wait(LOOKED_EVERY_S):
            self.once()

    @property
    def reason(self) -> str:
        """Return why to abort, or an empty text. Once there is a reason, it stays."""
        if not self._reason and time.monotonic() - self._seen_s >= BLIND_S_MAX:
            self._reason = f"{self.what} gave no result for {BLIND_S_MAX:g} s: {self._trouble}"
        return self._reason


class Guard(Closing):
    """Check the conditions of ``abort_when`` until ``close``, each in a thread of its own.

    Raise AbortedError if one of them holds at the beginning. ``ours``: the alarms that the run itself has raised.
    """

    def __init__(
        self, when: AbortWhen, apis: Collection[ManagementApi], ours: Callable[[], Collection[Alarm]] = tuple
    ) -> None:
        self._watches = [_Watch(f"the query {one.query!r}", _metric(one)) for one in when.metrics]
        if when.alarm:
            self._watches.append(_Watch("the search for alarms", partial(_alarms, apis, ours)))
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
        """Raise AbortedError if there was a reason to abort at any time.

        A condition that was not checked for long is such a reason, even if its thread has died.
        """
        if reasons := [watch.reason for watch in self._watches if watch.reason]:
            raise AbortedError(f"abort_when of the cluster file: {'; '.join(reasons)}")

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join()


def _alarms(apis: Collection[ManagementApi], ours: Callable[[], Collection[Alarm]]) -> str:
    """Return, in words, the alarms that are not ours. Raise ClusterError if no node reports alarms.

    All nodes are asked, as a node that is cut off does not know the alarms of the others.
    """

    def reported_by(api: ManagementApi) -> set[Alarm] | ApiError | ApiUnreachable:
        try:
            return api.alarms(timeout_s=ANSWER_TIMEOUT_S)
        except (ApiError, ApiUnreachable) as error:
            return error

    answers = on_each(apis, reported_by)
    reported = [found for found in answers if isinstance(found, set)]
    if not reported:
        why = "; ".join(str(answer) for answer in answers if isinstance(answer, Exception))
        raise ClusterError(f"no node reports its alarms{why and f': {why}'}")
    raised = set().union(*reported)
    return ", ".join(f"{node} has an alarm of {what}" for node, what in sorted(raised.difference(ours())))


def _check(command: str) -> str:
    """Run the check by this machine's shell, and return why to abort, or an empty text.

    The text never has the command in it, as that may hold a secret.
    """
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
    words = (done.stderr or done.stdout).strip()[:300] or "it printed nothing"
    return f"the check ended with status {done.returncode}: {words}"


def _metric(metric: BoundedMetric) -> Callable[[], str]:
    session = Session()
    session.trust_env = False  # the user's proxy may not reach the server
    server = PrometheusConnect(metric.prometheus, session=session, timeout=ANSWER_TIMEOUT_S)
    session.mount(metric.prometheus, HTTPAdapter(max_retries=0))  # the next check comes soon
    return lambda: _beyond(metric, server.custom_query(metric.query))


def _beyond(metric: BoundedMetric, rows: list[dict[str, Any]]) -> str:
    """Return, in words, which value is beyond its bound; empty if none is.

    Raise ClusterError if there is no value, or if one is no number.
    """
    values = [float(row["value"][1]) for row in rows]
    for value in values:
        if metric.above is not None and value > metric.above:
            return f"{metric.query} is {value:g}, above {metric.above:g}"
        if metric.below is not None and value < metric.below:
            return f"{metric.query} is {value:g}, below {metric.below:g}"
    if not values:
        raise ClusterError("it has no value")
    if unknown := sum(map(isnan, values)):
        raise ClusterError(f"{unknown} of its {len(values)} values is no number (NaN), as if nothing was measured")
    return ""
