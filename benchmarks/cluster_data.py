"""Points that are clustered by the benchmarks of clusterings, and what is told of labels."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SEED = 12345

BLOBS = 100
"""Gaussian clusters of the data set of that kind."""

SCALES = 0.003, 0.03
"""Their smallest and largest standard deviation; between them, evenly on a logarithmic scale."""

NOISE = 0.1
"""Share of rows that are in none of them, but anywhere."""


@dataclass(frozen=True)
class Points:
    """One kind of points of the unit square, and how they are clustered, whatever their number.

    Attributes
    ----------
    name : str
    make : callable
        So many points (n, 2) in no order, float64, from a generator.
    spread : float
        ``eps`` for one row; it shrinks with the root of their number, so that a row's number of
        neighbours stays the same.
    min_samples : int
    """

    name: str
    make: Callable[[np.random.Generator, int], np.ndarray]
    spread: float
    min_samples: int

    def points(self, n: int, part: int = 0) -> np.ndarray:
        """The points (n, 2), float64, of one of many parts; the same in every process."""
        return self.make(np.random.default_rng((SEED, part)), n)

    def eps(self, n: int) -> float:
        """The distance for `n` rows, a number that float32 holds: peers may convert it."""
        return float(np.float32(self.spread / math.sqrt(n)))


def _uniform(random: np.random.Generator, n: int) -> np.ndarray:
    return random.random((n, 2))


def _blobs(random: np.random.Generator, n: int) -> np.ndarray:
    known = np.random.default_rng(SEED)  # the same clusters for every part
    centers = known.uniform(0.1, 0.9, (BLOBS, 2))
    scales = np.exp(known.uniform(*np.log(SCALES), BLOBS))
    which = random.integers(0, BLOBS, n)
    x = centers[which] + scales[which, None] * random.standard_normal((n, 2))
    anywhere = random.random(n) < NOISE
    x[anywhere] = random.random((int(anywhere.sum()), 2))
    return x % 1.0


UNIFORM_NEIGHBORS = 10
"""Of a uniform row."""

_ALL = (
    # half of the rows are core rows then, and they just do not all hang together
    Points("uniform", _uniform, math.sqrt(UNIFORM_NEIGHBORS / math.pi), 11),
    # 54 neighbours on average, 500 in the middle of the narrowest blobs; the widest fall apart
    Points("blobs", _blobs, 1.0, 10),
)
POINTS = {points.name: points for points in _ALL}


def digest(labels: np.ndarray) -> str:
    """Of labels in the order of their rows, of any integers."""
    return hashlib.sha256(np.ascontiguousarray(labels, np.int64)).hexdigest()[:16]


def told(labels: np.ndarray) -> dict[str, int | str]:
    """Numbers of clusters and of rows of noise, and the digest, of labels that count from 0."""
    return {
        "clusters": int(labels.max(initial=-1)) + 1,
        "noise": int((labels < 0).sum()),
        "digest": digest(labels),
    }
