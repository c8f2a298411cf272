"""Make the expressions of lazy joins of sets: they are those of joins by distance, planned otherwise."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from dask_simjoin.expressions import counts, pairs
from dask_simjoin.expressions.aligned import add_counts
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import Expr, PartitionsFiltered, Task, TaskRef
from dask_simjoin.expressions.lazy_join import LazyJoin
from dask_simjoin.expressions.records import RUNS
from dask_simjoin.expressions.source import FrozenSource, pick
from dask_simjoin.expressions.steps import Call, Steps
from dask_simjoin.expressions.work import Work, chunk_ref
from dask_simjoin.planning.resources import resources
from dask_simjoin.sets.chunks import hash_rows
from dask_simjoin.sets.expressions.chunks import SetChunks, read_tables
from dask_simjoin.sets.expressions.planner import set_plan_for
from dask_simjoin.sets.meeting import SetMeeting
from dask_simjoin.sets.pairs import count_block, count_block_pairs, cut_block, join_block
from dask_simjoin.sets.parcels import counts_by_partition, put_beside
from dask_simjoin.sets.planning.plan import SetPlan
from dask_simjoin.sets.planning.report import SetPlanReport
from dask_simjoin.tasks.fingerprints import Groups

SETS = Work(SetMeeting, join_block, cut_block, count_block, count_block_pairs)
"""Pairs of rows whose sets match."""


class LazySets(LazyJoin):
    """A join of sets that is planned when it must be."""

    _work: ClassVar[Work] = SETS

    @property
    def plan(self) -> SetPlan:  # type: ignore[override]
        """The plan; made at the first call, which computes one pass over the column."""
        return set_plan_for(self._source, self.operand("spec"), self.goal, self._other, self.named)

    def _report(self, plan: SetPlan) -> SetPlanReport:  # type: ignore[override]
        return SetPlanReport(plan, self.operand("spec"))

    def _read(self) -> tuple[FrozenSource, ...]:
        spec, other = self.operand("spec"), self._other
        tables = [(self._source, spec)] if other is None else [(self._source, spec), (other, spec.right)]
        return read_tables(tables, self.plan)

    def _chunks(self) -> Expr:
        return self._made(self._read())

    def _made(self, read: tuple[FrozenSource, ...]) -> SetChunks:
        RUNS.begin(self.plan.run)
        sources = [self._source] if self._other is None else [self._source, self._other]
        examples = tuple(source.inner._meta.iloc[:0] for source in sources)
        return SetChunks(read, examples, self.operand("spec"), self.plan)


class SetSelfJoin(LazySets, pairs.SelfJoin):
    """Stand for pairs of a frame's rows whose sets match before they are planned."""

    _label = "simjoin_set_self_join"


class SetJoin(LazySets, pairs.Join):
    """Stand for pairs of the rows of two tables whose sets match before they are planned."""

    _label = "simjoin_set_join"


class CountSetPairs(LazySets, counts.CountPairs):
    """Stand for the number of pairs whose sets match before it is planned."""

    _label = "simjoin_count_set_pairs"


class SetNeighborCounts(LazySets, counts.NeighborCounts):
    """Stand for numbers of rows that match each row before they are planned."""

    _label = "simjoin_set_neighbor_counts"

    @property
    def _groups(self) -> Groups:
        return functools.partial(hash_rows, spec=self.operand("spec"))

    def _values(self) -> Expr:
        read, whole = self._read(), self._source.inner.divisions
        common = self._made(read), read[0], self.plan, self.operand("spec"), self._meta, whole
        return self._found(common, self.operand("chosen"))

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        """Find a value of each row of the chosen partitions, from what all `RowValues` are told."""
        return CountRows(*common, chosen)


class SetMatchCounts(SetNeighborCounts):
    """Stand for numbers of rows of another table that match each row before they are planned."""

    _label = "simjoin_set_match_counts"
    _parameters = ["frame", "source", "other", "spec", "meta", "chosen"]


class RowValues(PartitionsFiltered, LabelledExpr):
    """Find a number of each row of each block, and bring these back to the partitions of the source."""

    _makes_result = True
    _parameters = ["chunks", "read", "plan", "spec", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _by_block(self, steps: Steps) -> list[TaskRef]:
        """Add tasks that find the numbers of the rows of each block, by position."""
        raise NotImplementedError

    def _layer(self) -> dict[Any, Any]:
        plan: SetPlan = self.operand("plan")
        spec, read = self.operand("spec"), self.operand("read").inner
        steps = Steps(self._label, self.deterministic_token)
        offsets = [0]
        for rows in plan.sources[0]:
            offsets.append(offsets[-1] + rows)
        splits: list[Call] = [
            (b, counts_by_partition, (chunk_ref(self.chunks, b), values, offsets))
            for b, values in enumerate(self._by_block(steps))
        ]
        threads = resources(spec.library).threads if spec.settings.cluster else None
        found = steps.spread("split", "part", splits, self._partitions, threads)
        keys = read.__dask_keys__()
        for place, n in enumerate(self._partitions):
            labels = steps.add("labels", n, pick, TaskRef(keys[n]), "ids")
            key = (self._name, place)
            steps.layer[key] = Task(key, put_beside, labels, self._meta, *(one[n] for one in found))
        return steps.layer | dict(read.__dask_graph__())


class CountRows(RowValues):
    """Count what the rows of each block match."""

    _label = "simjoin_set_counts"

    def _by_block(self, steps: Steps) -> list[TaskRef]:
        plan, spec = self.operand("plan"), self.operand("spec")
        token, blocks = self.deterministic_token, range(len(plan.counted))
        totals = add_counts(steps.layer, token, self.chunks, plan, spec, set(blocks), work=SETS)
        return [TaskRef(totals[b]) for b in blocks]
