"""Combine several runs of one scenario: how often each verdict came, and whether the scenario expects that.

If a scenario expects a violation in some runs only (``intermittent: true``), its outcome is a rate. Such a scenario
neither passes nor fails: pytest shows it as an expected failure, with the rate as the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.report.rate import Rate
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.model import Scenario


@dataclass(frozen=True)
class Repeats:
    """The ``results`` of one or more runs of ``scenario``, in their order."""

    scenario: Scenario
    results: Sequence[Result]

    @property
    def unexpected(self) -> Sequence[Result]:
        """Return the runs that did not end as expected, INVALID ones first."""
        wrong = [result for result in self.results if not result.as_expected]
        return sorted(wrong, key=lambda result: result.verdict is not Verdict.INVALID)

    @property
    def rates(self) -> str:
        """Return each verdict that came, worst first, with its rate: ``INVALID in 3 of 10 (11 to 60 %)``.

        UNKNOWN runs claim nothing, so they do not count; how many there were comes last."""
        counts = Counter(result.verdict for result in self.results)
        unknown = counts.pop(Verdict.UNKNOWN, 0)
        worst_first = sorted(counts, key=lambda verdict: verdict is not Verdict.INVALID)
        rates = [f"{verdict} in {Rate(counts[verdict], counts.total())}" for verdict in worst_first]
        return "; ".join([*rates, *([f"{unknown} UNKNOWN"] if unknown else [])])

    @property
    def is_rate(self) -> bool:
        """Return whether the outcome is a rate, not a pass.

        It is a rate if a violation is expected in some runs only, and the scenario is an incident, was repeated, or was
        not VALID. Other scenarios pass with one VALID run, as such a violation may come in any scenario.
        """
        version = str(self.results[-1].document["broker_version"])
        by_nature = any(expected.intermittent for expected in self.scenario.expected(version))
        is_shown = self.scenario.reference is not None or len(self.results) > 1
        return by_nature and (is_shown or any(r.verdict is not Verdict.VALID for r in self.results))


def runs(once: Callable[[str], Result], *, repeat: int, tries: int) -> list[Result]:
    """Play a scenario ``repeat`` times and return all results; with ``repeat`` 1, return one result.

    The one result is the first of at most ``tries`` runs that ends as expected or is INVALID, or else the last.
    ``once`` plays one run; it gets words for people that say which run it is.
    """
    if repeat > 1:
        return [once(f"run {number} of {repeat}") for number in range(1, repeat + 1)]
    tried = (once(f"try {number} of {tries}" if number > 1 else "") for number in range(1, tries + 1))
    last: list[Result] = []
    for result in tried:
        last = [result]
        if result.as_expected or result.verdict is Verdict.INVALID:
            break
    return last
