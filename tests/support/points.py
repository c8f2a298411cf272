"""Difficult points: sets of many kinds, and Hypothesis strategies that draw them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from tests.support.oracle import squared_distances

KINDS = (
    "uniform",
    "clusters",
    "lattice",
    "duplicates",
    "offset",
    "huge",
    "tiny",
    "scales",
    "outlier",
    "constant",
    "exponential",
    "unlike",
    "rotated",
    "nearly constant",
    "sentinel",
)
"""Kinds of points that `make_points` makes."""


class Case(NamedTuple):
    """Points, a distance, and the places where points are cut into chunks."""

    x: np.ndarray
    eps: float
    cuts: tuple[int, ...]
    kind: str


def frame_of(x: np.ndarray) -> pd.DataFrame:
    """Return points as a frame with columns c0, c1, ... and a RangeIndex; pandas 2
    would share memory.
    """
    return pd.DataFrame(x, columns=[f"c{k}" for k in range(x.shape[1])], copy=True)


def make_points(kind: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Return points (n, d) of one of the `KINDS`."""
    uniform = rng.uniform(size=(n, d))
    if kind == "clusters":
        centres = rng.uniform(0, 10, (max(1, n // 20), d))
        return centres[rng.integers(len(centres), size=n)] + rng.normal(0, 0.05, (n, d))
    if kind == "lattice":
        return rng.integers(0, 4, (n, d)) * float(
            rng.choice([1.0, 0.1, 1 / 3, 2.0**-30])
        )
    if kind == "duplicates":
        return uniform[rng.integers(max(1, n // 8), size=n)]
    if kind == "offset":
        return uniform + rng.choice([1e6, -1e9, 1e15], size=d)
    if kind == "huge":
        return (uniform - 0.5) * float(rng.choice([1e150, 1e160, 1e300, 3e307]))
    if kind == "tiny":
        return (uniform - 0.5) * float(
            rng.choice([1e-30, 1e-150, 1e-162, 1e-300, 5e-322])
        )
    if kind == "scales":
        return np.exp(rng.normal(0, 12, (n, d)))
    if kind == "outlier":
        uniform[: max(1, n // 50)] *= float(rng.choice([1e6, 1e12, 1e30]))
        return uniform
    if kind == "constant":
        uniform[:, rng.uniform(size=d) < 0.6] = float(rng.choice([0.0, 1e9, -0.0]))
        return uniform
    if kind in ("unlike", "rotated"):
        wide = uniform * 10.0 ** rng.uniform(-6, 6, d) + rng.choice(
            [0.0, 0.0, -1e7], size=d
        )
        return wide if kind == "unlike" else rotated(wide, rng)
    if kind == "nearly constant":
        return np.where(
            rng.uniform(size=d) < 0.6,
            float(rng.choice([1.0, 1e9])) + uniform * 2.0**-40,
            uniform,
        )
    # a value that stands for a missing one lies far away from all others
    if kind == "sentinel":
        return np.where(
            rng.uniform(size=(n, d)) < 0.05, float(rng.choice([-9999.0, 1e20])), uniform
        )
    if kind == "exponential":
        return rng.exponential(1 / 40, (n, d))
    return uniform


def without_overflow(x: np.ndarray, p: float = 2) -> np.ndarray:
    """Divide points by a power of two if their distances could overflow."""
    power, width = (1 if p == np.inf else p), float(np.abs(x).max(initial=0.0))
    largest = (1e300 / max(1, x.shape[1])) ** (1 / power) / 4
    return x if width < largest else x * 2.0**-960


def rotated(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Turn points to other axes; in many dimensions by a few reflections, which are
    fast.
    """
    d = x.shape[1]
    if d <= 64:
        return x @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    for normal in rng.normal(size=(4, d)):
        x = x - np.outer(x @ normal, 2 / (normal @ normal) * normal)
    return x


def a_distance(
    x: np.ndarray,
    rng: np.random.Generator,
    rank: float,
    ulps: int,
    squared: np.ndarray | None = None,
) -> float:
    """Return the distance of two points, moved by `ulps` units in the last place.
    `squared` is all d2, if known.
    """
    if len(x) < 2:
        return float(rng.uniform())
    d2 = (squared_distances(x, x) if squared is None else squared)[
        np.triu_indices(len(x), 1)
    ]
    eps = math.sqrt(
        min(
            np.partition(d2, int(rank * (len(d2) - 1)))[int(rank * (len(d2) - 1))],
            1e300,
        )
    )
    for _ in range(abs(ulps)):
        eps = max(0.0, math.nextafter(eps, math.inf if ulps > 0 else -math.inf))
    return eps


@st.composite
def cases(draw: Any, max_dims: int = 200, max_points: int = 160) -> Case:
    """Draw difficult cases: ties at eps, neighbors one ulp from it, duplicates,
    offsets, extreme scales.
    """
    d = draw(st.one_of(st.integers(1, 9), st.integers(1, max_dims)))
    n = draw(st.integers(0, max_points))
    kind = draw(st.sampled_from(KINDS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = make_points(kind, n, d, rng)
    kinds_of_number = ["f8", "f8", "f4"] + (["i2"] if kind == "lattice" else [])
    number = draw(st.sampled_from(kinds_of_number))
    with np.errstate(over="ignore", under="ignore"):
        x = x.astype(number)
    if not np.isfinite(x).all():
        x = make_points("uniform", n, d, rng).astype(number)
    lattice = [0.0, 1.0, math.sqrt(2), math.sqrt(3), 2.0, math.sqrt(5)]
    choice = draw(st.sampled_from(["a distance", "a distance", "lattice", "zero"]))
    if choice == "a distance":
        rank = draw(st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.5, 1.0]))
        eps = a_distance(x, rng, rank, draw(st.sampled_from([-1, 0, 0, 1])))
    else:
        eps = draw(st.sampled_from(lattice)) if choice == "lattice" else 0.0
    cuts = draw(st.lists(st.integers(0, n), max_size=4))
    return Case(x, eps, tuple(sorted(cuts)), kind)
