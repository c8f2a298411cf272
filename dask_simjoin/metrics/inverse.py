"""Distances of totals: the smallest distance whose threshold is at least the total.

A join finds a pair if its total is at most the threshold of `eps`. So this distance is
the smallest `eps` that finds the pair. It is at most every `eps` that finds the pair,
because thresholds never decrease. It is a single number, so it is the same on every
machine. It may be computed from a near guess, or by a binary search of all floats,
because floats >= 0 sort like their bit patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dask_simjoin.metrics.norms import NORMAL, Array, ArrayModule
from dask_simjoin.sizes import BATCH, IN_CACHE

Threshold = Callable[[Array], Array]
"""A function of distances (n,), float64. It never decreases."""

NEXT = 8
"""A guessed distance is tried with this many floats below and above it."""

LARGEST = int(np.array(np.inf).view(np.int64))
"""Bit pattern of infinity."""


def in_blocks(
    convert: Callable[[Array], Array],
    totals: Array,
    xp: ArrayModule,
    compiled: bool = False,
) -> Array:
    """Convert totals (n,) in place. On the host, convert a block at a time. `compiled`:
    whether a compiled function converts them.
    """
    step = BATCH if compiled else IN_CACHE
    step = step if xp is np else max(len(totals), 1)
    with np.errstate(all="ignore"):
        for start in range(0, len(totals), step):
            some = totals[start : start + step]
            found = convert(some)
            if found is not some:
                some[:] = found
    return totals


def smallest(
    totals: Array, guess: Array, threshold: Threshold, xp: ArrayModule
) -> Array:
    """For each total (n,), return the smallest float >= 0 whose threshold is at least
    the total.

    `guess` (n,), float64 >= 0: floats that are probably near; they are overwritten. An
    infinite total keeps its guess.
    """
    bits = guess.view(np.int64)
    short = threshold(guess) < totals
    bits += short
    # test the next float if the guess is too small, else the previous float
    other = xp.maximum(bits - 1 + short, 0).view(np.float64)
    far = (threshold(other) >= totals) != short
    rows = xp.flatnonzero(far & (bits > 0) & (totals < np.inf))
    if len(rows):
        some, near = _on_host(totals[rows]), _on_host(bits[rows])
        bits[rows] = xp.asarray(_searched(some, near, threshold))
    return guess


def _on_host(values: Array) -> np.ndarray:
    found: np.ndarray = values if isinstance(values, np.ndarray) else values.get()
    return found


def _searched(
    totals: np.ndarray, guess: np.ndarray, threshold: Threshold
) -> np.ndarray:
    """Return the bit patterns of `smallest` by a binary search; `guess`: bit patterns."""
    low = np.maximum(guess - NEXT, -1)
    high = np.minimum(guess + NEXT, LARGEST)

    def enough(bits: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        found: np.ndarray = threshold(bits.view(np.float64)) >= totals[rows]
        return found

    wrong = ((low >= 0) & enough(np.maximum(low, 0))) | ~enough(high)
    low[wrong], high[wrong] = -1, LARGEST
    rows = np.flatnonzero(high - low > 1)
    while len(rows):
        middle = low[rows] + (high[rows] - low[rows]) // 2
        right = enough(middle, rows)
        high[rows[right]], low[rows[~right]] = middle[right], middle[~right]
        rows = rows[high[rows] - low[rows] > 1]
    return high


class HostKernels(Protocol):
    """Compiled functions, which do the same as functions of NumPy in less time."""

    def roots(self, totals: np.ndarray) -> tuple[np.ndarray, bool]:
        """Do the same as `near_roots`."""
        ...

    def short_arcs(
        self, squared: np.ndarray, radius: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do the same as `dask_simjoin.metrics.sphere.short_arcs`."""
        ...


def roots(totals: Array, xp: ArrayModule, kernels: HostKernels | None) -> Array:
    """For each total (n,), return the smallest float whose rounded square is at least
    the total.

    Let r be the rounded root of a total t that is not subnormal, and u the distance
    from r to the float before it. The exact root is at least r - u/2. So the float
    before r has a square of at most ``t - u*sqrt(t) + u*u/4``. This rounds to less than
    t, because ``u*sqrt(t)`` is more than half of the distance from t to the float
    before it. The float after r has a square above t. So the result is r if its rounded
    square is at least t, and else the float after r.
    """
    if xp is not np:
        return _roots_on_device(totals, xp)
    found, exact = kernels.roots(totals) if kernels else near_roots(totals)
    if not exact:
        rows = np.flatnonzero((totals > 0) & (totals < NORMAL))
        if len(rows):
            some = totals[rows]
            found[rows] = smallest(some, np.sqrt(some), np.square, np)
    return found


ROOT = """
    const double t = total;  // `root` may be the same memory
    root = sqrt(t);
    if (t > 0 && __double_as_longlong(t) < 0x0030000000000000ll) {  // 2**-1020
        long long low = 0, high = 0x2010000000000000ll;  // 2**-510
        while (high - low > 1) {
            const long long middle = (low + high) / 2;
            const double other = __longlong_as_double(middle);
            if (__dmul_rn(other, other) >= t) high = middle;
            else low = middle;
        }
        root = __longlong_as_double(high);
    } else if (__dmul_rn(root, root) < t) {
        root = __longlong_as_double(__double_as_longlong(root) + 1);
    }
"""
"""Body of the kernel that finds a root on a GPU."""


def _roots_on_device(totals: Array, xp: ArrayModule) -> Array:
    """Do the work of `roots` on a GPU, in place: arrays of neighbors take most of its
    memory.
    """
    kernel = xp.ElementwiseKernel("float64 total", "float64 root", ROOT, "simjoin_root")
    kernel(totals, totals)
    return totals


def near_roots(totals: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return the roots of totals (n,), and whether all of them are exact. Roots
    of totals below `NORMAL` may not be exact.
    """
    found = np.sqrt(totals)
    bits, short = found.view(np.int64), (found * found).view(np.int64)
    # -1 where the square is too small; shifts are faster than comparisons
    short -= totals.view(np.int64)
    short >>= 63
    bits -= short
    return found, bool(totals.min() >= NORMAL)


def quotients(distances: Array, size: float, xp: ArrayModule) -> Array:
    """Return the smallest numbers that give at least these distances (n,) when they are
    multiplied by `size`.
    """
    return smallest(distances, distances / size, lambda some: some * size, xp)


def largest_finite(threshold: Callable[[float], float]) -> float:
    """Return the largest distance whose threshold is finite."""

    def overflow(distances: np.ndarray) -> np.ndarray:
        return np.array([threshold(one) == np.inf for one in distances.tolist()], float)

    with np.errstate(all="ignore"):
        first = _searched(np.ones(1), np.array([LARGEST]), overflow)
    return float((first - 1).view(np.float64)[0])
