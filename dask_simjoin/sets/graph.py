"""Expressions of lazy set joins and of their blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, cast

import numpy as np

from dask_simjoin.graph import pairs, row_values
from dask_simjoin.graph.aligned import add_counts
from dask_simjoin.graph.base import Call, LabelledExpr, Steps, pick
from dask_simjoin.graph.dask_private import Expr, Task, TaskRef
from dask_simjoin.graph.lazy_join import JoinTasks, LazyJoin
from dask_simjoin.graph.planner import PlanningSteps
from dask_simjoin.graph.records import RUNS
from dask_simjoin.graph.row_values import BlockValues
from dask_simjoin.graph.source import ROWS, FrozenSource, map_frozen
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.sets.chunks import (
    ReadSetRows,
    ReadSets,
    SetBlockPair,
    gather_block,
    hash_rows,
    read_partition,
    send,
)
from dask_simjoin.sets.pairs import count_block, count_block_pairs, cut_block, join_block
from dask_simjoin.sets.plan import SetPlan
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.sets.planner import SET_STEPS
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.sets.token_ids import Merged, Vocabulary, merge, ranks, ranks_of
from dask_simjoin.tasks.counts import Groups

FAN_IN = 4
"""Vocabularies that one task merges: few, because a worker holds all of them at the same time."""


def read_tables(tables: list[tuple[FrozenSource, SetSpec]], plan: SetPlan) -> tuple[FrozenSource, ...]:
    """Read the partitions of each table: return one source per table, with a `ReadSets` per partition."""
    return tuple(
        FrozenSource(map_frozen("simjoin_tokens", read_partition, source, spec, each=list(enumerate(rows))))
        for (source, spec), rows in zip(tables, plan.sources, strict=True)
    )


class SetChunks(LabelledExpr):
    """Make the blocks of one table or two, the right table's after the left table's.

    Each partition is read, and its tokens are numbered.  The vocabularies are merged in a tree, and ranks go
    back down the tree.  Then rows are sent to their blocks.

    `read`: the result of `read_tables`; `examples`: empty frames of the tables.
    """

    _label = "simjoin_set_block"
    _parameters = ["read", "examples", "spec", "plan"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.operand("plan").number + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: SetPlan = self.operand("plan")
        spec: SetSpec = self.operand("spec")
        steps = Steps("simjoin_set", self.deterministic_token)
        keys: list[tuple[int, int, Any]] = []
        for t, source in enumerate(self.operand("read")):
            steps.layer.update(source.inner.__dask_graph__())
            keys += [(t, n, key) for n, key in enumerate(source.inner.__dask_keys__())]
        own, universe = self._ranks(steps, [TaskRef(key) for _, _, key in keys])
        firsts = [np.cumsum([0, *rows]).tolist() for rows in plan.sources]
        threads = resources_for(spec.library).threads if spec.settings.cluster else None
        sends: list[list[Call]] = [[] for _ in plan.sides]
        for (t, n, key), rank in zip(keys, own, strict=True):
            rows = self._small(steps, "rows", (t, n), rows_of, TaskRef(key))
            sends[t].append(((t, n), send, (rows, rank, firsts[t][n], plan.sides[t])))
        place = 0
        sides = [spec] if spec.other is None else [spec, spec.other]
        for t, (side, own_spec) in enumerate(zip(plan.sides, sides, strict=True)):
            parcels = steps.spread("send", "parcel", sends[t], range(len(side)), threads)
            for b in range(len(side)):
                key, example = (self._name, place), self.operand("examples")[t]
                parts = [some[b] for some in parcels]
                steps.layer[key] = Task(key, gather_block, universe, example, own_spec, *parts)
                place += 1
        return steps.layer

    def _small(
        self, steps: Steps, step: str, place: Any, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """On a cluster add a task, so that only its result is sent and kept; else call `function` inline."""
        if self.operand("spec").settings.cluster:
            return steps.add(step, place, function, *arguments)
        return Task(None, function, *arguments)

    def _ranks(self, steps: Steps, read: list[TaskRef]) -> tuple[list[Any], TaskRef]:
        """Return the token ranks of each partition, and the number of all tokens; see `SetChunks`."""
        level = [self._small(steps, "vocabulary", n, vocabulary_of, one) for n, one in enumerate(read)]
        merged: list[list[Any]] = []
        while len(level) > 1:
            groups = [level[s : s + FAN_IN] for s in range(0, len(level), FAN_IN)]
            depth = len(merged)
            made = [steps.add("merge", (depth, g), merge, *group) for g, group in enumerate(groups)]
            merged.append(
                [self._small(steps, "codes", (depth, g), pick, one, "codes") for g, one in enumerate(made)]
            )
            level = [
                self._small(steps, "merged", (depth, g), vocabulary_of, one) for g, one in enumerate(made)
            ]
        own: list[Any] = [steps.add("order", 0, ranks, level[0])]
        universe = steps.add("tokens", 0, len, own[0])
        for depth in range(len(merged) - 1, -1, -1):
            below = range(len(merged[depth - 1]) if depth else len(read))
            above = [(own[k // FAN_IN], merged[depth][k // FAN_IN], k % FAN_IN) for k in below]
            # a partition's ranks are needed once, ranks of inner nodes by several tasks
            add = steps.add if depth else functools.partial(self._small, steps)
            own = [add("ranks", (depth, k), ranks_of, *some) for k, some in enumerate(above)]
        return own, universe


def rows_of(found: ReadSets) -> ReadSetRows:
    """Return the rows of a partition without its vocabulary."""
    rows = dict(found)
    del rows["vocabulary"]
    return cast(ReadSetRows, rows)


def vocabulary_of(found: ReadSets | Merged) -> Vocabulary:
    """Return the vocabulary of a partition, or of merged ones."""
    return found["vocabulary"]


SETS = JoinTasks(SetBlockPair, join_block, cut_block, count_block, count_block_pairs)
"""Pairs of rows whose sets match."""


class LazySets(LazyJoin):
    """A lazy join of sets, planned on first use."""

    _tasks: ClassVar[JoinTasks] = SETS
    _steps: ClassVar[PlanningSteps] = SET_STEPS

    def _report(self, plan: SetPlan) -> SetPlanReport:  # type: ignore[override]
        return SetPlanReport(plan, self.operand("spec"))

    def _read(self) -> tuple[FrozenSource, ...]:
        spec, other = self.operand("spec"), self._other
        tables = [(ROWS.take(self._source), spec)]
        if other is not None:
            tables.append((ROWS.take(other), spec.right))
        return read_tables(tables, cast(Any, self.plan))

    def _chunks(self) -> Expr:
        return self._made(self._read())

    def _made(self, read: tuple[FrozenSource, ...]) -> SetChunks:
        RUNS.begin(self.plan.run)
        sources = [self._source] if self._other is None else [self._source, self._other]
        examples = tuple(source.inner._meta.iloc[:0] for source in sources)
        return SetChunks(read, examples, self.operand("spec"), self.plan)


class SetSelfJoin(LazySets, pairs.SelfJoin):
    """Pairs of a frame's rows whose sets match."""

    _label = "simjoin_set_self_join"


