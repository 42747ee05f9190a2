"""Several runs of one scenario as one answer: how often it ended how, and whether that is as the scenario expects.

What a scenario says of some runs only (``always: false``) is a rate by nature. Such a scenario neither passes nor
fails: pytest shows it as an expected failure, with its rate as the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.invariants.verdict import Verdict
from rabbitmq_resilience.pages.wording import WORDS
from rabbitmq_resilience.play.judging import Result
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.tables.rate import Rate


@dataclass(frozen=True)
class Repeats:
    """``results``: of the runs of ``scenario``, one at least, in their order."""

    scenario: Scenario
    results: Sequence[Result]

    @property
    def unexpected(self) -> Sequence[Result]:
        """The runs that did not end as expected, those that broke a promise first."""
        wrong = [result for result in self.results if not result.as_expected]
        return sorted(wrong, key=lambda result: result.verdict is not Verdict.INVALID)

    @property
    def told(self) -> str:
        """Each verdict that was seen, worst first, with its rate: ``INVALID in 3 of 10 (11 to 60 %)``."""
        counts = Counter(str(result.verdict) for result in self.results)
        worst_first = sorted(counts, key=lambda word: WORDS.index(word) != 1)
        return "; ".join(f"{word} in {Rate(counts[word], len(self.results))}" for word in worst_first)

    @property
    def is_rate(self) -> bool:
        """Whether the answer is a rate and no pass: an incident that is known to come in some runs only, or such a
        violation wherever it was seen. A scenario that is no incident and held its promises in its one run passed: what
        is known of it there is what may befall any."""
        version = str(self.results[-1].document["broker_version"])
        by_nature = any(not expected.always for expected in self.scenario.expected(version))
        told_of = self.scenario.reference is not None or len(self.results) > 1
        return by_nature and (told_of or any(r.verdict is not Verdict.VALID for r in self.results))


def runs(once: Callable[[str], Result], *, repeat: int, tries: int) -> list[Result]:
    """Return as many runs as are to be repeated; or else, of at most ``tries``, the first that ends as expected or
    breaks a promise, and failing that the last. ``once`` gets the words for people that say which one it plays."""
    if repeat > 1:
        return [once(f"run {number} of {repeat}") for number in range(1, repeat + 1)]
    tried = (once(f"try {number} of {tries}" if number > 1 else "") for number in range(1, tries + 1))
    last: list[Result] = []
    for result in tried:
        last = [result]
        if result.as_expected or result.verdict is Verdict.INVALID:
            break
    return last
