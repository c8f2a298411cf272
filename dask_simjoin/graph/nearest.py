"""Expressions of lazy nearest-neighbor joins and k-distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.graph.base import LabelledExpr, Steps, itself, numbers_in, picked
from dask_simjoin.graph.chunks import Chunks
from dask_simjoin.graph.dask_private import (
    Expr,
    List,
    PartitionsFiltered,
    Task,
    TaskRef,
)
from dask_simjoin.graph.gathered import gathered_by_threads
from dask_simjoin.graph.lazy_join import LazyJoin
from dask_simjoin.graph.left_out import LeftOutRows, npartitions_of, rows_left_out
from dask_simjoin.graph.placement import on_worker_of
from dask_simjoin.graph.row_values import FoundByChunk
from dask_simjoin.metrics.norms import Array
from dask_simjoin.planning.outputs import OutputSpec, nearest_output
from dask_simjoin.planning.plan import Plan
from dask_simjoin.reports.plan import NearestPlanReport
from dask_simjoin.request.requests import LEFT
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.matches import row_places
from dask_simjoin.tasks.nearest import (
    ANY_TOTAL,
    State,
    Totals,
    in_row_order,
    join_states,
    kth_distance,
    search_chunks,
)
from dask_simjoin.tasks.neighbor_rows import (
    find_rows,
    has_neighbor,
    nearest_or_missing,
    nearest_rows,
    part_of_rows,
    rows_near,
    search_rows,
)
from dask_simjoin.tasks.pairs import rows_without_right
from dask_simjoin.tasks.ties import ties_in, with_ties

Options = tuple[SearchLayout, int, bool, Totals]
"""Options of a search: layout, number of neighbors, whether it is a self-join, and
(smallest, largest) allowed total.
"""


def add_searches(
    steps: Steps,
    c: int,
    others: list[list[int]],
    chunks: Expr,
    numbers: list[int | Task],
    options: Options,
    parts: int,
    workers: int,
    threads: int,
) -> TaskRef:
    """Add tasks that search the chunks `others`, one after the other, for neighbors of
    the rows in chunk `c`. One task searches each group of `others`.

    `numbers`: the `RowNumbers` of each chunk. `parts`: number of parts that the rows
    are split into. `workers`: number of workers that share the parts. `threads`: number
    of threads that merge the parts.
    """
    states = add_parts(steps, c, others, chunks, numbers, options, parts, workers)
    return (
        states[0]
        if parts == 1
        else steps.add("found", c, join_states, threads, *states)
    )


def add_parts(
    steps: Steps,
    c: int,
    others: list[list[int]],
    chunks: Expr,
    numbers: list[int | Task],
    options: Options,
    parts: int,
    workers: int = 1,
) -> list[TaskRef]:
    """Add the tasks of `add_searches`, but do not merge the parts.

    `workers`: number of workers that share the parts.
    """
    some = [(part, parts) for part in range(parts)]
    return [
        add_part(steps, c, others, chunks, numbers, options, part, workers)
        for part in some
    ]


def add_part(
    steps: Steps,
    c: int,
    others: list[list[int]],
    chunks: Expr,
    numbers: list[int | Task],
    options: Options,
    part: tuple[int, int],
    workers: int,
) -> TaskRef:
    """Add the tasks of `add_searches` for one part of the rows.

    `others`: at least one group. `part`: (index of the part, number of parts).
    """
    layout, k, *limits = options
    where = on_worker_of(part[0] % workers, c) if workers > 1 else (c,)
    state: list[TaskRef] = []
    query = chunks.chunk_ref(c, part[0])
    for some in others:
        data = List(*(chunks.chunk_ref(d, part[0]) for d in some))
        own = List(*(numbers[one] for one in (c, *some)))
        how = search_chunks, query, data, layout, k, own, *limits, part, *state
        state = [steps.add("search", (*where, part[0], some[0]), *how)]
    return state[0]


class NearestLazy(LazyJoin):
    """Base class of nearest-neighbor joins.

    The operand `totals`, if there is one, has the smallest and the largest total that a
    neighbor may have.
    """

    @property
    def _totals(self) -> Totals:
        return self.operand("totals") if "totals" in self._parameters else ANY_TOTAL

    def _report(self, plan: Plan) -> NearestPlanReport:
        least, most = self._totals
        return NearestPlanReport(
            plan, self.operand("spec"), self.operand("k"), most, least
        )


class KDistances(FoundByChunk, NearestLazy):
    """For each row, the lazy distance to its k-th nearest neighbor. The chunks are not
    planned yet.
    """

    _label = "simjoin_k_distances"
    _fill = math.nan
    _parameters = ["frame", "source", "spec", "k", "totals", "meta", "chosen"]

    @property
    def output(self) -> OutputSpec:
        return nearest_output(self.operand("k"), max_total=self._totals[1])

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        options = (self.operand(name) for name in ("k", "totals", "spec"))
        return ChunkDistances(chunks, plan, *options)


class ChunkSearches(LabelledExpr):
    """Base class: search the neighbors of the rows of each chunk, and make a value for
    each row.

    Each chunk is compared with the chunks that may have neighbors of its rows, the
    nearest chunk first. So the search radius shrinks early.
    """

    _makes_result = True
    _parameters = ["chunks", "plan"]

    @property
    def _limits(self) -> tuple[int, bool, Totals]:
        """Number of neighbors, whether it is a self-join, and the (smallest, largest)
        allowed total.
        """
        raise NotImplementedError

    def _value(self, key: Any, state: TaskRef) -> Task:
        """Return the task that makes the values of a chunk's rows from the final state
        of its searches.
        """
        raise NotImplementedError

    @staticmethod
    def _without(chunk: Chunk) -> Array:
        """Return the values of a chunk's rows for the case that no row has k neighbors."""
        raise NotImplementedError

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").counted) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_nearest", self.deterministic_token)
        refs = [self.chunks.chunk_ref(c) for c in range(len(plan.chunks))]
        numbers, options = numbers_in(plan, refs), (plan.layout, *self._limits)
        for c in range(len(plan.counted)):
            key, others = (self._name, c), plan.work.groups(c)
            if not others or options[1] >= plan.rows:
                steps.layer[key] = Task(key, self._without, refs[c])
                continue
            how = (
                options,
                int(plan.work.parts[c]),
                plan.work.copies,
                plan.indexing.threads,
            )
            steps.layer[key] = self._value(
                key, add_searches(steps, c, others, self.chunks, numbers, *how)
            )
        return steps.layer


