"""Tell whether a run ended as its scenario expects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.checkers.judge import Judgement
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.scenario.expectations import VALID_EXPECTED, Expectation

#: Yields the texts of the brokers' logs.
Logs = Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Ending:
    """What came true in a run: one expectation, or several known defects that met in it."""

    expectations: tuple[Expectation, ...]

    @property
    def excuses(self) -> frozenset[str]:
        """Return the invariants that may be broken."""
        return frozenset[str]().union(*(one.excuses for one in self.expectations))

    def reference(self, of_scenario: str | None) -> str | None:
        """Return the references of all that came true; one without its own has that of the scenario."""
        references = (one.reference or of_scenario for one in self.expectations)
        return " and ".join(dict.fromkeys(filter(None, references))) or None

    def excuses_all(self, judgement: Judgement) -> bool:
        """Return whether each broken invariant may be; one that names no invariant speaks for all."""
        of_any = any(one.invariant is None for one in self.expectations)
        return of_any or _names(judgement, Verdict.INVALID) <= self.excuses

    def unknown(self, judgement: Judgement) -> Collection[str]:
        """Return the invariants that are UNKNOWN, except those that the known violation may break."""
        return sorted(_names(judgement, Verdict.UNKNOWN) - self.excuses)

    def __str__(self) -> str:
        return " and ".join(map(str, self.expectations))


def met(judgement: Judgement, stated: Sequence[Expectation], logs: Logs = tuple) -> Ending | None:
    """Return what came true of the ``stated`` expectations, or None if the run ended otherwise.

    A known violation of one invariant excuses no other one that is broken or UNKNOWN. If several known violations meet
    in one run, each excuses its own: one without a trace must break its invariant itself, so that this is no
    consequence of another one. A violation that leaves a trace in the findings or in a log excuses nothing if the trace
    is missing. An UNKNOWN verdict is never as expected. A violation that shows in some runs is VALID in others.
    """
    if judgement.verdict is Verdict.VALID and any(one.intermittent for one in stated):
        return Ending((VALID_EXPECTED,))
    return next((ending for ending in endings(judgement, stated, logs) if not ending.unknown(judgement)), None)


def meets(judgement: Judgement, expected: Expectation, logs: Logs = tuple) -> bool:
    """Return whether a run ended as one expectation says."""
    return met(judgement, [expected], logs) is not None


def endings(judgement: Judgement, stated: Sequence[Expectation], logs: Logs) -> Iterator[Ending]:
    """Yield what came true of the ``stated`` expectations: each by itself, then several together. Invariants that are
    UNKNOWN are not regarded."""
    if judgement.verdict is Verdict.UNKNOWN:
        return
    shown = [one for one in stated if _is_shown(one, judgement, logs)]
    needed: list[Expectation] = []
    left = _names(judgement, Verdict.INVALID) | _names(judgement, Verdict.UNKNOWN)
    for one in shown:
        excused = one.excuses if one.invariant is not None else _names(judgement, Verdict.INVALID)
        if left & excused and (one.has_trace or not _is_consequence(one, shown)):
            needed.append(one)
            left -= excused
    for ending in (*(Ending((one,)) for one in shown), Ending(tuple(needed))):
        if ending.expectations and ending.excuses_all(judgement):
            yield ending


def _is_consequence(one: Expectation, shown: Sequence[Expectation]) -> bool:
    """Return whether its invariant may be broken by another defect that is shown."""
    return any(one.invariant in other.invariants_also for other in shown if other is not one)


def _is_shown(expected: Expectation, judgement: Judgement, logs: Logs) -> bool:
    """Return whether the verdict is as expected, the named invariant is broken, and the named traces are there."""
    if judgement.verdict is not expected.verdict:
        return False
    if expected.invariant is not None and expected.invariant not in _names(judgement, expected.verdict):
        return False
    return expected.is_shown_by(judgement.findings, logs)


def _names(judgement: Judgement, verdict: Verdict) -> frozenset[str]:
    return frozenset(name for name, finding in judgement.findings.items() if finding.verdict is verdict)
