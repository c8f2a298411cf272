"""The papers' synthetic points, and surrogates of their real ones, which are not at
hand.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers import files

ROWS = 2_000_000

PRESORTED = " presorted"
"""End of the name of points that the host has sorted into unit-wide bins."""


def points(name: str, rows: int) -> np.ndarray:
    """Draw points (rows, d), float64, of a set: Expo2D, Unif6D, Syn16D, skew18,
    mixture2, ...
    """
    if files.is_file(name):
        return files.points_of_file(name, rows)
    if name.endswith(PRESORTED):
        return presorted(points(name.removesuffix(PRESORTED), rows))
    kind = name.rstrip("D").rstrip("0123456789")
    dims = int(name.rstrip("D")[len(kind) :])
    rng = np.random.default_rng(0)
    # the second paper does not give its scale: see the page of these joins
    if kind == "Unif":
        return rng.uniform(0, 100, (rows, dims))
    if kind == "Expo":
        return rng.exponential(2.5, (rows, dims))
    if kind == "Syn":
        return rng.exponential(1 / 40, (rows, dims))
    # columns in ascending order of variance, as the first paper's real sets are
    # unsorted
    if kind == "skew":
        centres = rng.normal(size=(20, dims))
        x = centres[rng.integers(20, size=rows)] + rng.normal(0, 0.1, (rows, dims))
        return x * 2.0 ** (np.arange(dims) % 18 / 2)
    # clusters whose columns have variances from 1 to 32, in no order, as real columns
    # do
    if kind == "mixed":
        centres = rng.normal(size=(20, dims))
        x = centres[rng.integers(20, size=rows)] + rng.normal(0, 0.1, (rows, dims))
        return x * rng.permutation(np.geomspace(1.0, 32**0.5, dims))
    if kind == "mixture":  # of dense and thin places, as on maps of the sky
        centres, spread = rng.uniform(0, 100, (200, dims)), rng.exponential(2.0, 200)
        which = rng.integers(200, size=rows)
        return centres[which] + rng.normal(size=(rows, dims)) * spread[which, None]
    raise ValueError(f"no set of points is called {name!r}")


def presorted(x: np.ndarray) -> np.ndarray:
    """Sort points by their whole numbers, column by column, as GPU-Join does on the
    host before all else.
    """
    bins = np.floor(x).astype(np.int32)
    return x[np.lexsort(bins.T[::-1])]


def distance_of(x: np.ndarray, neighbours: float) -> float:
    """Estimate from a sample the distance that gives points about this many neighbors."""
    rng = np.random.default_rng(1)
    asked = x[rng.choice(len(x), min(len(x), 200), replace=False)]
    others = x[rng.choice(len(x), min(len(x), 20_000), replace=False)]
    d2 = np.sort([((others - one) ** 2).sum(axis=1) for one in asked], axis=None)
    place = int(len(asked) * (1 + neighbours * len(others) / len(x)))
    return float(np.sqrt(d2[min(place, len(d2) - 1)]))
