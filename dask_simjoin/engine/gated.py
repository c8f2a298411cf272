"""The layout of joins with gates: see `dask_simjoin.metrics.gates`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.protocols import Layout, MethodSearch
from dask_simjoin.metrics.formulas import (
    BRAY_CURTIS,
    CANBERRA,
    DIFFERENCES,
    HAMMING,
)
from dask_simjoin.metrics.gates import Compared, Gates
from dask_simjoin.metrics.norms import Array, Norm, add


@dataclass(frozen=True)
class GatedLayout:
    """Settings of a join whose candidates are decided by gates and by their totals.

    A point has coordinates, then a coordinate for each tolerance, then words: of gates,
    and of the columns whose numbers decide. The index has no words.
    """

    inner: Layout  # the layout of the index, whose pairs are the candidates
    gates: Gates
    limit: float  # largest total of a pair, without the coordinates of gates
    compared: Compared

    @property
    def method(self) -> str:
        return self.inner.method

    @property
    def norm(self) -> Norm:
        return self.inner.norm

    @property
    def threshold(self) -> float:
        """Largest total of a candidate."""
        return self.inner.threshold

    @property
    def grain(self) -> int:
        return self.inner.grain

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return self.inner.in_words(names)


@dataclass(frozen=True)
class GatedSearch(MethodSearch):
    """Settings of a search for the nearest rows among the pairs of a join."""

    layout: GatedLayout

    @property
    def method(self) -> str:
        return self.layout.method

    @property
    def norm(self) -> Norm:
        return self.layout.norm

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return f"{self.layout.in_words(names)}; rows search among their pairs"


def columns_of_index(layout: GatedLayout, dims: int) -> tuple[int, int]:
    """Return how many columns of points with `dims` columns are in the index, and how
    many of these are coordinates of the metric.
    """
    indexed = dims - layout.gates.words - 2 * layout.compared.numbers
    return indexed, indexed - len(layout.gates.within)


def totals_of(left: Array, right: Array, compared: Compared, norm: Norm) -> Array:
    """Return the totals (n,) of pairs of rows (n, d) in the columns that the metric
    compares. Arrays are of NumPy or CuPy. Each operation rounds as in the kernel
    `decide` of CPUs, so the totals are the same.
    """
    numbers, _, box, formula = compared
    total: Array = left[:, 0] * 0.0
    if formula == DIFFERENCES:
        for k in range(left.shape[1]):
            away = abs(left[:, k] - right[:, k])
            if k < len(box) and box[k]:
                away = np.minimum(away, box[k] - away)
            total = add(total, away, norm)
        return total
    whole: Array = total + (0.0 if formula == BRAY_CURTIS else float(numbers))
    with np.errstate(all="ignore"):
        for k in range(numbers):
            a, b = left[:, k], right[:, k]
            if formula == HAMMING:
                total = total + (a != b)
            elif formula == CANBERRA:
                size = abs(a) + abs(b)
                total = total + np.where(size > 0, abs(a - b) / size, 0.0)
            else:
                total = total + abs(a - b)
                whole = whole + (a + b)
        if formula != CANBERRA:
            total = np.where(whole > 0, total / whole, 0.0)
    for k in range(numbers, left.shape[1]):  # groups
        total = np.where(left[:, k] != right[:, k], math.inf, total)
    return total
