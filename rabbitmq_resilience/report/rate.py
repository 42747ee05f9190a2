"""A rate with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
#: How near to 0 or 1 an end of an interval has a digit more.
_NEAR = 0.03


@dataclass(frozen=True)
class Rate:
    """A rate: ``hits`` of ``runs`` runs. Raise ValueError without runs, or if there are more hits than runs."""

    hits: int
    runs: int

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.runs or self.runs < 1:
            raise ValueError(f"{self.hits} of {self.runs} runs is no rate")

    @property
    def interval(self) -> tuple[float, float]:
        """Return Wilson's score interval, which holds the true rate with CONFIDENCE.

        It is valid for few runs too, even if all or none were hits (E. B. Wilson, Journal of the American Statistical
        Association 22, 1927)."""
        z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        share, weight = self.hits / self.runs, z * z / self.runs
        middle = (share + weight / 2) / (1 + weight)
        reach = z / (1 + weight) * math.sqrt(share * (1 - share) / self.runs + weight / (4 * self.runs))
        return max(0.0, middle - reach), min(1.0, middle + reach)

    def __str__(self) -> str:
        low, high = map(_edge_text, self.interval)
        return f"{self.hits} of {self.runs} ({low} to {high} %)"


def _edge_text(edge: float) -> str:
    """Return an end of an interval in percent, with a digit more near 0 and 1, so that it is not taken for them."""
    percent = round(100 * edge, 6)  # sums of fractions miss 0 and 1 by a little
    return f"{percent:.1f}" if 0 < min(percent, 100 - percent) < 100 * _NEAR else f"{percent:.0f}"
