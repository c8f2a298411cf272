"""What all lazy joins have in common before they are planned."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dask.tokenize import tokenize

from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.chunks import BothChunks, indexed_chunks
from dask_simjoin.expressions.dask_private import Expr
from dask_simjoin.expressions.planner import plan_for, plan_key
from dask_simjoin.expressions.records import RUNS, Named, RunName
from dask_simjoin.expressions.source import FrozenSource
from dask_simjoin.expressions.work import DISTANCES, Work
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.block_report import BlockReport
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.chunking.base import Chunking, Sources
from dask_simjoin.planning.goal import COUNTS, Goal
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.report import PlanReport
from dask_simjoin.planning.resources import check_shuffle
from dask_simjoin.planning.tables import Tables


class LazyJoin(LabelledExpr):
    """A join of one frozen source with itself that is planned when it must be."""

    _parameters = ["source", "spec", "meta"]
    _goal = COUNTS
    _work: ClassVar[Work] = DISTANCES
    _plan_tells_partitions: ClassVar[bool] = False

    def __str__(self) -> str:
        spec = self.operand("spec")
        on = f"on={list(spec.on)}{spec.unnamed}"
        return f"{type(self).__name__}({self.operand('source')}, {self._asked}, {on})"

    @property
    def _asked(self) -> str:
        """What is sought, in few words."""
        asked = next(
            (name for name in ("max_eps", "k", "min_cluster_size", "samples") if name in self._parameters),
            None,
        )
        if asked:
            return f"{asked}={self.operand(asked)!r}"
        spec = self.operand("spec")
        unit = getattr(getattr(spec, "measure", None), "unit", "")  # joins of sets have no measure
        return f"{spec.asked}{unit and f' {unit}'}"

    @property
    def _source(self) -> FrozenSource:
        source: FrozenSource = self.operand("source")
        return source

    @property
    def plan(self) -> Plan:
        """The plan; made at the first call, which computes one pass over the columns."""
        return plan_for(
            self._source, self.operand("spec"), self.goal, self._other, self.named, self._check_tables
        )

    def _check_tables(self, tables: Tables, have: Resources) -> None:
        """Refuse tables of which one task cannot hold what it must, whatever their chunks are."""

    @property
    def would_plan(self) -> bool:
        """Whether it would be planned if it were asked for its partitions now."""
        key = plan_key(self.operand("spec"), self.goal, self._other)
        return self._plan_tells_partitions and key not in self._source.plans

    @property
    def report(self) -> BlockReport:
        """What the plan says to people; planned at the first call."""
        return self._report(self.plan)

    def _report(self, plan: Plan) -> BlockReport:
        return PlanReport(plan, self.operand("spec"))

    @property
    def named(self) -> Named:
        """What its tasks are recorded for: it is the same for whatever asks for the same of the same."""
        asked = (self.operand(name) for name in self._parameters if name in ("source", "other", "spec"))
        title = f"{self._label.removeprefix('simjoin_')}, {self._asked}"
        return Named(tokenize(self._label, self.goal, *asked), title, self._report)

    @property
    def goal(self) -> Goal:
        """What its tasks find out, as planning needs to know it."""
        return self._goal

    def _tree_repr_lines(self, indent: int = 0, recursive: bool = True) -> list[str]:
        return [" " * indent + str(self)]

    @property
    def _other(self) -> FrozenSource | None:
        """The right table, of a join of two."""
        other: FrozenSource | None = self.operand("other") if "other" in self._parameters else None
        return other

    def _chunks(self) -> Expr:
        plan, spec = self.plan, self.operand("spec")
        RUNS.begin(plan.run)
        tables = (
            [(self._source, spec)]
            if self._other is None
            else [(self._source, spec), (self._other, spec.right)]
        )
        each = [
            self._table(source, own, sources, chunks)
            for (source, own), sources, chunks in zip(tables, plan.sources, plan.chunks.sides, strict=True)
        ]
        return each[0] if len(each) == 1 else BothChunks(*each)

    def _table(self, source: FrozenSource, spec: JoinSpec, sources: Sources, chunks: Chunking) -> Expr:
        if chunks.method is not None:
            check_shuffle(chunks.method, self.operand("spec").settings.cluster)
        spec, plan = replace(spec, dims=self.plan.dims), self.plan
        return indexed_chunks(
            source, spec, sources, chunks, plan.layout, self.goal.with_ids, plan.threads, plan.copies,
            plan.sent, RunName(plan.run),
        )  # fmt: skip
