"""Rows of the benchmark: generated points, a distance, and the known number of pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PLACES = Path(__file__).resolve().parents[2] / "examples" / "data" / "places.parquet"
"""File of the world's towns."""

SEED = 12345
QUICK = 10
"""A quick run divides the number of points by this."""

Maker = Callable[[np.random.Generator, int, int], np.ndarray]


@dataclass(frozen=True)
class Row:
    """One data set and one distance.

    Attributes
    ----------
    name : str
    make : callable
        Points (n, dims) from a generator, n and dims.
    n, dims : int
    eps : float
    goal : float
        How many times faster than the best peer the engine should be.
    pairs : int or None
        Unordered pairs within eps, where known.
    """

    name: str
    make: Maker
    n: int
    dims: int
    eps: float
    goal: float
    pairs: int | None

    def points(self) -> np.ndarray:
        """Return the points (n, dims), float64, which are the same in every process."""
        return self.make(np.random.default_rng(SEED), self.n, self.dims)

    def quick(self) -> Row:
        """Return a smaller row whose points have about as many neighbors."""
        eps = self.eps * QUICK ** (1 / self.dims)
        return Row(
            self.name, self.make, self.n // QUICK, self.dims, eps, self.goal, None
        )


def _uniform(random: np.random.Generator, n: int, dims: int) -> np.ndarray:
    return random.uniform(0, 100, (n, dims))


def _exponential(random: np.random.Generator, n: int, dims: int) -> np.ndarray:
    return random.exponential(1 / 40, (n, dims))


def _clusters(random: np.random.Generator, n: int, dims: int) -> np.ndarray:
    """Draw ten Gaussian clusters."""
    centres = random.uniform(0, 10, (10, dims))
    labels = random.integers(0, 10, n)
    return centres[labels] + random.normal(0, 1, (n, dims)) * 0.3


_ALL = (
    Row("unif2d", _uniform, 1_000_000, 2, 0.2, 6, 6_271_667),
    Row("expo2d", _exponential, 500_000, 2, 0.0003, 7, 13_995_772),
    Row("unif6d", _uniform, 500_000, 6, 13.0, 15, 2_467_238),
    Row("clus8d", _clusters, 100_000, 8, 0.5, 12, 2_813_926),
    Row("expo16d", _exponential, 200_000, 16, 0.045, 10, 4_085_001),
    Row("expo32d", _exponential, 100_000, 32, 0.1, 4, 3_433_032),
    Row("expo64d", _exponential, 100_000, 64, 0.17, 3, 1_573_589),
)

ROWS = {row.name: row for row in _ALL}
