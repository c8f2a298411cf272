"""The driver of Dask DataFrames: it makes the steps of verbs into lazy expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import dask.dataframe as dd
import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.graph.dask_private import Expr, new_collection
from dask_simjoin.graph.nearest import HasNeighbor, KDistances, NearestJoin
from dask_simjoin.graph.pairs import (
    CountPairs,
    Join,
    LazyGraph,
    NeighborGraph,
    SelfJoin,
)
from dask_simjoin.graph.planner import DISTANCE_STEPS, PlanningSteps, plan_for
from dask_simjoin.graph.result_rows import with_recorded_rows
from dask_simjoin.graph.row_values import MatchCounts, NeighborCounts
from dask_simjoin.graph.source import FrozenSource, freeze
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.planning.outputs import PAIRS, OutputSpec, nearest_output
from dask_simjoin.reports.plan import NearestPlanReport, PlanReport
from dask_simjoin.request.columns import free_name
from dask_simjoin.request.requests import INNER, KEEPS, LEFT
from dask_simjoin.request.spec import for_matches, swapped
from dask_simjoin.tasks.counts import Number, pairs_by_eps
from dask_simjoin.tasks.left_out import right_rows_alone
from dask_simjoin.tasks.local import numbered
from dask_simjoin.tasks.nearest import (
    Neighbors,
    Totals,
)
from dask_simjoin.tasks.pairs import cast_like


class Expressions(NamedTuple):
    """The expressions for one similarity, and the steps that plan its joins."""

    self_join: type[Expr]
    join: type[Expr]
    count_pairs: type[Expr]
    neighbor_counts: type[Expr]
    match_counts: type[Expr]
    steps: PlanningSteps


class LazyJoins:
    """Makes joins and counts of one Dask DataFrame or two."""

    expressions: ClassVar[Expressions] = Expressions(
        SelfJoin, Join, CountPairs, NeighborCounts, MatchCounts, DISTANCE_STEPS
    )
    report: ClassVar[type[Any]] = PlanReport

    def __init__(self, frames: Sequence[Frame], spec: Any) -> None:
        self.frames, self.spec = frames, spec
        self.source = freeze(frames[0], spec.columns)
        self.other = None
        if len(frames) > 1:
            self.other = freeze(frames[1], spec.right.columns)

    def of_rows(self, expression: type[Expr], *operands: Any) -> Any:
        """Make a lazy result with a value for each row of the left table."""
        return new_collection(expression(self.source.given, self.source, *operands))

    def pairs(self, example: Frame, how: str = INNER) -> Frame:
        if self.other is None:
            return new_collection(
                self.expressions.self_join(self.source, self.spec, example)
            )
        tables, keeps = (self.source, self.other), KEEPS.get(how, ())
        own = LEFT if "left" in keeps else INNER
        made = self.expressions.join(*tables, self.spec, own, example)
        found = new_collection(made)
        if "right" not in keeps:
            return found
        # the left columns may be missing, so they have other dtypes
        found = found.map_partitions(cast_like, example, meta=example)
        found = dd.concat([found, self._right_rows_alone(example)])
        return with_recorded_rows(found)

    def _right_rows_alone(self, example: Frame) -> Frame:
        """Return the right rows without a match as rows of the result."""
        other = self.frames[1]
        labels = other._meta.index[:0]
        none = frames_for(other._meta).series(np.zeros(0, np.int64), labels, None)
        counting = type(self)(self.frames[::-1], swapped(for_matches(self.spec)))
        name = free_name("matches", [other._meta])
        counted = other.assign(**{name: counting.counts(none)})
        how = name, self.spec, example
        return counted.map_partitions(
            right_rows_alone, *how, meta=example, clear_divisions=True
        )

    def counts(self, example: Series | Frame) -> Series | Frame:
        operands = self.spec, example
        if self.other is None:
            return self.of_rows(self.expressions.neighbor_counts, *operands)
        return self.of_rows(self.expressions.match_counts, self.other, *operands)

    def number(self, meta: Frame) -> Number:
        spec, count = self.spec, self.expressions.count_pairs
        if not spec.several:
            return new_collection(count(self.source, spec, 0))
        example = pairs_by_eps(0, spec, meta).iloc[:0]
        return new_collection(count(self.source, spec, example, meta))

    def graph(self, mode: str) -> LazyGraph:
        """Make a lazy sparse matrix of the distances between neighbors. It has an empty
        row for each row that `dropna` leaves out.
        """
        rows = new_collection(self.source.inner)
        meta = rows._meta
        rows = rows.map_partitions(
            numbered,
            meta=numbered(meta),
            enforce_metadata=False,
            clear_divisions=True,
        )
        source = FrozenSource(rows.expr, is_final=False)
        return LazyGraph(NeighborGraph(source, self.spec, mode, meta))

    def plan(self) -> Any:
        return self.report(self.planned(PAIRS), self.spec)

    def planned(self, output: OutputSpec) -> Any:
        """Plan the verb without running it."""
        steps = self.expressions.steps
        return plan_for(self.source, self.spec, output, self.other, steps=steps)


class LazyNearest(LazyJoins):
    """Makes searches for nearest rows. `frames`: the table, and the searched table if it
    is another one.
    """

    def finds_mutual(self, wanted: Neighbors) -> bool:
        """Return whether `nearest` returns only mutual neighbors if it should."""
        return False

    def nearest(self, wanted: Neighbors, example: Frame) -> Frame:
        k, totals, how, ties, *_ = wanted
        tables = self.source, self.other
        return new_collection(
            NearestJoin(*tables, self.spec, k, totals, how, ties, example)
        )

    def plan_nearest(self, wanted: Neighbors) -> NearestPlanReport:
        """Plan the search. Return the report of the plan."""
        most = wanted.totals[1]
        made = self.planned(nearest_output(wanted.k, with_ids=True, max_total=most))
        return NearestPlanReport(made, self.spec, wanted.k, most)

    def has_neighbor(self, totals: Totals, example: Series) -> Series:
        """Return whether each row has a neighbor."""
        operands = self.other, self.spec, 1, totals, example
        return self.of_rows(HasNeighbor, *operands) != 0

    def k_distances(self, k: int, totals: Totals, example: Series) -> Series:
        """Return the distance from each row to its k-th nearest neighbor."""
        return self.of_rows(KDistances, self.spec, k, totals, example)
