"""Base class of lazy joins, the tasks that they use, and their repr, which does not
plan them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
from dask.tokenize import tokenize

from dask_simjoin.graph.base import LabelledExpr
from dask_simjoin.graph.chunks import BothChunks, ChunkSource
from dask_simjoin.graph.dask_private import Expr, Task, guard_repr
from dask_simjoin.graph.homes import chunk_homes
from dask_simjoin.graph.placement import (
    VisitOrder,
    send_placement,
)
from dask_simjoin.graph.planner import DISTANCE_STEPS, PlanningSteps, plan_for, plan_key
from dask_simjoin.graph.records import RUNS, Named
from dask_simjoin.graph.row_cache import ROWS
from dask_simjoin.graph.source import FrozenSource
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import COUNTS, OutputSpec
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import check_shuffle
from dask_simjoin.planning.tables import JoinStatistics
from dask_simjoin.reports.facts import BlockReport
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.tasks.counts import count_block, count_block_pairs
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.pairs import cut_block, cut_weighed, join_block, weigh_block


@dataclass(frozen=True)
class JoinTasks:
    """The functions that the tasks of one kind of joins call. A kind is, for example,
    joins by distance.
    """

    # makes the block pair of two chunks, such as a `BlockPair`; the other functions
    # take a block pair
    make: Callable[..., Any]
    # `join`: make rows of the result. `cut`: cut the rows into parts, one per partition
    # of the result. `count`: count the pairs of each row. `count_pairs`: count all
    # pairs.
    join: Callable[..., Any]
    cut: Callable[..., Any]
    count: Callable[..., Any]
    count_pairs: Callable[..., Any]
    # these two do the same as `cut`: `weigh` runs for each part of the work, then
    # `cut_weighed` once for all parts
    weigh: Callable[..., Any] | None = None
    cut_weighed: Callable[..., Any] | None = None

    def block_pair(
        self,
        chunks: Expr,
        i: int,
        j: int,
        spec: Any,
        layout: Any,
        part: tuple[int, int] = (0, 1),
        output: tuple[int, int] | None = None,
    ) -> Task:
        """Return the task argument that makes a block pair of the chunks `i` and `j`.

        `part`: the part of the work, as (index, number of parts). `output`: the
        partition of the block pair's result, as (index, number of partitions).
        """
        q, d = (chunks.chunk_ref(c, (output or part)[0]) for c in (i, j))
        return Task(None, self.make, q, d, i == j, spec, layout, part)


DISTANCES = JoinTasks(
    BlockPair,
    join_block,
    cut_block,
    count_block,
    count_block_pairs,
    weigh_block,
    cut_weighed,
)
"""The functions of joins by distance."""

block_pair_of = DISTANCES.block_pair


class LazyJoin(LabelledExpr):
    """Base class of lazy joins of a frozen source, with itself or with another source.
    A join is planned when needed.
    """

    _parameters = ["source", "spec", "meta"]
    _output = COUNTS
    _tasks: ClassVar[JoinTasks] = DISTANCES
    _steps: ClassVar[PlanningSteps] = DISTANCE_STEPS
    _plan_tells_partitions: ClassVar[bool] = False
    _verb: ClassVar[str] = ""  # in the title of the run; default: the label

    def __str__(self) -> str:
        spec = self.operand("spec")
        on = f"on={list(spec.shown_columns)}{spec.unnamed}"
        return f"{type(self).__name__}({self.operand('source')}, {self._request_text}, {on})"

    @property
    def _request_text(self) -> str:
        """The main option of the request as text, for the repr."""
        for name in ("max_eps", "k", "min_cluster_size", "samples"):
            if name in self._parameters:
                return f"{name}={self.operand(name)!r}"
        return str(self.operand("spec").request)

    @property
    def _source(self) -> FrozenSource:
        source: FrozenSource = self.operand("source")
        return source

    @property
    def plan(self) -> Plan:
        """The plan. The first access makes it: see
        `dask_simjoin.graph.planner.plan_join`.
        """
        plan: Plan = plan_for(
            self._source,
            self.operand("spec"),
            self.output,
            self._other,
            lambda: self.named,
            self._check_statistics,
            self._steps,
        )
        return plan

    def _check_statistics(self, statistics: JoinStatistics, limits: Limits) -> None:
        """Raise an error if the tables do not fit in the memory of a task, however they
        are divided into chunks.
        """

    @property
    def would_plan(self) -> bool:
        """Whether reading the number of partitions would plan the join, because it has
        no plan yet.
        """
        key = plan_key(self.operand("spec"), self.output, self._other)
        return self._plan_tells_partitions and key not in self._source.plans

    @property
    def report(self) -> BlockReport:
        """The report of the plan. If there is no plan yet, this makes it."""
        return self._report(self.plan)

    def _report(self, plan: Plan) -> BlockReport:
        return PlanReport(plan, self.operand("spec"))

    @property
    def named(self) -> Named:
        """The name and the title of the run. Equal joins have the same name."""
        operands = (
            self.operand(name)
            for name in self._parameters
            if name in ("source", "other", "spec")
        )
        verb = self._verb or self._label.removeprefix("simjoin_")
        title = f"{verb}, {self._request_text}"
        return Named(tokenize(self._label, self.output, *operands), title, self._report)

    @property
    def output(self) -> OutputSpec:
        """A description of the results of the tasks, such as pairs or counts."""
        return self._output

    def _tree_repr_lines(self, indent: int = 0, recursive: bool = True) -> list[str]:
        return [" " * indent + str(self)]

    @property
    def _other(self) -> FrozenSource | None:
        """The right table of a join of two tables; None for a self-join."""
        other: FrozenSource | None = (
            self.operand("other") if "other" in self._parameters else None
        )
        return other

    def _chunks(self) -> Expr:
        plan, spec = self.plan, self.operand("spec")
        RUNS.begin(plan.run)
        tables = (
            [(self._source, spec)]
            if self._other is None
            else [(self._source, spec), (self._other, spec.right)]
        )
        each, read = [], []
        for (source, own), sources, chunks in zip(
            tables, plan.tables.sources, plan.chunks.sides, strict=True
        ):
            if chunks.method is not None:
                check_shuffle(chunks.method, spec.settings.cluster)
            read.append(ROWS.take(source))
            read_as = own.coordinates._replace(
                dims=plan.tables.dims, narrow=plan.indexing.narrow
            )
            own = replace(own, coordinates=read_as)
            table = ChunkSource(read[-1], own, sources, chunks, plan, self.output)
            each.append(table.indexed())
        firsts = dict(
            zip(
                [expr._name for expr in each], (0, plan.chunks.first_data), strict=False
            )
        )
        if plan.work.visits is not None:
            send_placement(
                VisitOrder(
                    firsts,
                    plan.work.blocks,
                    plan.work.visits.worker,
                    plan.work.visits.place,
                )
            )
        elif (homes := chunk_homes(plan, read, spec, firsts)) is not None:
            send_placement(homes)
        return each[0] if len(each) == 1 else BothChunks(*each)


UNPLANNED = pd.Index(["", ""], name="npartitions=not planned yet")


def unplanned_divisions(expr: Expr) -> pd.Index | None:
    """If the divisions are not known before planning, return a placeholder for the
    repr; else None.
    """
    return (
        UNPLANNED
        if any(join.would_plan for join in expr.find_operations(LazyJoin))
        else None
    )


guard_repr(unplanned_divisions)
