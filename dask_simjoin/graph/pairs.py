"""Expressions of lazy pairs, of lazy counts of pairs, and of lazy sparse matrices of
neighbors.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from dask.delayed import Delayed

from dask_simjoin.graph.aligned import add_counts
from dask_simjoin.graph.base import (
    LabelledExpr,
    RowsExpr,
    Steps,
    after,
    aliases,
    blocks_of_chunks,
    itself,
    pick,
    picked,
)
from dask_simjoin.graph.dask_private import Alias, Expr, List, Task, TaskRef
from dask_simjoin.graph.gathered import gathered_by_threads
from dask_simjoin.graph.lazy_join import JoinTasks, LazyJoin, block_pair_of
from dask_simjoin.graph.left_out import LeftOutRows, npartitions_of, rows_left_out
from dask_simjoin.graph.records import RUNS, Recorded
from dask_simjoin.graph.source import optimise_in_place
from dask_simjoin.planning.budget import Fitting
from dask_simjoin.planning.data_warnings import naming_causes
from dask_simjoin.planning.outputs import PAIRS, OutputSpec
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.request.requests import LEFT
from dask_simjoin.tasks import csr
from dask_simjoin.tasks.counts import pairs_by_eps
from dask_simjoin.tasks.pairs import rows_without_right, unmatched


class LazyGraph(Delayed):
    """A lazy matrix. It is planned when its tasks are first needed, for example by
    `compute`.
    """

    __slots__ = ("_expr", "_tasks")

    def __init__(self, expr: Expr) -> None:
        super().__init__(expr._name, None)
        self._expr = expr
        self._tasks: dict[Any, Any] | None = None

    @property
    def expression(self) -> Expr:
        """The lazy join that makes the matrix."""
        return self._expr

    @property
    def dask(self) -> Mapping[Any, Any]:
        """The tasks of the matrix. The first access plans the matrix."""
        if self._tasks is None:
            made = optimise_in_place(self._expr)
            (key,) = made.__dask_keys__()
            self._tasks = dict(made.__dask_graph__()) | {self.key: Alias(self.key, key)}
        return self._tasks


class NeighborGraph(LazyJoin):
    """A lazy neighbor matrix whose chunks are not planned yet."""

    _label = "simjoin_neighbor_graph"
    _parameters = ["source", "spec", "mode", "meta"]
    # each row takes 12 bytes: its number, and its number of entries
    _output = OutputSpec(result_bytes_per_row=12, single_home=True, joins=2)

    def _lower(self) -> Expr:
        plan, spec = self.plan, self.operand("spec")
        rows = sum(rows for rows, _ in plan.tables.sources[0])
        fitting = csr.fitting_for(
            spec, rows, self._meta, limits_for(spec.library), pieces=True
        )
        with naming_causes(lambda: plan.tables.warnings):
            fitting.check(
                2 * plan.result.estimate.total_low
                + plan.rows * spec.result.include_self,
                sampled=True,
            )
        return GraphRows(
            self._chunks(), plan, spec, self.operand("mode"), self._meta, fitting
        )


class GraphRows(LabelledExpr):
    """Make the matrix as one partition.

    First, tasks count the entries of each block pair. If all entries fit in memory,
    tasks make the entries of each block pair, and then gather and sort the entries of
    each chunk's rows. One task assembles the matrix.
    """

    _label = "simjoin_neighbor_graph_rows"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "mode", "meta", "fitting"]

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        spec, mode, example = self.operand("spec"), self.operand("mode"), self._meta
        steps = Steps("simjoin_neighbor_graph", self.deterministic_token)
        add = steps.add
        every = range(len(plan.chunks))
        blocks = [(b, i, j) for b, (i, j) in enumerate(plan.work.blocks.tolist())]
        refs = [self.chunks.chunk_ref(c) for c in every]
        fitting: Fitting = self.operand("fitting")
        rows, firsts = (
            fitting.rows,
            np.cumsum([0, *(rows for rows, _ in plan.tables.sources[0])]).tolist(),
        )
        number_type = np.int32 if rows <= csr.MAX_INT32 else np.int64
        numbers = [
            add(
                "names",
                c,
                csr.matrix_numbers,
                refs[c],
                [firsts[n] for n, _, _ in own],
                number_type,
            )
            for c, own in enumerate(plan.counted.pieces)
        ]
        block_pairs = [
            block_pair_of(self.chunks, i, j, spec, plan.layout) for _, i, j in blocks
        ]
        counts = [
            add("count", b, csr.count_entries, block_pair)
            for b, block_pair in enumerate(block_pairs)
        ]
        entries = [add("number", b, pick, count, 2) for b, count in enumerate(counts)]
        itself = plan.rows if spec.result.include_self else 0
        fits = add("fits", 0, _check, List(*entries), itself, fitting)
        filled = []
        for (b, i, j), found in zip(blocks, counts, strict=True):
            arguments = block_pairs[b], found, List(numbers[i], numbers[j]), mode
            filled.append(add("fill", b, after, fits, csr.fill_block, *arguments))
        gathered = []
        for c, met in enumerate(blocks_of_chunks(plan)):
            parts = (picked(filled[b], side) for b, side, _ in met)
            gathered.append(
                add(
                    "gather",
                    c,
                    csr.gather_rows,
                    numbers[c],
                    spec.result.include_self,
                    mode,
                    *parts,
                )
            )
        key = (self._name, 0)
        steps.layer[key] = Task(
            key, csr.assemble, rows, example, List(*numbers), List(*gathered)
        )
        return steps.layer


def _check(numbers: list[int], itself: int, fitting: Fitting) -> None:
    fitting.check(sum(numbers) + itself)


class SelfJoin(LazyJoin):
    """Lazy pairs of rows of one frame. The join is not planned yet."""

    _label = "simjoin_self_join"
    _output = PAIRS
    _plan_tells_partitions = True

    @property
    def _alone(self) -> int:
        """Number of additional partitions, for left rows without a match."""
        return 0

    def _left_out(self) -> LeftOutRows | None:
        """Return the left rows that `dropna` leaves out; None if the result has none."""
        return None

    def _divisions(self) -> tuple[None, ...]:
        others = npartitions_of(self._left_out())
        return (None,) * (max(self.plan.work.outputs + self._alone + others, 1) + 1)

    def _lower(self) -> Expr:
        chunks, plan, spec, tasks = (
            self._chunks(),
            self.plan,
            self.operand("spec"),
            self._tasks,
        )
        counts = ChunkCounts(chunks, plan, spec, tasks) if self._alone else None
        cuts = (
            Cuts(chunks, plan, spec, tasks)
            if not plan.work.even and (plan.work.slices > 1).any()
            else None
        )
        others = self._left_out()
        return JoinBlocks(chunks, cuts, plan, spec, self._meta, counts, tasks, others)


class Join(SelfJoin):
    """Lazy pairs of rows of two tables. The join is not planned yet.

    `how`: "inner", or "left", which adds left rows without a match.
    """

    _label = "simjoin_join"
    _parameters = ["source", "other", "spec", "how", "meta"]

    @property
    def _alone(self) -> int:
        return len(self.plan.counted) if self.operand("how") == LEFT else 0

    def _left_out(self) -> LeftOutRows | None:
        if self.operand("how") != LEFT:
            return None
        return rows_left_out(self._source, self.plan, self.operand("spec"))


class ChunkCounts(LabelledExpr):
    """For each row of the left table, count its matches in the right table. There is
    one partition per left chunk.
    """

    _label = "simjoin_counts"
    _parameters = ["chunks", "plan", "spec", "tasks"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").counted) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan, spec, tasks = (
            self.operand("plan"),
            self.operand("spec"),
            self.operand("tasks"),
        )
        layer: dict[Any, Any] = {}
        every = set(range(len(plan.counted)))
        totals = add_counts(
            layer, self.deterministic_token, self.chunks, plan, spec, every, tasks=tasks
        )
        return layer | aliases(self._name, (totals[c] for c in sorted(totals)))


class Cuts(LabelledExpr):
    """For each block pair that makes several partitions, cut the rows of its first
    chunk: one range per partition.
    """

    _label = "simjoin_cuts"
    _parameters = ["chunks", "plan", "spec", "tasks"]

    @functools.cached_property
    def blocks(self) -> list[int]:
        """List the block pairs that make several partitions."""
        plan: Plan = self.operand("plan")
        return [] if plan.work.even else np.flatnonzero(plan.work.slices > 1).tolist()

    @functools.cached_property
    def _number(self) -> dict[int, int]:
        return {block: n for n, block in enumerate(self.blocks)}

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.blocks) + 1)

    def ref(self, block: int) -> TaskRef:
        """Return a reference to where the rows of a block pair are cut."""
        return TaskRef((self._name, self._number[block]))

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        tasks: JoinTasks = self.operand("tasks")
        steps, layer = Steps("simjoin", self.deterministic_token), {}
        for n, block in enumerate(self.blocks):
            i, j = plan.work.blocks[block].tolist()
            meet = functools.partial(
                tasks.block_pair, self.chunks, i, j, self.operand("spec"), plan.layout
            )
            key, slices, parts = (
                (self._name, n),
                int(plan.work.slices[block]),
                int(plan.work.parts[block]),
            )
            if parts == 1 or tasks.weigh is None:
                layer[key] = Task(key, tasks.cut, meet(), slices)
                continue
            weights = [
                steps.add("weights", (n, part), tasks.weigh, meet((part, parts)))
                for part in range(parts)
            ]
            layer[key] = Task(
                key, tasks.cut_weighed, plan.layout.grain, slices, *weights
            )
        return layer | steps.layer


class JoinBlocks(RowsExpr):
    """Make the partitions of the result from the block pairs.

    With `counts`, additional partitions have the left rows without a match. `others`:
    the left rows that `dropna` leaves out, which get partitions of their own; None:
    there are none. `cuts`: None if no block pair is cut by numbers of pairs.
    """

    _label = "simjoin_pairs"
    _parameters = [
        "chunks",
        "cuts",
        "plan",
        "spec",
        "meta",
        "counts",
        "tasks",
        "others",
        "columns",
        "_partitions",
    ]
    _defaults = {
        "counts": None,
        "others": None,
        "columns": None,
        "_partitions": None,
    }

    def _ends(self) -> tuple[int, int, int]:
        """Return the number of partitions with pairs, with left rows without a match as
        well, and with left rows that are left out as well.
        """
        pairs = self.operand("plan").work.outputs
        matched = pairs + npartitions_of(self.operand("counts"))
        return pairs, matched, matched + npartitions_of(self.operand("others"))

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(self._ends()[-1], 1) + 1)

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        threads = self.operand("plan").limits.together
        gathered = gathered_by_threads(self, parent, threads)
        if gathered is not None:
            return gathered
        return super()._simplify_up(parent, dependents)

    def _filtered_task(self, name: Any, index: int) -> Task:
        plan: Plan = self.operand("plan")
        counts = self.operand("counts")
        pairs, matched, of = self._ends()
        of = max(of, 1)
        call: tuple[Any, ...]
        if pairs <= index < matched:
            c = index - pairs
            found = self.chunks.chunk_ref(c), TaskRef((counts._name, c))
            call = unmatched, *found, self.operand("spec"), self._meta
        elif index >= matched and self.operand("others") is not None:
            rows = TaskRef((self.operand("others")._name, index - matched))
            call = rows_without_right, rows, self.operand("spec"), self._meta
        elif not plan.work.outputs:
            call = itself, self._meta
        else:
            tasks: JoinTasks = self.operand("tasks")
            like = () if counts is None else (self._meta,)
            block, number, parts = plan.work.output(index)
            cuts = (
                parts
                if plan.work.even or parts == 1
                else self.operand("cuts").ref(block)
            )
            slice_ = (cuts, number) if parts > 1 else (None, 0) if like else ()
            i, j = plan.work.blocks[block].tolist()
            spec, part = self.operand("spec"), (number, parts)
            block_pair = tasks.block_pair(
                self.chunks, i, j, spec, plan.layout, output=part
            )
            call = tasks.join, block_pair, self.columns, *slice_, *like
        function, *arguments = call
        if plan.run:
            RUNS.name_result(name[0], plan.run)
            function = Recorded(function, plan.run, "pairs", index, of)
        return Task(name, function, *arguments)


class CountPairs(LazyJoin):
    """A lazy number of pairs. The join is not planned yet."""

    _label = "simjoin_count_pairs"
    _parameters = ["source", "spec", "meta", "example"]
    _defaults = {"example": None}

    def _lower(self) -> Expr:
        total = CountTotal(
            self._chunks(), self.plan, self.operand("spec"), 0, self._tasks
        )
        if self.operand("example") is None:
            return total
        return CountsByEps(
            total, self.operand("spec"), self._meta, self.operand("example")
        )


class CountsByEps(LabelledExpr):
    """Convert the numbers of pairs for several distances to a Series."""

    _label = "simjoin_count_by_eps"
    _parameters = ["total", "spec", "meta", "example"]

    def _layer(self) -> dict[Any, Any]:
        key, total = (self._name, 0), TaskRef((self.total._name, 0))
        return {
            key: Task(
                key, pairs_by_eps, total, self.operand("spec"), self.operand("example")
            )
        }


class CountTotal(LabelledExpr):
    """Add up the numbers of pairs of all block pairs."""

    _label = "simjoin_count"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "meta", "tasks"]

    def _layer(self) -> dict[Any, Any]:
        plan, spec, tasks = (
            self.operand("plan"),
            self.operand("spec"),
            self.operand("tasks"),
        )
        name = f"simjoin_count_block-{self.deterministic_token}"
        layer: dict[Any, Any] = {}
        for b, i, j, part in plan.work.pieces():
            block_pair = tasks.block_pair(self.chunks, i, j, spec, plan.layout, part)
            layer[(name, b, part[0])] = Task(
                (name, b, part[0]), tasks.count_pairs, block_pair
            )
        key = (self._name, 0)
        layer[key] = Task(key, sum, List(*(TaskRef(piece) for piece in layer)))
        return layer
