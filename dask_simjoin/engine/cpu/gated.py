"""Joins with gates on the CPU: another method finds candidates, and gates decide them.

See `dask_simjoin.metrics.gates`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.catalog import HOME
from dask_simjoin.engine.base import Numbers, method_module
from dask_simjoin.engine.cpu.kernels import gates as kernels
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.sinks import (
    CallbackSink,
    CpuMethod,
    Decided,
    Deciding,
    Sink,
    places_of,
)
from dask_simjoin.engine.gated import (
    GatedLayout,
    columns_of_index,
    decided_by,
    every_column,
)
from dask_simjoin.metrics.gates import TIMES, Compared, Gates
from dask_simjoin.metrics.norms import Index


def rules_of(gates: Gates) -> kernels.Rules:
    whole = [
        (rule.low, rule.high) if rule.kind == TIMES else (0, 0) for rule in gates.rules
    ]
    return kernels.Rules(
        np.array([rule.kind for rule in gates.rules], np.int64),
        np.array([low for low, _ in whole], np.int64),
        np.array([high for _, high in whole], np.int64),
        np.array([rule.low for rule in gates.rules], np.float64),
        np.array([rule.high for rule in gates.rules], np.float64),
    )


def terms_of(compared: Compared, columns: int) -> kernels.Terms:
    """Return how `columns` columns make a total."""
    numbers, _, lengths, formula = compared
    box = np.zeros(columns)
    box[: len(lengths)] = lengths
    return kernels.Terms(formula, numbers, box)


def values_in(y: np.ndarray, values: np.ndarray) -> kernels.Values:
    return kernels.Values(y, values, values.view(np.float64))


@dataclass(frozen=True)
class GatedMethod:
    """See `CpuMethod`. `method`: finds the candidates.

    Layouts are of the class `GatedLayout`. An index is one of the method, with the
    entries of `dask_simjoin.engine.gated.decided_by`.
    """

    method: CpuMethod
    writes_names = True

    def build(self, x: np.ndarray, layout: Any, threads: int = 1) -> Index:
        indexed, _ = columns_of_index(layout, x.shape[1])
        # the sweep reads points by column, other methods by row
        arranged = (
            np.asfortranarray if layout.method == "sweep" else np.ascontiguousarray
        )
        points = arranged(x[:, :indexed])
        index = self.method.build(points, layout.inner, threads)
        places = index["order"][: len(x)]
        return index | decided_by(x, self.method.points(index), places, layout)

    def part(self, index: Index, start: int, stop: int) -> Index:
        found = self.method.part(index, start, stop)
        found |= {"values": index["values"][start:stop], "measured": index["measured"]}
        if "numbers" in index:
            found["numbers"] = index["numbers"][start:stop]
        return found

    def points(self, index: Index) -> np.ndarray:
        """Return the coordinates that the metric compares."""
        if "numbers" in index:
            numbers: np.ndarray = index["numbers"]
            return numbers
        return self.method.points(index)[:, : index["measured"]]

    def every_column(self, index: Index) -> np.ndarray:
        """Return all columns of an index's points (n, columns), as `build` takes them."""
        values = index["values"]
        return every_column(self.method.points(index)[: len(values)], values)

    def pairs(
        self,
        q: Index,
        d: Index,
        layout: Any,
        is_self_join: bool,
        names: list[np.ndarray],
        sink: Sink,
        orient_by_position: bool,
    ) -> tuple[int, int]:
        rules, norm = rules_of(layout.gates), kind_of(layout.norm)
        terms = terms_of(layout.compared, self.points(q).shape[1])
        one, other = (values_in(self.points(side), side["values"]) for side in (q, d))

        def decide(left: np.ndarray, right: np.ndarray) -> Decided:
            near, totals = np.empty(len(left), np.int32), np.empty(len(left))
            found = kernels.decide(
                one, other, rules, terms, layout.limit, norm, left, right, near, totals
            )
            return near[:found], totals[:found]

        deciding = Deciding(sink, (q, d), names, decide, orient_by_position)
        self.method.pairs(
            q, d, layout.inner, is_self_join, places_of(q, d), deciding, False
        )
        return deciding.decided, deciding.refused

    def counts(
        self,
        q: Index,
        d: Index,
        layout: Any,
        is_self_join: bool,
        q_counts: np.ndarray,
        d_counts: np.ndarray,
        enough: int | None = None,
    ) -> None:
        both = is_self_join and q_counts is not d_counts

        def count(left: np.ndarray, right: np.ndarray, totals: np.ndarray) -> None:
            kernels.count(left, right, both, q_counts, d_counts)

        self.show(q, d, layout, is_self_join, count)

    def show(
        self,
        q: Index,
        d: Index,
        layout: GatedLayout,
        is_self_join: bool,
        function: Callable[[np.ndarray, np.ndarray, np.ndarray], None],
    ) -> None:
        """Call a function with all pairs in batches: left places, right places, and
        totals.
        """
        self.pairs(
            q,
            d,
            layout,
            is_self_join,
            places_of(q, d),
            CallbackSink(function, with_totals=True),
            False,
        )

    def layout_stats(self, index: Index, layout: Any) -> Numbers:
        return self.method.layout_stats(index, layout.inner)

    def work(self, q: Index, d: Index, layout: Any, is_self_join: bool) -> np.ndarray:
        return self.method.work(q, d, layout.inner, is_self_join)

    def end(self, index: Index, stop: int, layout: Any) -> int:
        return self.method.end(index, stop, layout.inner)

    def layout(self, *args: Any, **options: Any) -> GatedLayout:
        raise NotImplementedError  # `JoinStatistics.layout` makes it


def method_of(layout: GatedLayout) -> GatedMethod:
    """Return the method that decides the candidates of a layout's method."""
    return GatedMethod(method_module(layout.method, HOME))
