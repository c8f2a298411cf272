"""Points with unlike columns: scales, subspaces, skew, and real tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.harness.points import SEED

ROWS_AT_FIRST = 60_000
"""Points of most data sets.  With more points the space grows, so that each keeps about
as many neighbors.
"""

Random = np.random.Generator


@dataclass(frozen=True)
class Columns:
    """One data set and one distance; `k`: neighbors that are sought instead.

    Attributes
    ----------
    make : callable
        Points (n, d), float64, from a generator, n, and by how many times n is more
        than at first.
    eps : float
    n : int
        Points at first.
    shrinks : int
        Dimensions of a space of fixed size, in which distances shrink where there are
        more points.
    k : int or None
    file : str
        The file with the table, if any.
    """

    make: Callable[[Random, int, float], np.ndarray]
    eps: float
    n: int = ROWS_AT_FIRST
    shrinks: int = 0
    k: int | None = None
    file: str = ""

    def points(self, times: int = 1) -> np.ndarray:
        """Return the points, the same in every process; `times` multiplies their
        number.
        """
        return self.make(np.random.default_rng(SEED), self.n * times, times)

    def distance(self, times: int = 1) -> float:
        """Return the distance for this number of points."""
        return self.eps / times ** (1 / self.shrinks) if self.shrinks else self.eps


def _time(random: Random, n: int, times: float) -> np.ndarray:
    return np.column_stack(
        [np.sort(random.uniform(0, 1e6 * times, n)), random.normal(size=(n, 9))]
    )


def _plane(side: float, narrow: int) -> Callable[[Random, int, float], np.ndarray]:
    def make(random: Random, n: int, times: float) -> np.ndarray:
        wide = random.uniform(0, side * times**0.5, (n, 2))
        return np.column_stack([wide, random.uniform(size=(n, narrow))])

    return make


def _latent(inner: int, dims: int) -> Callable[[Random, int, float], np.ndarray]:
    """Draw normal points of a rotated subspace, with a little noise around it."""

    def make(random: Random, n: int, times: float) -> np.ndarray:
        turned = np.linalg.qr(random.normal(size=(dims, inner)))[0]
        return random.normal(size=(n, inner)) @ turned.T + random.normal(
            0, 0.01, (n, dims)
        )

    return make


def _halving(dims: int) -> Callable[[Random, int, float], np.ndarray]:
    return lambda random, n, times: (
        random.uniform(0, 100, (n, dims)) * 0.5 ** np.arange(dims)
    )


def _lognormal(random: Random, n: int, times: float) -> np.ndarray:
    return np.exp(random.normal(0, 1.5, (n, 6)))


def _walk(random: Random, n: int, times: float) -> np.ndarray:
    return np.cumsum(random.normal(size=(n, 12)), axis=0)


ROWS = {
    "time-9": Columns(_time, 1.5),
    "plane-3": Columns(_plane(1000, 3), 2.0),
    "plane-14": Columns(_plane(600, 14), 1.2, 50_000),
    "plane-14-200k": Columns(_plane(600, 14), 1.2, 200_000),
    "latent-2-16": Columns(_latent(2, 16), 0.05, shrinks=2),
    "latent-3-32": Columns(_latent(3, 32), 0.15, shrinks=3),
    "halving-10": Columns(_halving(10), 3.0, shrinks=5),
    "halving-20": Columns(_halving(20), 3.0, shrinks=5),
    "lognormal-6": Columns(_lognormal, 0.5, shrinks=6),
    "walk-12": Columns(_walk, 5.0),
    "plane-6-knn": Columns(_plane(1000, 6), 0.0, 100_000, k=5),
}
"""Data sets that are drawn."""


def _places(path: Path) -> np.ndarray:
    """Return latitude and longitude in degrees, people, and people in thousands and as
    a logarithm.
    """
    table = pd.read_parquet(path)
    people = table["population"].to_numpy(np.float64)
    columns = [
        table["latitude"],
        table["longitude"],
        people,
        people / 1000,
        np.log1p(people),
    ]
    return np.column_stack([np.asarray(column, np.float64) for column in columns])


def _embeddings(path: Path) -> np.ndarray:
    """Return the first 50 principal components."""
    x = np.stack(pd.read_parquet(path)["embedding"].to_numpy()).astype(np.float64)
    x -= x.mean(axis=0)
    return x @ np.linalg.svd(x, full_matrices=False)[2][:50].T


def tables(folder: Path | None) -> dict[str, Columns]:
    """Read tables from files in a folder, as far as they are there."""
    known = {
        "places-5": (_places, 0.05, None, "places.parquet"),
        "places-5-knn": (_places, 0.0, 5, "places.parquet"),
        "embeddings-50": (_embeddings, 0.3, None, "package_embeddings.parquet"),
    }
    found = {}
    for name, (read, eps, k, file) in known.items():
        if folder is not None and (folder / file).exists():
            x = read(folder / file)
            found[name] = Columns(
                lambda _, n, times, x=x: x, eps, len(x), k=k, file=file
            )  # type: ignore[misc]
    return found
