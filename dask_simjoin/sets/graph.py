"""Define the Dask expressions of set joins: chunks, pairs, counts and near duplicates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, cast

import numpy as np

from dask_simjoin.cluster.algorithms.dbscan import merge_edges
from dask_simjoin.cluster.algorithms.duplicates import CONNECTED, merge_candidates
from dask_simjoin.graph import pairs, row_values
from dask_simjoin.graph.aligned import add_counts
from dask_simjoin.graph.base import Call, LabelledExpr, Steps, after, pick
from dask_simjoin.graph.dask_private import (
    Expr,
    List,
    Task,
    TaskRef,
    new_collection,
)
from dask_simjoin.graph.driver import Expressions, LazyJoins
from dask_simjoin.graph.lazy_join import JoinTasks, LazyJoin
from dask_simjoin.graph.planner import PlanningSteps
from dask_simjoin.graph.records import RUNS
from dask_simjoin.graph.row_cache import ROWS
from dask_simjoin.graph.row_values import BlockValues
from dask_simjoin.graph.source import FrozenSource, map_frozen
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.sets.best_join import BestJoin
from dask_simjoin.sets.chunks import (
    ReadSetRows,
    ReadSets,
    SetBlockPair,
    gather_block,
    hash_rows,
    named_sides,
    read_partition,
    send,
)
from dask_simjoin.sets.near_duplicates import (
    best_of_chunk,
    candidate_rows,
    check_pairs,
    forest_of_block,
    marks_but,
    marks_of_groups,
    number_of_pairs,
    on_host,
    pairs_of_block,
    stays_of_chunks,
)
from dask_simjoin.sets.pairs import (
    count_block,
    count_block_pairs,
    cut_block,
    join_block,
)
from dask_simjoin.sets.plan import SetPlan, SetSummary, make_set_plan, summarise_sets
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.sets.token_ids import Merged, Vocabulary, merge, ranks, ranks_of
from dask_simjoin.tasks.counts import Groups


def planning_steps(
    label: str,
    key: Callable[[Any], tuple[Any, ...]],
    summarize: Callable[..., SetSummary],
    make_plan: Callable[..., SetPlan],
) -> PlanningSteps:
    """Return the steps that plan joins. `key`: returns the options that a table's
    statistics depend on.
    """

    def make(
        tables: list[list[SetSummary]],
        sources: list[Any],
        spec: Any,
        output: OutputSpec,
        limits: Limits,
        check: Any,
    ) -> SetPlan:
        return make_plan(tables, spec, output, limits)

    return PlanningSteps(label, key, summarize, make, names_table=True)


def _key(spec: SetSpec) -> tuple[Any, ...]:
    return "sets", spec.on, spec.tokenizer, spec.id, str(spec.id_dtype), spec.keep


SET_STEPS = planning_steps("simjoin_set_summary", _key, summarise_sets, make_set_plan)

FAN_IN = 4
"""A task merges at most this many vocabularies. The number is small, because a worker
must hold all of them at once.
"""


class BlockChunks(LabelledExpr):
    """Make the blocks of a table; for two tables, first the blocks of the left one,
    then of the right one.

    Each partition sends its rows to their blocks. `read`: for each table, a source
    whose partitions are the values that were read. `examples`: for each table, an empty
    frame like it.
    """

    _parameters = ["read", "examples", "spec", "plan"]
    _prefix: ClassVar[str]  # prefix of task names
    _send: ClassVar[Callable[..., Any]]
    _gather: ClassVar[Callable[..., Any]]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.operand("plan").number + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: SetPlan = self.operand("plan")
        spec: SetSpec = self.operand("spec")
        steps = Steps(self._prefix, self.deterministic_token)
        read = []
        for source in self.operand("read"):
            steps.layer.update(source.inner.__dask_graph__())
            read.append([TaskRef(key) for key in source.inner.__dask_keys__()])
        sendable, common = self._encoded(steps, read)
        threads = limits_for(spec.library).threads if spec.settings.cluster else None
        place = 0
        for t, (side, (_, own)) in enumerate(
            zip(plan.sides, named_sides(spec), strict=True)
        ):
            firsts = np.cumsum([0, *plan.tables.sources[t]]).tolist()
            sends: list[Call] = [
                ((t, n), self._send, (*rows, firsts[n], side))
                for n, rows in enumerate(sendable[t])
            ]
            parcels = steps.spread("send", "parcel", sends, range(len(side)), threads)
            for b in range(len(side)):
                key, example = (self._name, place), self.operand("examples")[t]
                steps.layer[key] = Task(
                    key,
                    self._gather,
                    *common,
                    example,
                    own,
                    *(some[b] for some in parcels),
                )
                place += 1
        return steps.layer

    def _encoded(
        self, steps: Steps, read: list[list[TaskRef]]
    ) -> tuple[list[list[tuple[Any, ...]]], tuple[Any, ...]]:
        """For each partition of each table, return the first arguments of `_send`. Also
        return the first arguments of `_gather`.
        """
        return [[(one,) for one in table] for table in read], ()


class SetChunks(BlockChunks):
    """Make the blocks of sets. The ranks of tokens are the same in all blocks.

    Each partition numbers its own tokens. A tree of tasks merges the vocabularies, and
    the ranks go back down this tree.
    """

    _label = "simjoin_set_block"
    _prefix = "simjoin_set"
    _send = staticmethod(send)
    _gather = staticmethod(gather_block)

    def _encoded(
        self, steps: Steps, read: list[list[TaskRef]]
    ) -> tuple[list[list[tuple[Any, ...]]], tuple[Any, ...]]:
        own, universe = self._ranks(steps, [one for table in read for one in table])
        rank = iter(own)
        sendable = [
            [
                (self._small(steps, "rows", (t, n), rows_of, one), next(rank))
                for n, one in enumerate(table)
            ]
            for t, table in enumerate(read)
        ]
        return sendable, (universe,)

    def _small(
        self,
        steps: Steps,
        step: str,
        place: Any,
        function: Callable[..., Any],
        *arguments: Any,
    ) -> Any:
        """Call a function whose result is small. On a cluster it is a separate task, so
        that only the result is sent.
        """
        if self.operand("spec").settings.cluster:
            return steps.add(step, place, function, *arguments)
        return Task(None, function, *arguments)

    def _ranks(self, steps: Steps, read: list[TaskRef]) -> tuple[list[Any], TaskRef]:
        """Return the ranks of each partition's tokens, and the number of all distinct
        tokens: see `SetChunks`.
        """
        level = [
            self._small(steps, "vocabulary", n, vocabulary_of, one)
            for n, one in enumerate(read)
        ]
        merged: list[list[Any]] = []
        limits = limits_for(self.operand("spec").library)
        room = limits.room if limits.cluster else None
        while len(level) > 1:
            groups = [level[s : s + FAN_IN] for s in range(0, len(level), FAN_IN)]
            depth = len(merged)
            made = [
                steps.add("merge", (depth, g), merge, *group, room=room)
                for g, group in enumerate(groups)
            ]
            merged.append(
                [
                    self._small(steps, "codes", (depth, g), pick, one, "codes")
                    for g, one in enumerate(made)
                ]
            )
            level = [
                self._small(steps, "merged", (depth, g), vocabulary_of, one)
                for g, one in enumerate(made)
            ]
        own: list[Any] = [steps.add("order", 0, ranks, level[0])]
        universe = steps.add("tokens", 0, len, own[0])
        for depth in range(len(merged) - 1, -1, -1):
            below = range(len(merged[depth - 1]) if depth else len(read))
            above = [
                (own[k // FAN_IN], merged[depth][k // FAN_IN], k % FAN_IN)
                for k in below
            ]
            # the ranks of an inner node are used by several tasks, so they need a task
            # of their own
            add = steps.add if depth else functools.partial(self._small, steps)
            own = [
                add("ranks", (depth, k), ranks_of, *some)
                for k, some in enumerate(above)
            ]
        return own, universe


def rows_of(found: ReadSets) -> ReadSetRows:
    rows = dict(found)
    del rows["vocabulary"]
    return cast(ReadSetRows, rows)


def vocabulary_of(found: ReadSets | Merged) -> Vocabulary:
    return found["vocabulary"]


SETS = JoinTasks(SetBlockPair, join_block, cut_block, count_block, count_block_pairs)


class LazySets(LazyJoin):
    """A lazy join of sets. It is planned when the plan is first needed."""

    _tasks: ClassVar[JoinTasks] = SETS
    _steps: ClassVar[PlanningSteps] = SET_STEPS
    _blocks: ClassVar[type[BlockChunks]] = SetChunks
    _reader: ClassVar[tuple[str, Callable[..., Any]]] = "simjoin_tokens", read_partition
    """The name of the tasks that read partitions, and the function that they call."""
    _report_type: ClassVar[type[SetPlanReport]] = SetPlanReport

    def _report(self, plan: SetPlan) -> SetPlanReport:  # type: ignore[override]
        return self._report_type(plan, self.operand("spec"))

    @property
    def _sources(self) -> list[FrozenSource]:
        return [self._source] if self._other is None else [self._source, self._other]

    def _read(self) -> tuple[FrozenSource, ...]:
        """Read the partitions of all tables. Return one source per table."""
        sources = [ROWS.take(source) for source in self._sources]
        plan, (label, reader) = cast(Any, self.plan), self._reader
        return tuple(
            FrozenSource(
                map_frozen(label, reader, source, own, each=list(enumerate(rows)))
            )
            for source, (_, own), rows in zip(
                sources,
                named_sides(self.operand("spec")),
                plan.tables.sources,
                strict=True,
            )
        )

    def _chunks(self) -> Expr:
        return self._made(self._read())

    def _made(self, read: tuple[FrozenSource, ...]) -> BlockChunks:
        RUNS.begin(self.plan.run)
        examples = tuple(source.inner._meta.iloc[:0] for source in self._sources)
        return self._blocks(read, examples, self.operand("spec"), self.plan)


class SetSelfJoin(LazySets, pairs.SelfJoin):
    """Pairs of rows of one table whose sets match."""

    _label = "simjoin_set_self_join"


class SetJoin(LazySets, pairs.Join):
    """Pairs of a left and a right row whose sets match."""

    _label = "simjoin_set_join"


class SetBestJoin(LazySets, BestJoin):
    """The right rows with the most similar sets, for each left row."""

    _label = "simjoin_set_best_join"


class CountSetPairs(LazySets, pairs.CountPairs):
    """Number of pairs of rows of one table whose sets match."""

    _label = "simjoin_count_set_pairs"


class SetNeighborCounts(LazySets, row_values.NeighborCounts):
    """For each row, the number of other rows that match it."""

    _label = "simjoin_set_neighbor_counts"
    _hash: ClassVar[Callable[..., Array]] = staticmethod(hash_rows)

    @property
    def _groups(self) -> Groups:
        return functools.partial(self._hash, spec=self.operand("spec"))

    def _values(self) -> Expr:
        read, whole = self._read(), self._source.inner.divisions
        common = (
            self._made(read),
            read[0],
            self.plan,
            self.operand("spec"),
            self._meta,
            whole,
        )
        return self._found(common, self.operand("chosen"))

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        """Return the values for the chosen partitions. `common`: the first operands of
        a `BlockValues`.
        """
        return CountRows(*common, chosen)


class SetMatchCounts(SetNeighborCounts):
    """For each left row, the number of right rows that match it."""

    _label = "simjoin_set_match_counts"
    _verb = "set_join"
    _parameters = ["frame", "source", "other", "spec", "meta", "chosen"]


class CountRows(BlockValues):
    _label = "simjoin_set_counts"
    _tasks: ClassVar[JoinTasks] = SETS

    def _by_block(self, steps: Steps) -> list[TaskRef]:
        plan, spec = self.operand("plan"), self.operand("spec")
        token, blocks = self.deterministic_token, range(len(plan.counted))
        totals = add_counts(
            steps.layer, token, self.chunks, plan, spec, set(blocks), tasks=self._tasks
        )
        return [TaskRef(totals[b]) for b in blocks]


class SetNearDuplicated(SetNeighborCounts):
    """For each row, whether to drop it. Each dropped row matches a row that is kept."""

    _label = "simjoin_set_near_duplicated"
    _parameters = ["frame", "source", "spec", "keep", "grouping", "meta", "chosen"]

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        return MarkRows(*common, self.operand("keep"), self.operand("grouping"), chosen)


class MarkRows(BlockValues):
    """In each block, mark the rows to drop."""

    _label = "simjoin_set_duplicates"
    _tasks: ClassVar[JoinTasks] = SETS
    _parameters = [*BlockValues._parameters[:-1], "keep", "grouping", "_partitions"]

    def _by_block(self, steps: Steps) -> list[TaskRef]:
        plan: SetPlan = self.operand("plan")
        spec, keep, add = self.operand("spec"), self.operand("keep"), steps.add
        refs = [self.chunks.chunk_ref(b) for b in range(len(plan.counted))]
        rows = [
            add("rows", b, candidate_rows, ref, spec, keep)
            for b, ref in enumerate(refs)
        ]
        connected = self.operand("grouping") == CONNECTED
        found = [
            add(
                "forest" if connected else "pairs",
                (b, part[0]),
                forest_of_block if connected else pairs_of_block,
                self._tasks.block_pair(self.chunks, i, j, spec, plan.layout, part),
                List(rows[i], rows[j]),
            )
            for b, i, j, part in plan.work.pieces()
        ]
        return (
            self._of_groups(steps, refs, rows, found)
            if connected
            else self._greedy(steps, refs, rows, found)
        )

    def _of_groups(
        self,
        steps: Steps,
        refs: list[TaskRef],
        rows: list[TaskRef],
        found: list[TaskRef],
    ) -> list[TaskRef]:
        add, library = steps.add, self.operand("spec").library
        forest = steps.merged(
            "merge", functools.partial(merge_edges, library), found, 4
        )
        best = [
            add("best", b, best_of_chunk, some, forest, library)
            for b, some in enumerate(rows)
        ]
        candidates = [add("told", b, pick, some, 2) for b, some in enumerate(best)]
        winners = steps.merged("winners", merge_candidates, candidates)
        return [
            add("gone", b, marks_of_groups, ref, rows[b], best[b], winners)
            for b, ref in enumerate(refs)
        ]

    def _greedy(
        self,
        steps: Steps,
        refs: list[TaskRef],
        rows: list[TaskRef],
        found: list[TaskRef],
    ) -> list[TaskRef]:
        """Choose the rows to keep in a single task, which needs all pairs. First check
        whether the pairs fit in memory.
        """
        add, spec = steps.add, self.operand("spec")
        free = limits_for(spec.library).room
        numbers = [
            add("number", place, number_of_pairs, some)
            for place, some in enumerate(found)
        ]
        checked = add("check", 0, check_pairs, free, spec.request, *numbers)
        own = [add("names", b, on_host, some) for b, some in enumerate(rows)]
        whole = add(
            "choose",
            0,
            after,
            checked,
            stays_of_chunks,
            spec.library,
            List(*own),
            *found,
        )
        return [
            add("gone", b, marks_but, ref, rows[b], add("stay", b, pick, whole, b))
            for b, ref in enumerate(refs)
        ]


class LazySetJoins(LazyJoins):
    """Makes joins of sets of one Dask DataFrame or two."""

    expressions: ClassVar[Expressions] = Expressions(
        SetSelfJoin,
        SetJoin,
        CountSetPairs,
        SetNeighborCounts,
        SetMatchCounts,
        SET_STEPS,
    )
    near_duplicated: ClassVar[type[Expr]] = SetNearDuplicated
    best_join: ClassVar[type[Expr]] = SetBestJoin
    report: ClassVar[type[Any]] = SetPlanReport

    def best(self, example: Frame, how: str) -> Frame:
        tables = self.source, self.other
        return new_collection(self.best_join(*tables, self.spec, how, example))

    def marks(self, request: Any, example: Series) -> Series:
        if request.counted:
            return self.counts(example) != 0
        operands = self.spec, request.keep, request.grouping, example
        return self.of_rows(self.near_duplicated, *operands) != 0
