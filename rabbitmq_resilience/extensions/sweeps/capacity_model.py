"""Fit a product of powers to cells, by least squares of logarithms, and predict further cells with intervals.

Each cell is one number, the median of its runs. The residuals so contain both the noise and the errors of the model.
The intervals are prediction intervals for one more cell, by Student's distribution. They hold only as far as the powers
do: ``Model.outside`` names the factors that lie outside the measured range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.extensions.sweeps.statistics import ALPHA, ConfidenceInterval
from rabbitmq_resilience.tools.extras import install_command

Floats = npt.NDArray[np.float64]

#: The largest cluster that is considered.
NODES_MAX = 10_000


class TooFewCellsError(ValueError):
    """The model needs more cells, or more different ones. The text says which."""


class NoStatisticsError(Exception):
    """The optional library that has Student's distribution is not installed. The text says how to install it."""

    def __init__(self) -> None:
        super().__init__(f"What a load needs is predicted with the library scipy: {install_command('capacity')}")


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model. ``factors`` are in the order of ``powers``; ``ranges``: the measured range of each.

    ``scatter``: the factor by which a cell usually differs from the model."""

    factors: tuple[str, ...]
    powers: Mapping[str, ConfidenceInterval]
    ranges: Mapping[str, tuple[float, float]]
    cells: int
    scatter: float
    _coefficients: Floats
    _spread: Floats
    _sigma: float
    _reach: float
    _alpha: float

    def predict(self, at: Mapping[str, float]) -> ConfidenceInterval:
        """Return the value that one more cell is expected to have, with its interval."""
        return self.predict_all({name: np.array([at[name]]) for name in self.factors})[0]

    def predict_all(self, at: Mapping[str, Floats]) -> list[ConfidenceInterval]:
        """Return the expected value of one more cell for each element of the arrays ``at`` {factor: numbers}."""
        rows = _rows([at[name] for name in self.factors])
        middles = rows @ self._coefficients
        reaches = self._reach * self._sigma * np.sqrt(1 + np.einsum("ij,jk,ik->i", rows, self._spread, rows))
        with np.errstate(over="ignore"):  # far outside the measured range an interval may reach infinity
            edges = np.exp(np.stack([middles - reaches, middles, middles + reaches], axis=1))
        return [ConfidenceInterval(low, middle, high, 1 - self._alpha) for low, middle, high in edges.tolist()]

    def outside(self, at: Mapping[str, float]) -> list[str]:
        """Return the factors in ``at`` that lie outside the measured range."""
        return [name for name, (low, high) in self.ranges.items() if name in at and not low <= at[name] <= high]

    def nodes_needed(
        self, nodes: str, per_s: float, cores_a_node: float, at: Mapping[str, float]
    ) -> ConfidenceInterval:
        """Return how many nodes of ``cores_a_node`` cores carry ``per_s`` messages a second.

        Infinity if no number up to NODES_MAX does. ``nodes`` is the name of that factor, ``at`` has all others."""
        counts = np.arange(1, NODES_MAX + 1, dtype=np.float64)
        others = {name: np.full(len(counts), value) for name, value in at.items()}
        expected = self.predict_all({**others, nodes: counts})

        def first(edge: str) -> float:
            carried = counts * cores_a_node * np.array([getattr(one, edge) for one in expected])
            enough = np.flatnonzero(carried >= per_s)
            return float(counts[enough[0]]) if len(enough) else math.inf

        return ConfidenceInterval(first("high"), first("middle"), first("low"), 1 - self._alpha)


def fit(cells: Sequence[tuple[Mapping[str, float], float]], *, alpha: float = ALPHA) -> Model:
    """Fit a model to cells ({factor: number}, value), all above 0. Raise TooFewCellsError if they do not suffice."""
    factors = tuple(cells[0][0]) if cells else ()
    if len(cells) < len(factors) + 3:
        needed = f"a model of {len(factors)} factors needs {len(factors) + 3}"
        raise TooFewCellsError(f"{len(cells)} cells have numbers, but {needed}")
    columns = [np.array([at[name] for at, _ in cells], dtype=np.float64) for name in factors]
    rows, values = _rows(columns), np.log([value for _, value in cells])
    if np.linalg.matrix_rank(rows) < rows.shape[1]:
        alike = [name for name, column in zip(factors, columns, strict=True) if np.ptp(column) == 0]
        raise TooFewCellsError(f"{alike[0] if alike else 'a factor'} does not vary by itself in the cells with numbers")
    coefficients = np.asarray(np.linalg.lstsq(rows, values, rcond=None)[0], dtype=np.float64)
    freedom = len(cells) - rows.shape[1]
    sigma = float(np.sqrt(((values - rows @ coefficients) ** 2).sum() / freedom))
    spread = np.asarray(np.linalg.inv(rows.T @ rows), dtype=np.float64)
    reach = _quantile(freedom, 1 - alpha / 2)
    errors = reach * sigma * np.sqrt(np.diag(spread))
    powers = {
        name: ConfidenceInterval(float(power - error), float(power), float(power + error), 1 - alpha)
        for name, power, error in zip(factors, coefficients[1:], errors[1:], strict=True)
    }
    ranges = {name: (float(column.min()), float(column.max())) for name, column in zip(factors, columns, strict=True)}
    return Model(factors, powers, ranges, len(cells), math.exp(sigma), coefficients, spread, sigma, reach, alpha)


def _rows(columns: Sequence[Floats]) -> Floats:
    return np.asarray(np.column_stack([np.ones(len(columns[0])), *map(np.log, columns)]), dtype=np.float64)


def _quantile(freedom: int, part: float) -> float:
    """Return the quantile of Student's distribution with ``freedom`` degrees. Raise NoStatisticsError."""
    try:
        from scipy.special import stdtrit  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        raise NoStatisticsError from None
    return float(stdtrit(freedom, part))