class SetJoin(LazySets, pairs.Join):
    """Pairs of rows of two tables whose sets match."""

    _label = "simjoin_set_join"


class CountSetPairs(LazySets, pairs.CountPairs):
    """Number of pairs whose sets match."""

    _label = "simjoin_count_set_pairs"


class SetNeighborCounts(LazySets, row_values.NeighborCounts):
    """Number of rows that match each row."""

    _label = "simjoin_set_neighbor_counts"

    @property
    def _groups(self) -> Groups:
        return functools.partial(hash_rows, spec=self.operand("spec"))

    def _values(self) -> Expr:
        read, whole = self._read(), self._source.inner.divisions
        common = self._made(read), read[0], self.plan, self.operand("spec"), self._meta, whole
        return self._found(common, self.operand("chosen"))

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        """Return the values of the chosen partitions; `common`: the first operands of `BlockValues`."""
        return CountRows(*common, chosen)


class SetMatchCounts(SetNeighborCounts):
    """Number of rows of another table that match each row."""

    _label = "simjoin_set_match_counts"
    _parameters = ["frame", "source", "other", "spec", "meta", "chosen"]


class CountRows(BlockValues):
    """Count for each row of a block the rows that it matches."""

    _label = "simjoin_set_counts"
    _tasks: ClassVar[JoinTasks] = SETS

    def _by_block(self, steps: Steps) -> list[TaskRef]:
        plan, spec = self.operand("plan"), self.operand("spec")
        token, blocks = self.deterministic_token, range(len(plan.counted))
        totals = add_counts(steps.layer, token, self.chunks, plan, spec, set(blocks), tasks=self._tasks)
        return [TaskRef(totals[b]) for b in blocks]
