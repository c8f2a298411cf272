"""Number, box, means and variances of points."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.base import spreader_of
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.metrics.types import Array

CACHED_ROWS = 1024
"""Rows whose squares are added at a time, where coordinates of a row lie side by side."""


@dataclass(frozen=True)
class Moments:
    """Number, box, means and sums of squared deviations of points; arrays (d,), float64."""

    rows: int
    lower: np.ndarray
    upper: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Mean squared deviation of each dimension (0 without points)."""
        return self.squares / max(self.rows, 1)


def bounds(x: Array) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest coordinates (d,) of the points `x` (n, d); NaN where one is."""
    if not len(x):
        nowhere = np.full(x.shape[1], np.inf)
        return nowhere, -nowhere
    found: tuple[np.ndarray, np.ndarray] | None = spreader_of(x).bounds(x)
    return found if found is not None else _bounds(x)


def _bounds(x: Array) -> tuple[np.ndarray, np.ndarray]:
    return to_host(x.min(axis=0)), to_host(x.max(axis=0))


def box(x: Array) -> str:
    """A digest of the box of points (n, d); without any, one that says nothing of d."""
    return box_digest(*bounds(x)) if len(x) else ""


def box_digest(lower: np.ndarray, upper: np.ndarray) -> str:
    """A box in a few characters: equal for equal boxes only, as good as certainly."""
    # -0.0 becomes 0.0: which of them is the smaller one depends on the order of rows
    text = (lower + 0.0).tobytes() + (upper + 0.0).tobytes()
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def moments(x: Array) -> Moments:
    """Moments of the points `x` (n, d); a NaN shows in its column's bounds."""
    n, d = x.shape
    if n == 0:
        return Moments(0, *bounds(x), np.zeros(d), np.zeros(d))
    found = spreader_of(x).spread(x)
    if found is not None:
        return Moments(n, *found)
    lower, upper = _bounds(x)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = to_host(x.mean(axis=0))
        for k in np.flatnonzero(~np.isfinite(mean)):  # a sum of finite numbers may overflow
            mean[k] = float((x[:, k] * 0.5**10).mean()) * 2.0**10
        centre, squares = module_of(x).asarray(mean), np.zeros(d)
        step = n if module_of(x) is not np else CACHED_ROWS
        for start in range(0, n, step):
            squares += to_host(((x[start : start + step] - centre) ** 2).sum(axis=0))
    return Moments(n, lower, upper, mean, squares)


def merge_moments(parts: list[Moments]) -> Moments:
    """Moments of all points together (Chan, Golub & LeVeque 1979, pairwise update, neighbours at a time)."""
    filled = [part for part in parts if part.rows]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    rows = np.array([part.rows for part in filled], float)
    lower, upper = (
        np.min([part.lower for part in filled], axis=0),
        np.max([part.upper for part in filled], axis=0),
    )
    mean, squares = (np.array([getattr(part, name) for part in filled]) for name in ("mean", "squares"))
    with np.errstate(over="ignore", invalid="ignore"):
        while len(rows) > 1:
            even = len(rows) // 2 * 2
            first, second = rows[:even:2], rows[1:even:2]
            both, delta = first + second, mean[1:even:2] - mean[:even:2]
            far = delta**2 * (first * second / both)[:, None]
            together = mean[:even:2] + delta * (second / both)[:, None]
            added = squares[:even:2] + squares[1:even:2] + far
            rows = np.concatenate([both, rows[even:]])
            mean, squares = np.concatenate([together, mean[even:]]), np.concatenate([added, squares[even:]])
    return Moments(sum(part.rows for part in filled), lower, upper, mean[0], squares[0])
