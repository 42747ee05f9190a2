"""Check that a scenario's alerting rules are sound, and that they can fire as demanded."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rabbitmq_resilience.checkers.alerts import Alerts
from rabbitmq_resilience.model.alert_rules import (
    AlertGroup,
    AlertRule,
    RulesError,
    duration_s,
    promtool_next_to,
    read_rules,
)
from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.tools.distributions import ToolMissingError, find_prometheus


def rule_problems(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield what is wrong with the files, and what they could never show."""
    demanded = scenario.chosen_invariants.get("alerts")
    if scenario.rule_files and not scenario.metrics:
        yield ("metrics",), "rules are evaluated by a Prometheus server; write metrics: true"
    if demanded is not None and not scenario.rule_files:
        yield ("invariants", "alerts"), "there are no rules that could fire; name their files: rules: alerts.yml"
    groups: list[AlertGroup] = []
    sound = True
    for i, path in enumerate(scenario.rule_files):
        try:
            groups += read_rules(path, promtool=_promtool()).groups if path.is_file() else ()
        except RulesError as error:
            sound = False
            location: Location = ("rules",) if isinstance(scenario.rules, Path) else ("rules", i)
            yield from ((location, line) for line in str(error).splitlines())
    if isinstance(demanded, Alerts) and scenario.rule_files and sound:
        yield from _demanded(scenario, demanded, groups)


def _demanded(scenario: Scenario, alerts: Alerts, groups: Sequence[AlertGroup]) -> Iterator[tuple[Location, str]]:
    rules = [(group, rule) for group in groups for rule in group.rules or () if rule.alert]
    names = {rule.alert: None for _, rule in rules if rule.alert}
    for i, demand in enumerate(alerts.fires):
        at: Location = ("invariants", "alerts", "fires", i)
        if demand.after_step >= len(scenario.schedule):
            steps = f"0 to {len(scenario.schedule) - 1}" if scenario.schedule else "none"
            yield (*at, "after_step"), f"there is no step {demand.after_step}; the schedule has {steps}"
        if demand.alert not in names:
            yield (*at, "alert"), _unknown(demand.alert, list(names))
        elif (least_s := min(_least_s(*one) for one in rules if one[1].alert == demand.alert)) > demand.within_s:
            text = f"{demand.alert} takes {least_s:g} s at least, by the for: of its rule and the interval of its group"
            yield (*at, "within_s"), f"{text}; allow more, or give the run faster rules"
    for i, name in enumerate(alerts.ignored):
        if name not in names:
            yield ("invariants", "alerts", "ignored", i), _unknown(name, list(names))


def _least_s(group: AlertGroup, rule: AlertRule) -> float:
    """Return how long an alert takes at best from its cause on. A rule with ``for:`` is evaluated twice."""
    lasts_s = duration_s(rule.for_)
    return max(lasts_s, group.every_s) if lasts_s else 0


def _unknown(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names) or 'none'}"
    return f"the rules have no alert {name!r}; {hint}"


def _promtool() -> Path | None:
    try:
        return promtool_next_to(find_prometheus())
    except ToolMissingError:
        return None