class ChunkDistances(ChunkSearches):
    """Make the distance of each row to its k-th nearest neighbor, as the bit pattern of
    a float64.
    """

    _label = "simjoin_k_distance"
    _parameters = ["chunks", "plan", "k", "totals", "spec"]

    @property
    def _limits(self) -> tuple[int, bool, Totals]:
        return self.operand("k"), True, self.operand("totals")

    def _value(self, key: Any, state: TaskRef) -> Task:
        return Task(key, _bits, state, self.operand("k"), self.operand("spec"))

    @staticmethod
    def _without(chunk: Chunk) -> Array:
        xp = frames_for(chunk["example"]).xp
        return xp.full(len(chunk["ids"]), math.inf).view(np.int64)


def _bits(state: State, k: int, spec: JoinSpec) -> Array:
    return kth_distance(state, k, spec).view(np.int64)


class HasNeighbor(FoundByChunk, NearestLazy):
    """For each row, a lazy 1 if it has a neighbor, else 0. The chunks are not planned
    yet.
    """

    _label = "simjoin_has_neighbor"
    _parameters = ["frame", "source", "other", "spec", "k", "totals", "meta", "chosen"]

    @property
    def output(self) -> OutputSpec:
        least, most = self._totals
        return nearest_output(1, max_total=most, min_total=least)

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        return ChunkHasNeighbor(
            chunks, plan, self.operand("other") is None, self._totals
        )


