"""Number, box, means and variances of points."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.engine.compat import module_of, to_host

LONG_ROWS = 16
"""Coordinates from which NumPy is faster row by row, if those of a row lie side by side."""

CACHED_ROWS = 1024
"""Rows whose squares are added at a time."""


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


def bounds(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest coordinates (d,) of the points `x` (n, d); NaN where one is."""
    if not len(x):
        nowhere = np.full(x.shape[1], np.inf)
        return nowhere, -nowhere
    if not _by_column(x):
        return to_host(x.min(axis=0)), to_host(x.max(axis=0))
    return np.array([c.min() for c in _columns(x)]), np.array([c.max() for c in _columns(x)])


def _by_column(x: Any) -> bool:
    """Whether column by column is faster: in NumPy, unless columns lie far apart."""
    return module_of(x) is np and not (x.flags.c_contiguous and x.shape[1] >= LONG_ROWS)


def _columns(x: Any) -> list[Any]:
    return [x[:, k] for k in range(x.shape[1])]


def box(x: Any) -> str:
    """A digest of the box of points (n, d); without any, one that says nothing of d."""
    return box_digest(*bounds(x)) if len(x) else ""


def box_digest(lower: np.ndarray, upper: np.ndarray) -> str:
    """A box in a few characters: equal for equal boxes only, as good as certainly."""
    return hashlib.blake2b(lower.tobytes() + upper.tobytes(), digest_size=12).hexdigest()


def moments(x: Any) -> Moments:
    """Moments of the points `x` (n, d); a NaN shows in its column's bounds."""
    n, d = x.shape
    lower, upper = bounds(x)
    if n == 0:
        return Moments(0, lower, upper, np.zeros(d), np.zeros(d))
    by_column = _by_column(x)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.array([c.mean() for c in _columns(x)]) if by_column else to_host(x.mean(axis=0))
        for k in np.flatnonzero(~np.isfinite(mean)):  # a sum of finite numbers may overflow
            mean[k] = float((x[:, k] * 0.5**10).mean()) * 2.0**10
        if by_column:
            squares = np.array([_squares(c - m) for c, m in zip(_columns(x), mean, strict=True)])
        else:
            centre, squares = module_of(x).asarray(mean), np.zeros(d)
            step = n if module_of(x) is not np else CACHED_ROWS
            for start in range(0, n, step):
                squares += to_host(((x[start : start + step] - centre) ** 2).sum(axis=0))
    return Moments(n, lower, upper, mean, squares)


def _squares(away: np.ndarray) -> float:
    # no np.dot: BLAS would start threads, for more than it is worth
    return float(np.einsum("i,i->", away, away))


def merge_moments(parts: list[Moments]) -> Moments:
    """Moments of all points together (Chan, Golub & LeVeque 1979, pairwise update)."""
    total = parts[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts[1:]:
            if part.rows == 0:
                continue
            if total.rows == 0:
                total = part
                continue
            rows = total.rows + part.rows
            delta = part.mean - total.mean
            total = Moments(
                rows,
                np.minimum(total.lower, part.lower),
                np.maximum(total.upper, part.upper),
                total.mean + delta * (part.rows / rows),
                total.squares + part.squares + delta**2 * (total.rows * part.rows / rows),
            )
    return total
