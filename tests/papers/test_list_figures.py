"""Joins by clusters do as little as their figures say; windows are no wider than
rounding makes them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.papers.cluster_index import CENTER_COST, KMeansLayout
from dask_simjoin.papers.cpu import kmeans
from dask_simjoin.papers.lists import WINDOWS, KMeans
from tests.papers.cpu.test_kmeans import clus8, laid_out, one_sided, squares
from tests.support.oracle import brute_force
from tests.support.profiles import in_turns

ROWS = 50_000


@pytest.fixture
def visits(monkeypatch):
    """A function: what share of all pairs a join compares, and how often rows are
    copied; it joins none.
    """
    monkeypatch.setattr(kmeans, "compare", lambda *given: None)

    def visits(index, layout):
        n = len(index["y"])
        told = kmeans.comparisons(index, index, layout, True, lambda left, right: None)
        return told.compared / (n * (n - 1) / 2), told.copies / n

    return visits


@pytest.fixture(scope="module")
def rows():
    return clus8(ROWS)


COMPARED = {
    20: {"one-sided": (0.10, 0.12), "two-sided": (0.12, 0.145), "thesis": (0.17, 0.21)},
    64: {
        "one-sided": (0.0798, 0.0882),
        "two-sided": (0.1425, 0.1575),
        "thesis": (0.4085, 0.4515),
    },
    256: {
        "one-sided": (0.0655, 0.0725),
        "two-sided": (0.1615, 0.1785),
        "thesis": (1.15, 1.2705),
    },
}
"""Clusters and windows, and the share of all pairs compared, of ten clusters in 8
columns at eps = 0.5.

As a script of a few lines counted it, within a twentieth from 64 clusters on; of fewer
it depends on centers.
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [20, 64, pytest.param(256, marks=pytest.mark.slow)])
def test_what_is_compared(number, rows, visits):
    layout = laid_out(rows, 0.5, KMeans(clusters=number))
    index = JOINER.build(rows, layout)
    found = {}
    for windows in WINDOWS:
        way = replace(layout, options=replace(layout.options, windows=windows))
        found[windows], copies = visits(index, way)
        low, high = COMPARED[number][windows]
        assert low <= found[windows] <= high, (windows, found[windows], copies)
    assert found["one-sided"] <= (0.65 if number < 256 else 0.1) * found["thesis"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["clusters", "uniform"])
def test_auto_costs_at_most_a_fifth_more_than_the_best_number(kind, rows, visits):
    x = (
        rows[:20_000]
        if kind == "clusters"
        else np.random.default_rng(0).uniform(0, 10, (20_000, 8))
    )

    def cost(layout: KMeansLayout) -> float:
        compared, _ = visits(JOINER.build(x, layout), layout)
        return compared * len(x) * (len(x) - 1) / 2 + CENTER_COST * len(x) * len(
            layout.centers
        )

    costs = {
        k: cost(laid_out(x, 0.5, KMeans(clusters=k)))
        for k in (1, 4, 8, 16, 32, 64, 128)
    }
    assert cost(laid_out(x, 0.5)) <= 1.2 * min(costs.values())
    assert min(costs, key=lambda k: costs[k]) not in (1, 128)


def test_windows_that_reach_beyond_wrong_labels_serve_any():
    """Labels that are not nearest take windows wider by as far as rows of the other one
    lie on this side.
    """
    x, eps = clus8(600), 0.8
    rng = np.random.default_rng(0)
    centers = x[rng.permutation(600)[:12]]
    labels = squares(x, centers).argmin(axis=1)
    labels = np.where(rng.uniform(size=600) < 0.3, rng.integers(12, size=600), labels)
    expected = brute_force(x, eps)
    assert len(set(one_sided(x, labels, centers, eps))) < 0.97 * len(expected)
    found = one_sided(x, labels, centers, eps, beyond=True)
    assert len(found) == len(set(found)) and set(found) == expected


def exact(x: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(value) for value in row] for row in x.tolist()]


def total(one: list[Fraction], other: list[Fraction], norm: float) -> Fraction:
    parts = [abs(a - b) for a, b in zip(one, other, strict=True)]
    return (
        max(parts)
        if norm == math.inf
        else sum((part**norm for part in parts), Fraction(0))
    )  # type: ignore[operator]


def is_inside(
    here: Fraction, there: Fraction, apart: Fraction, threshold: Fraction, norm: float
) -> bool:
    """Whether h <= eps, of totals from the own centre, from the other, and of both: no
    root is taken.
    """
    f = there - here
    return f <= 0 or (
        f * f <= 4 * threshold * apart if norm == 2 else f <= 2 * threshold
    )


@in_turns(1, offset=[0.0, 1e4, -1e9], norm=[1, 2, math.inf])
def test_windows_hold_what_exact_rationals_say(norm: Any, offset: float):
    """Rows on the window's edge, some units in the last place off: none is lost, and
    few more are in.
    """
    rng = np.random.default_rng(1)
    some = rng.uniform(size=(60, 3)) + offset
    eps = 0.05
    layout = laid_out(some, eps, KMeans(clusters=5), norm)
    centers = layout.centers
    far = max(1.0, abs(offset)) * 2.0**-52
    x = [some]
    for i, j in itertools.permutations(range(len(centers)), 2):
        away = np.abs(centers[i] - centers[j])
        length = away.max() if norm == math.inf else (away**norm).sum() ** (1 / norm)
        edge = centers[i] + (centers[j] - centers[i]) * (0.5 - eps / length)
        x.append(edge + far * rng.integers(-3, 4, (8, 3)))
    points = np.concatenate(x).clip(some.min(0), some.max(0))
    index = JOINER.build(points, layout)
    y, middle, threshold = exact(index["y"]), exact(centers), Fraction(layout.threshold)
    starts = index["starts"].tolist()
    label = np.repeat(np.arange(len(centers)), np.diff(starts))
    edges = 0
    for j in range(len(centers)):
        inside = set(kmeans.near(index, layout, j, len(centers), 1.0).tolist())
        for p in np.flatnonzero(label != j).tolist():
            here, there = (total(y[p], middle[k], norm) for k in (label[p], j))
            apart = total(middle[label[p]], middle[j], norm)
            assert not is_inside(here, there, apart, threshold, norm) or p in inside
            wide = threshold * (1 + Fraction(1, 10**9))
            assert is_inside(here, there, apart, wide, norm) or p not in inside
            near, beyond = (
                threshold * (1 + Fraction(side * 300 * far)) for side in (-1, 1)
            )
            edges += is_inside(here, there, apart, beyond, norm) > is_inside(
                here, there, apart, near, norm
            )
    assert edges > 20
