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
from dask_simjoin.metrics.gates import Compared, Gates, values_of, words_of
from dask_simjoin.metrics.norms import Array, Index, Norm, add


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
    """Settings of a search for the nearest rows that gates allow, by a tree. Points have
    the columns of `GatedLayout`.
    """

    gates: Gates
    compared: Compared
    norm: Norm = 2

    @property
    def method(self) -> str:
        return "tiles"

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return "a tree of boxes, with the values of conditions"


@dataclass(frozen=True)
class PairsSearch(MethodSearch):
    """Settings of a search for the nearest rows among the pairs of a join. It is faster
    than a tree if rows have few pairs within the largest distance.
    """

    layout: GatedLayout

    @property
    def method(self) -> str:
        return self.layout.method

    @property
    def norm(self) -> Norm:
        return self.layout.norm

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return f"{self.layout.in_words(names)}; rows search among their pairs"


def columns_of_index(layout: GatedLayout | GatedSearch, dims: int) -> tuple[int, int]:
    """Return how many columns of points with `dims` columns are in the index, and how
    many of these are coordinates of the metric.
    """
    indexed = dims - layout.gates.words - 2 * layout.compared.numbers
    return indexed, indexed - len(layout.gates.within)


def decided_by(
    x: Array, y: Array, order: Array, layout: GatedLayout | GatedSearch
) -> Index:
    """Return what an index has besides the entries of the method that finds candidates.

    "values" (n, gates), int64, has the values of gates. The columns whose numbers decide
    follow. "measured" is the number of columns that the metric compares. If their
    numbers decide, "numbers" (n, columns) has them.

    `x`: the points. `y`: the points of the index. `order` (n,): their positions in `x`.
    Arrays are of NumPy or CuPy.
    """
    indexed, measured = columns_of_index(layout, x.shape[1])
    values = values_of(x[:, indexed:])[order]
    found = {"values": values, "measured": measured}
    if layout.compared.numbers:
        numbers = values[:, len(layout.gates.rules) :].view(np.float64)
        others = y[: len(values), layout.compared.coordinates : measured]
        found["numbers"] = np.concatenate([numbers, others], axis=1)
    return found


def every_column(y: Array, values: Array) -> Array:
    """Return all columns of an index's points `y` (n, d): see `decided_by`."""
    words = [words_of(values[:, g]) for g in range(values.shape[1])]
    return np.concatenate([y, *words], axis=1)


def totals_of(
    columns: Iterable[tuple[Array, Array]], compared: Compared, norm: Norm
) -> Array:
    """Return the totals (n,) of pairs of rows. Each operation rounds as in the kernel
    `decide` of CPUs, so the totals are the same.

    `columns`: the columns that the metric compares. Each has the numbers of the left
    rows and of the right rows, both (n,), in arrays of NumPy or CuPy.
    """
    numbers, _, box, formula = compared
    total: Array = 0.0
    whole: Array = 0.0
    apart: Array = None  # which pairs are of different groups
    with np.errstate(all="ignore"):
        for k, (a, b) in enumerate(columns):
            if formula == DIFFERENCES:
                away = abs(a - b)
                if k < len(box) and box[k]:
                    away = np.minimum(away, box[k] - away)
                total = add(total, away, norm)
            elif k >= numbers:
                apart = a != b if apart is None else apart | (a != b)
            elif formula == HAMMING:
                total = total + (a != b).astype(np.float64)
            elif formula == CANBERRA:
                size = abs(a) + abs(b)
                total = total + np.where(size > 0, abs(a - b) / size, 0.0)
            else:
                total = total + abs(a - b)
                whole = whole + (a + b)
        if formula == HAMMING:
            total = total / numbers
        elif formula == BRAY_CURTIS:
            total = np.where(whole > 0, total / whole, 0.0)
    return total if apart is None else np.where(apart, math.inf, total)