class ChunkHasNeighbor(ChunkSearches):
    """For each row, search one neighbor, and make an int64 that is 1 if there is one,
    else 0.
    """

    _label = "simjoin_chunk_has_neighbor"
    _parameters = ["chunks", "plan", "is_self_join", "totals"]

    @property
    def _limits(self) -> tuple[int, bool, Totals]:
        return 1, self.operand("is_self_join"), self.operand("totals")

    def _value(self, key: Any, state: TaskRef) -> Task:
        return Task(key, _has_neighbor, state)

    @staticmethod
    def _without(chunk: Chunk) -> Array:
        return frames_for(chunk["example"]).xp.zeros(len(chunk["ids"]), np.int64)


def _has_neighbor(state: State) -> Array:
    return has_neighbor(state).astype(np.int64)


class NearestJoin(NearestLazy):
    """The lazy nearest rows of each row. The join is not planned yet.

    `other`: the right table; None: neighbors are rows of the same table. `totals`: the
    smallest and the largest total that a neighbor may have. `how`: "inner", or "left",
    which adds rows without a neighbor. `ties`: whether to return all rows at the
    distance of the k-th neighbor.
    """

    _label = "simjoin_nearest_join"
    _parameters = ["source", "other", "spec", "k", "totals", "how", "ties", "meta"]
    _plan_tells_partitions = True

    @property
    def output(self) -> OutputSpec:
        least, most = self._totals
        return nearest_output(
            self.operand("k"),
            with_ids=True,
            max_total=most,
            min_total=least,
            ties=self.operand("ties"),
        )

    def _left_out(self) -> LeftOutRows | None:
        """Return the left rows that `dropna` leaves out; None if the result has none."""
        if self.operand("how") != LEFT:
            return None
        return rows_left_out(self._source, self.plan, self.operand("spec"))

    def _divisions(self) -> tuple[None, ...]:
        others = npartitions_of(self._left_out())
        return (None,) * (max(self.plan.work.outputs + others, 1) + 1)

    def _lower(self) -> Expr:
        names = "spec", "k", "totals", "how", "ties", "meta"
        options = [self.operand(name) for name in names]
        return NearestRows(self._chunks(), self.plan, *options, self._left_out())


