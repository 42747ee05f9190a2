"""Save alerts from a Prometheus server to a file: the samples become stretches of time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests import RequestException, Session

from rabbitmq_resilience.history.recorded_alerts import LATE_S, Active, RecordedAlerts, RuleGroup, write_alerts
from rabbitmq_resilience.history.scraped import ANSWER_TIMEOUT_S, STRETCH, Clocks, ScrapeError, stretches
from rabbitmq_resilience.model.alert_rules import EVALUATED, GROUP_LABEL, RuleFile

#: The labels that every alert has.
_COMMON = ("__name__", "alertname", "alertstate")

_Labels = tuple[tuple[str, str], ...]


def save_alerts(url: str, into: Path, rules: Sequence[RuleFile], clocks: Clocks, *, until_us: int) -> list[str]:
    """Write which alerts were active from ``clocks`` until ``until_us``. Return, for people, the rules that could not
    be evaluated and why. Raise ``ScrapeError``."""
    session = Session()
    session.trust_env = False  # the user's proxy does not lead to this server
    groups = [group for file in rules for group in file.groups]
    try:
        with PrometheusConnect(url, session=session, timeout=ANSWER_TIMEOUT_S) as server:
            evaluated = _samples(server, EVALUATED, clocks, until_us)
            active = _samples(server, "ALERTS", clocks, until_us)
            rule_groups = session.get(f"{url}/api/v1/rules", timeout=ANSWER_TIMEOUT_S).json()["data"]["groups"]
    except (PrometheusApiClientException, RequestException, ValueError, KeyError) as error:
        raise ScrapeError(f"the alerts could not be read from {url}: {error}") from error
    seen = {dict(labels).get(GROUP_LABEL): moments for labels, moments in evaluated.items()}
    of_groups = [
        RuleGroup(
            group.name,
            group.every_s,
            tuple(sorted({rule.alert for rule in group.rules or () if rule.alert})),
            tuple(stretches_of(seen.get(str(number), ()), group.every_s)),
        )
        for number, group in enumerate(groups)
    ]
    evaluations = {
        alert: tuple(seen.get(str(number), ()))
        for number, group in enumerate(of_groups)
        for alert in group.alerts
        if sum(alert in other.alerts for other in of_groups) == 1  # else it is not known which group was evaluated
    }
    write_alerts(RecordedAlerts(of_groups, _active(active, of_groups, evaluations)), into)
    return [
        f"the rule {rule['name']} could not be evaluated: {rule['lastError']}"
        for group in rule_groups
        for rule in group["rules"]
        if rule.get("lastError")
    ]


def _samples(server: PrometheusConnect, series: str, clocks: Clocks, until_us: int) -> dict[_Labels, list[int]]:
    """Return the moments at which each series had a sample, as they were written and not on a grid."""
    found: dict[_Labels, list[int]] = {}
    span_s = int(STRETCH.total_seconds())
    for begin, _ in stretches(clocks.wall(clocks.t_us), clocks.wall(until_us)):
        end_s = begin.timestamp() + span_s
        for one in server.custom_query(f"{series}[{span_s}s]", params={"time": end_s}):
            moments = found.setdefault(tuple(sorted(one["metric"].items())), [])
            later = (int(clocks.monotonic_us(at_s)) for at_s, value in one["values"] if float(value))
            moments += [t_us for t_us in later if t_us <= until_us and (not moments or t_us > moments[-1])]
    return found


def _active(
    samples: Mapping[_Labels, Sequence[int]], groups: Sequence[RuleGroup], evaluations: Mapping[str, Sequence[int]]
) -> list[Active]:
    """Return the alerts of the samples, one for each stretch of time in one state, in the order of time."""
    every_s = {alert: group.every_s for group in groups for alert in group.alerts}
    found = []
    for pairs, moments in ((pairs, moments) for pairs, moments in samples.items() if moments):
        labels: dict[str, Any] = dict(pairs)
        name, state = labels.get("alertname", ""), labels.get("alertstate", "")
        own = {key: value for key, value in labels.items() if key not in _COMMON}
        ends = stretches_of(moments, every_s.get(name, 1.0), evaluations.get(name, ()))
        found += [Active(name, state, own, *both) for both in ends]
    return sorted(found, key=lambda one: (one.start_us, one.alert, one.state, sorted(one.labels.items())))


def stretches_of(moments: Sequence[int], every_s: float, evaluations: Sequence[int] = ()) -> Iterator[tuple[int, int]]:
    """Yield the first and the last moment of each stretch. A stretch ends at a gap between moments, or if an evaluation
    lies between two of them: an alert without a sample at an evaluation was not active."""
    apart_us = (2 * every_s + LATE_S) * 1e6
    begin = 0
    for i, t_us in enumerate(moments):
        following = moments[i + 1 : i + 2]
        goes_on = any(
            after - t_us <= apart_us and bisect_left(evaluations, after) <= bisect_right(evaluations, t_us)
            for after in following
        )
        if not goes_on:
            yield moments[begin], t_us
            begin = i + 1
