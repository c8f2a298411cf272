"""Expressions of lazy edit joins and of their blocks, as in set joins without a vocabulary."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, cast

import numpy as np

from dask_simjoin.graph import counts, pairs
from dask_simjoin.graph.base import LabelledExpr
from dask_simjoin.graph.dask_private import Expr, Task, TaskRef
from dask_simjoin.graph.kept_rows import ROWS
from dask_simjoin.graph.lazy_join import JoinTasks
from dask_simjoin.graph.planner import PlanningSteps
from dask_simjoin.graph.records import RUNS
from dask_simjoin.graph.source import FrozenSource, map_frozen
from dask_simjoin.graph.steps import Call, Steps
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.sets.graph import CountRows, LazySets, MarkRows, SetNeighborCounts
from dask_simjoin.sets.pairs import count_block, count_block_pairs, cut_block, join_block
from dask_simjoin.sets.plan import SetPlan, SetSummary
from dask_simjoin.strings.codes import EditBlockPair, gather_block, hash_rows, read_partition, send
from dask_simjoin.strings.plan import EditPlanReport, make_edit_plan, summarise_texts
from dask_simjoin.strings.requests import EditSpec
from dask_simjoin.tasks.counts import Groups


def _key(spec: EditSpec) -> tuple[Any, ...]:
    """Return the options that statistics of a table's strings depend on."""
    return "strings", spec.on, spec.code, spec.id, str(spec.id_dtype), spec.keep


def _make(tables: list[list[SetSummary]], sources: list[Any], spec: EditSpec, output: OutputSpec,
          resources: Resources, check: Any) -> SetPlan:  # fmt: skip
    return make_edit_plan(tables, spec, output, resources)


EDIT_STEPS = PlanningSteps("simjoin_edit_summary", _key, summarise_texts, _make, names_table=True)
"""Steps for edit joins."""


EDITS = JoinTasks(EditBlockPair, join_block, cut_block, count_block, count_block_pairs)
"""Pairs of rows whose strings are within a distance."""


class EditChunks(LabelledExpr):
    """Make the blocks of one table or two, the right table's after the left table's.

    `read`: a source of read partitions for each table; `examples`: empty frames of the tables.
    """

    _label = "simjoin_edit_block"
    _parameters = ["read", "examples", "spec", "plan"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.operand("plan").number + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: SetPlan = self.operand("plan")
        spec: EditSpec = self.operand("spec")
        steps = Steps("simjoin_edit", self.deterministic_token)
        threads = resources_for(spec.library).threads if spec.settings.cluster else None
        sides = [spec] if spec.other is None else [spec, spec.other]
        place = 0
        for t, (source, side) in enumerate(zip(self.operand("read"), plan.sides, strict=True)):
            steps.layer.update(source.inner.__dask_graph__())
            firsts = np.cumsum([0, *plan.sources[t]]).tolist()
            sends: list[Call] = [
                ((t, n), send, (TaskRef(key), firsts[n], side))
                for n, key in enumerate(source.inner.__dask_keys__())
            ]
            parcels = steps.spread("send", "parcel", sends, range(len(side)), threads)
            example = self.operand("examples")[t]
            for b in range(len(side)):
                key = (self._name, place)
                parts = [some[b] for some in parcels]
                steps.layer[key] = Task(key, gather_block, example, sides[t], *parts)
                place += 1
        return steps.layer


class LazyEdits(LazySets):
    """A lazy edit join, planned on first use."""

    _tasks: ClassVar[JoinTasks] = EDITS
    _steps: ClassVar[PlanningSteps] = EDIT_STEPS

    def _report(self, plan: SetPlan) -> EditPlanReport:  # type: ignore[override]
        return EditPlanReport(plan, self.operand("spec"))

    def _read(self) -> tuple[FrozenSource, ...]:
        spec, other = self.operand("spec"), self._other
        tables = [(ROWS.take(self._source), spec)]
        if other is not None:
            tables.append((ROWS.take(other), spec.right))
        plan = cast(Any, self.plan)
        return tuple(
            FrozenSource(map_frozen("simjoin_codes", read_partition, source, own, each=list(enumerate(rows))))
            for (source, own), rows in zip(tables, plan.sources, strict=True)
        )

    def _made(self, read: tuple[FrozenSource, ...]) -> Any:
        RUNS.begin(self.plan.run)
        sources = [self._source] if self._other is None else [self._source, self._other]
        examples = tuple(source.inner._meta.iloc[:0] for source in sources)
        return EditChunks(read, examples, self.operand("spec"), self.plan)


class EditSelfJoin(LazyEdits, pairs.SelfJoin):
    """Pairs of a frame's rows within a distance."""

    _label = "simjoin_edit_self_join"


class EditJoin(LazyEdits, pairs.Join):
    """Pairs of rows of two tables within a distance."""

    _label = "simjoin_edit_join"


class CountEditPairs(LazyEdits, counts.CountPairs):
    """Number of pairs within a distance."""

    _label = "simjoin_count_edit_pairs"


class EditNeighborCounts(LazyEdits, SetNeighborCounts):
    """Number of rows that match each row."""

    _label = "simjoin_edit_neighbor_counts"

    @property
    def _groups(self) -> Groups:
        return functools.partial(hash_rows, spec=self.operand("spec"))

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        return CountEditRows(*common, chosen)


class EditMatchCounts(EditNeighborCounts):
    """Number of rows of another table that match each row."""

    _label = "simjoin_edit_match_counts"
    _parameters = ["frame", "source", "other", "spec", "meta", "chosen"]


class CountEditRows(CountRows):
    """Count for each row of a block the rows that it matches."""

    _label = "simjoin_edit_counts"
    _tasks: ClassVar[JoinTasks] = EDITS


class EditNearDuplicated(EditNeighborCounts):
    """Marks of rows that match a row that stays."""

    _label = "simjoin_edit_near_duplicated"
    _parameters = ["frame", "source", "spec", "keep", "grouping", "meta", "chosen"]

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        return MarkEditRows(*common, self.operand("keep"), self.operand("grouping"), chosen)


class MarkEditRows(MarkRows):
    """Mark the rows of each block that do not stay."""

    _label = "simjoin_edit_duplicates"
    _tasks: ClassVar[JoinTasks] = EDITS
