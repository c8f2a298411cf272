"""Points for the benchmarks of clusterings, and comparisons of labels."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SEED = 12345

BLOBS = 100
"""Number of Gaussian clusters in this kind of data."""

SCALES = 0.003, 0.03
"""Their smallest and largest standard deviation, even on a logarithmic scale."""

NOISE = 0.1
"""Share of rows outside of all clusters, which are uniform."""


@dataclass(frozen=True)
class Points:
    """One kind of points of the unit square, and how they are clustered, whatever their
    number.

    Attributes
    ----------
    name : str
    make : callable
        Draws n points (n, 2) in no order, float64, from a generator.
    spread : float
        ``eps`` for one row; it shrinks with the root of their number, so that a row's
        number of neighbors stays the same.
    min_samples : int
    """

    name: str
    make: Callable[[np.random.Generator, int], np.ndarray]
    spread: float
    min_samples: int

    def points(self, n: int, part: int = 0) -> np.ndarray:
        """Draw the points (n, 2), float64, of one of many parts; the same in every
        process.
        """
        return self.make(np.random.default_rng((SEED, part)), n)

    def eps(self, n: int) -> float:
        """Return the distance for `n` rows as a float32 number, since peers may convert
        it.
        """
        return float(np.float32(self.spread / math.sqrt(n)))


def _uniform(random: np.random.Generator, n: int) -> np.ndarray:
    return random.random((n, 2))


def _blobs(random: np.random.Generator, n: int) -> np.ndarray:
    # the seed is fixed, so that all parts have the same clusters
    known = np.random.default_rng(SEED)
    centers = known.uniform(0.1, 0.9, (BLOBS, 2))
    scales = np.exp(known.uniform(math.log(SCALES[0]), math.log(SCALES[1]), BLOBS))
    which = random.integers(0, BLOBS, n)
    x = centers[which] + scales[which, None] * random.standard_normal((n, 2))
    anywhere = random.random(n) < NOISE
    x[anywhere] = random.random((int(anywhere.sum()), 2))
    return x % 1.0


UNIFORM_NEIGHBORS = 10
"""Mean number of neighbors of a uniform row."""

_ALL = (
    # about half of the rows are core rows then, and not quite all of them are connected
    Points("uniform", _uniform, math.sqrt(UNIFORM_NEIGHBORS / math.pi), 11),
    # 54 neighbors on average, 500 in the middle of the narrowest blobs; the widest
    # blobs split
    Points("blobs", _blobs, 1.0, 10),
)
POINTS = {points.name: points for points in _ALL}


def digest(labels: np.ndarray) -> str:
    """Return a digest of any integer labels in the order of their rows."""
    return hashlib.sha256(np.ascontiguousarray(labels, np.int64).data).hexdigest()[:16]


def told(labels: np.ndarray) -> dict[str, int | str]:
    """Count clusters and rows of noise, and digest the labels, which count from 0."""
    return {
        "clusters": int(labels.max(initial=-1)) + 1,
        "noise": int((labels < 0).sum()),
        "digest": digest(labels),
    }


def differences(
    ours: np.ndarray, theirs: np.ndarray, core: np.ndarray
) -> dict[str, int]:
    """Count the rows whose labels differ, whatever the numbers of the clusters.

    Parameters
    ----------
    ours, theirs : array of int (n,)
        Labels; noise is negative.
    core : array of bool (n,)
        Which rows are core rows.

    Returns
    -------
    dict
        "core rows": that are not with most of their cluster, of either labeling, in the
        other; "noise": that only one of them calls so; "border rows": in both in a
        cluster, but in others, as they may be where they are near several.
    """
    a, b = (np.where(some < 0, -1, some).astype(np.int64) for some in (ours, theirs))
    partner, apart = _partners(b[core], a[core])
    border = ~core & (a >= 0) & (b >= 0)
    return {
        "core rows": max(apart, _partners(a[core], b[core])[1]),
        "noise": int(((a < 0) != (b < 0)).sum()),
        "border rows": int((partner[b[border]] != a[border]).sum()),
    }


def _partners(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, int]:
    """Return for each label of `a` the most frequent label of its rows in `b`, and how
    many rows have another.  Noise has no partner but noise.
    """
    width = int(b.max(initial=-1)) + 2
    codes, times = np.unique((a + 1) * width + b + 1, return_counts=True)
    of, to = codes // width - 1, codes % width - 1
    kept = (of >= 0) & (to >= 0)
    # the most frequent label is written last, so it remains
    order = np.argsort(times[kept], kind="stable")
    partner, most = np.full((2, int(a.max(initial=-1)) + 1), -2)
    partner[of[kept][order]] = to[kept][order]
    most[of[kept][order]] = times[kept][order]
    both_noise = int(times[(of < 0) & (to < 0)].sum())
    return partner, len(a) - int(most[most > 0].sum()) - both_noise


def apart(a: np.ndarray, b: np.ndarray) -> int:
    """Count the rows whose labels differ, after pairing clusters by the number of rows
    that they share.
    """
    # both labels as one number, because sorting pairs takes many times as long
    width = int(b.max(initial=-1)) + 2
    both, times = np.unique(
        (a.astype(np.int64) + 1) * width + b + 1, return_counts=True
    )
    pairs = np.stack([both // width, both % width], axis=1) - 1
    same, taken = int(times[(pairs == -1).all(axis=1)].sum()), (set[int](), set[int]())
    for (one, other), number in sorted(
        zip(pairs.tolist(), times.tolist(), strict=True), key=lambda p: -p[1]
    ):
        if min(one, other) >= 0 and one not in taken[0] and other not in taken[1]:
            taken[0].add(one)
            taken[1].add(other)
            same += number
    return len(a) - same
