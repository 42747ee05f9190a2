"""Find the gaps between moments of observation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.units import seconds

#: The longest gap that counts as seen. Nodes are looked at twice a second and queues once; busy brokers answer late.
UNSEEN_S_MAX = 10.0
#: The same for nodes alone: a look waits for a moment at each node that does not answer.
UNWATCHED_S_MAX = 6.0


def gaps(moments: Iterable[float], span_us: Period, *, longer_than_s: float) -> list[Period]:
    """Return the gaps over ``longer_than_s`` between the span's ends and the moments (in order) within it."""
    looks = [span_us[0], *(t for t in moments if span_us[0] < t < span_us[1]), span_us[1]]
    return [(a, b) for a, b in itertools.pairwise(looks) if b - a > longer_than_s * 1e6]


def lasting_s(periods: Iterable[Period]) -> float:
    """Return the length of all periods together, in seconds; they must not overlap."""
    return seconds(sum(end - start for start, end in periods))