class NearestRows(PartitionsFiltered, LabelledExpr):
    """Search the nearest rows of each row, chunk by chunk, like `ChunkSearches`.

    A small result of a chunk is one partition. If the chunks that it needs fit in the
    memory of a task, one task searches them and makes its rows. Else each part of the
    chunk's rows makes a partition. One task per searched chunk selects the neighbors
    that are rows of this chunk, with their ids. `others`: the left rows that `dropna`
    leaves out, which get partitions of their own; None: there are none.
    """

    _label = "simjoin_nearest_rows"
    _makes_result = True
    _parameters = [
        "chunks",
        "plan",
        "spec",
        "k",
        "totals",
        "how",
        "ties",
        "meta",
        "others",
        "_partitions",
    ]
    _defaults = {"others": None, "_partitions": None}

    def _divisions(self) -> tuple[None, ...]:
        others = npartitions_of(self.operand("others"))
        return (None,) * (max(self.operand("plan").work.outputs + others, 1) + 1)

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        threads = self.operand("plan").limits.together
        return gathered_by_threads(self, parent, threads)

    def _layer(self) -> dict[Any, Any]:
        plan, spec, meta = (
            self.operand("plan"),
            self.operand("spec"),
            self.operand("meta"),
        )
        steps = Steps("simjoin_nearest", self.deterministic_token)
        refs = [self.chunks.chunk_ref(c) for c in range(len(plan.chunks))]
        numbers = numbers_in(plan, refs)
        limits = spec.other is None, self.operand("totals")
        left = self.operand("how") == LEFT
        k, ties = self.operand("k"), self.operand("ties")
        options = plan.layout, k + ties, *limits
        rows = None
        if plan.work.at_once:
            rows = steps.add(
                "every",
                0,
                search_rows,
                refs[0],
                refs[int(plan.work.searches[0][0])],
                plan.layout,
                k,
                spec,
                self.operand("totals"),
                meta,
                left,
                plan.indexing.threads,
            )
        for place, n in enumerate(self._partitions):
            key = (self._name, place)
            if rows is not None and n < plan.work.outputs:
                part = n, plan.work.outputs
                steps.layer[key] = Task(key, part_of_rows, rows, *part)
                continue
            if n >= plan.work.outputs and self.operand("others") is not None:
                rows = TaskRef((self.operand("others")._name, n - plan.work.outputs))
                steps.layer[key] = Task(key, rows_without_right, rows, spec, meta)
                continue
            if not plan.work.outputs:
                steps.layer[key] = Task(key, itself, meta)
                continue
            c, number, parts = plan.work.output(n)
            others = plan.work.groups(c)
            if not others:
                alone = (
                    (nearest_or_missing, refs[c], None, spec, meta)
                    if left
                    else (itself, meta)
                )
                steps.layer[key] = Task(key, *alone)
                continue
            made = nearest_or_missing if left else nearest_rows
            undivided = parts == int(plan.work.parts[c]) == 1
            if undivided and len(others) == 1 and not ties:
                how = made, options, spec, meta, plan.counted.in_frame_order
                near = (refs[d] for d in others[0])
                steps.layer[key] = Task(
                    key, rows_near, *how, (c, *others[0]), refs[c], *near
                )
                continue
            about = steps, c, others, self.chunks, numbers, options
            if parts > 1:
                state = add_part(*about, (number, parts), plan.work.copies)
                state = steps.add("found", (c, number), in_row_order, state)
            else:
                state = add_searches(
                    *about,
                    int(plan.work.parts[c]),
                    plan.work.copies,
                    plan.indexing.threads,
                )
            if ties:
                state = self._tied(steps, c, others, numbers, number, state)
            query = self.chunks.chunk_ref(c, number)
            found = self._names(steps, c, others, numbers, number, state, parts > 1)
            steps.layer[key] = Task(key, made, query, state, spec, meta, *found)
        return steps.layer

    def _tied(
        self,
        steps: Steps,
        c: int,
        others: list[list[int]],
        numbers: list[int | Task],
        number: int,
        state: TaskRef,
    ) -> TaskRef:
        """Add all rows at the distance of the last neighbor to a state.

        `number`: the part of the rows.
        """
        query, totals = self.chunks.chunk_ref(c, number), self.operand("totals")
        about = state, self.operand("k"), self.operand("spec"), query
        tied = [
            steps.add(
                "ties",
                (c, number, d),
                ties_in,
                *about,
                self.chunks.chunk_ref(d, number),
                List(numbers[c], numbers[d]),
                totals,
            )
            for some in others
            for d in some
        ]
        return steps.add("tied", (c, number), with_ties, *about, totals[1], *tied)

    def _names(
        self,
        steps: Steps,
        c: int,
        others: list[list[int]],
        numbers: list[int | Task],
        number: int,
        state: TaskRef,
        divided: bool,
    ) -> list[TaskRef | Task]:
        """For each searched chunk, return the `FoundRows` of a state. If one task has
        searched all chunks, this is left to the task of the result.

        `number`: the part of the rows. `divided`: whether there are several.
        """
        spec, copies = self.operand("spec"), self.operand("plan").work.copies
        found: list[TaskRef | Task] = []
        for some in others:
            calls: list[Task] = []
            for d in some:
                data = self.chunks.chunk_ref(d, number), numbers[d], spec
                shared = divided and spec.kept_right
                places = self._places(steps, d, number % copies) if shared else None
                calls.append(Task(None, find_rows, state, *data, places))
            if len(others) > 1 or len(some) == 1:
                made = steps.add("name", (c, number, some[0]), itself, List(*calls))
                found += [picked(made, n) for n in range(len(some))]
            else:
                found += calls
        return found

    def _places(self, steps: Steps, d: int, copy: int) -> TaskRef:
        """Add a task that finds the place of each row in a copy of chunk `d`."""
        where = on_worker_of(copy, d) if self.operand("plan").work.copies > 1 else (d,)
        return steps.add("places", where, row_places, self.chunks.chunk_ref(d, copy))
