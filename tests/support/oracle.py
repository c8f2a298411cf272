"""The definition itself, by brute force.  Every result is compared with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_simjoin.metrics import make_metric
from tests.support.exact import totals as exact_totals

Norm = int | float
"""Order of the Minkowski distance: at least 1, or `math.inf`."""

AT_ONCE = 1 << 16
"""Pairs that are computed together, so that their totals stay in a cache."""


def squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return all d2 between two sets of points (n, d) and (m, d), as the usual metric
    defines them.
    """
    return totals(x, y)


def totals(
    x: np.ndarray, y: np.ndarray, metric: str = "euclidean", p: Norm = 2
) -> np.ndarray:
    """Return the totals that a metric compares, for all pairs of two sets of rows (n,
    columns) and (m, columns).

    One loop over dimensions: sums of NumPy's (`sum`, `einsum`) add in another order.
    """
    kind = make_metric(metric, p)
    if kind.formula:
        return exact_totals(np.asarray(x, float), np.asarray(y, float), metric)
    x, y = (
        np.ascontiguousarray(kind.embed(np.asarray(side, np.float64), np).T)
        for side in (x, y)
    )
    whole = np.zeros((x.shape[1], y.shape[1]))
    rows = max(1, AT_ONCE // max(1, whole.shape[1]))
    with np.errstate(over="ignore", under="ignore"):
        for start in range(0, len(whole), rows):
            total = whole[start : start + rows]
            t = np.empty_like(total)
            for a, b in zip(x[:, start : start + rows], y, strict=True):
                np.abs(np.subtract.outer(a, b, out=t), out=t)
                if kind.norm == math.inf:
                    np.maximum(total, t, out=total)
                else:
                    total += power(t, kind.norm)
    return whole


def power(a: Any, p: Norm) -> Any:
    """Raise to a power, by squaring and multiplying from the highest bit of the
    exponent on.
    """
    result = a
    for bit in bin(int(p))[3:]:
        result = result * result
        result = result * a if bit == "1" else result
    root, bits = a, int((p - int(p)) * 2**52)
    for bit in f"{bits:052b}".rstrip("0"):
        root = np.sqrt(root)
        result = result * root if bit == "1" else result
    return result


def distances(
    x: np.ndarray, y: np.ndarray, metric: str = "euclidean", p: Norm = 2
) -> np.ndarray:
    """Return all distances between two sets of rows (n, columns) and (m, columns)."""
    total = totals(x, y, metric, p)
    return make_metric(metric, p).distance(total.ravel(), np).reshape(total.shape)


def roots(squared: Any) -> Any:
    """Return the Euclidean distances of totals: the smallest floats whose rounded
    squares are at least the totals, as `tests/metrics/test_inverse.py` checks.
    """
    return make_metric("euclidean").distance(np.array(squared, np.float64), np)


def in_unit(distances: Any, size: float) -> np.ndarray:
    """Return the smallest numbers that give at least these distances when they are
    multiplied by the size of a unit.
    """
    away = np.asarray(distances, np.float64)
    found = np.nextafter(away / size, 0)
    while (short := found * size < away).any():
        found = np.where(short, np.nextafter(found, np.inf), found)
    return found


def brute_force(
    x: np.ndarray, eps: float, metric: str = "euclidean", p: Norm = 2
) -> set[tuple[int, int]]:
    """Return the pairs i < j of rows (n, columns) within eps, by the definition."""
    near = np.triu(totals(x, x, metric, p) <= make_metric(metric, p).threshold(eps), 1)
    return set(zip(*(places.tolist() for places in np.nonzero(near)), strict=True))


def as_set(pairs: Any) -> set[tuple[Any, Any]]:
    """Return the rows (left, right) of a frame of pairs as a set; rows that repeat are
    an error.
    """
    found = list(zip(pairs["left"].tolist(), pairs["right"].tolist(), strict=True))
    unique = set(found)
    assert len(unique) == len(found), (
        f"{len(found) - len(unique)} pairs were returned twice"
    )
    return unique


def assert_same_pairs(found: set[Any], expected: set[Any]) -> None:
    """Fail with the number and a few examples of the pairs that only one of two sets
    has.
    """
    lost, wrong = sorted(expected - found), sorted(found - expected)
    assert not lost and not wrong, (
        f"{len(lost)} of {len(expected)} pairs were lost, such as {lost[:3]}; "
        f"{len(wrong)} are no pairs, such as {wrong[:3]}"
    )
