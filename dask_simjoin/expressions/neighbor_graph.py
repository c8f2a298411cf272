"""Make the expressions of lazy sparse matrices of neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dask.delayed import Delayed
from distributed.system import MEMORY_LIMIT

from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import Alias, Expr, List, Task
from dask_simjoin.expressions.lazy_join import LazyJoin
from dask_simjoin.expressions.source import optimise_in_place, pick, picked
from dask_simjoin.expressions.steps import Steps, after, blocks_of_chunks
from dask_simjoin.expressions.work import chunk_ref, meeting_of
from dask_simjoin.metrics.types import DType, Frame
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.free_memory import free_memory
from dask_simjoin.planning.goal import Goal
from dask_simjoin.planning.matrix_budget import DEVICE_ENTRY, ENTRY, PIECE, ROW, Fitting, Limit
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import ITSELF, resources
from dask_simjoin.tasks import csr

PAUSED = 0.8
"""Share of its limit at which Dask pauses a worker."""


class LazyGraph(Delayed):
    """Plan a matrix when its tasks are first asked for: when it is computed or persisted, or when
    another delayed call is made of it."""

    __slots__ = ("_expr", "_tasks")

    def __init__(self, expr: Expr) -> None:
        super().__init__(expr._name, None)
        self._expr = expr
        self._tasks: dict[Any, Any] | None = None

    @property
    def dask(self) -> Mapping[Any, Any]:
        """Plan the matrix, and give its tasks."""
        if self._tasks is None:
            made = optimise_in_place(self._expr)
            (key,) = made.__dask_keys__()
            self._tasks = dict(made.__dask_graph__()) | {self.key: Alias(self.key, key)}
        return self._tasks


class NeighborGraph(LazyJoin):
    """Stand for a matrix of neighbours before it is planned."""

    _label = "simjoin_neighbor_graph"
    _parameters = ["source", "spec", "mode", "meta"]
    _goal = Goal(result_bytes_per_row=12, single_home=True, joins=2)  # a row's name and its number of entries

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _lower(self) -> Expr:
        plan, spec = self.plan, self.operand("spec")
        rows = sum(rows for rows, _ in plan.sources[0])
        fitting = fitting_for(spec, rows, self._meta, resources(spec.library), pieces=True)
        fitting.check(2 * plan.estimate.total_low + plan.rows * spec.include_self, sampled=True)
        return GraphRows(self._chunks(), plan, spec, self.operand("mode"), self._meta, fitting)


def fitting_for(spec: JoinSpec, rows: int, example: Frame, have: Resources, pieces: bool) -> Fitting:
    """List what a matrix of neighbours must fit; `pieces`: it is put together from those of chunks."""
    gpu = have.gpu
    entry = DEVICE_ENTRY if gpu else ENTRY
    result, made = (entry, 8), (entry + PIECE * pieces, ROW)
    limits, name = [], "simjoin.result-limit"
    if spec.settings.result is not None:
        limits.append(Limit(spec.settings.result, *result, f"the configuration's {name} is", "", name))
    if gpu and have.memory is not None:
        whole = have.memory if have.cluster else have.memory * have.threads
        limits.append(Limit(whole, *made, "the smallest GPU has", "larger GPUs"))
    elif have.limit is not None:
        room = max(int(PAUSED * have.limit) - ITSELF, have.limit // 3)
        limits.append(Limit(room, *made, "the smallest worker has room for", "larger workers"))
    if not gpu:
        here = result if have.cluster else made
        most = MEMORY_LIMIT if pieces else min(MEMORY_LIMIT, free_memory())
        limits.append(Limit(most, *here, "this machine has", "a larger machine"))
    return Fitting(spec.eps, rows, limits, csr.max_entries(frames_for(example).xp))


class GraphRows(LabelledExpr):
    """Make the matrix: one task.

    Block pairs are counted; if all of it fits, they give the entries of their rows, which are gathered and
    sorted for the rows of each chunk; and one task puts those together.
    """

    _label = "simjoin_neighbor_graph_rows"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "mode", "meta", "fitting"]

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        spec, mode, example = self.operand("spec"), self.operand("mode"), self._meta
        steps = Steps("simjoin_neighbor_graph", self.deterministic_token)
        add = steps.add
        every = range(len(plan.chunks))
        blocks = [(b, i, j) for b, (i, j) in enumerate(plan.blocks.tolist())]
        refs = [chunk_ref(self.chunks, c) for c in every]
        fitting: Fitting = self.operand("fitting")
        rows, firsts = fitting.rows, np.cumsum([0, *(rows for rows, _ in plan.sources[0])]).tolist()
        numbers = [
            add("names", c, csr.matrix_numbers, refs[c], [firsts[n] for n, _, _ in own], number_type(rows))
            for c, own in enumerate(plan.counted.pieces)
        ]
        meetings = [meeting_of(self.chunks, i, j, spec, plan.layout) for _, i, j in blocks]
        counts = [add("count", b, csr.count_entries, meeting) for b, meeting in enumerate(meetings)]
        entries = [add("number", b, pick, count, 2) for b, count in enumerate(counts)]
        itself = plan.rows if spec.include_self else 0
        fits = add("fits", 0, _check, List(*entries), itself, fitting)
        filled = [
            add(
                "fill", b, after, fits, csr.fill_block, meetings[b], found, List(numbers[i], numbers[j]), mode
            )
            for (b, i, j), found in zip(blocks, counts, strict=True)
        ]
        gathered = []
        for c, met in enumerate(blocks_of_chunks(plan)):
            parts = (picked(filled[b], side) for b, side, _ in met)
            gathered.append(add("gather", c, csr.gather_rows, numbers[c], spec.include_self, mode, *parts))
        key = (self._name, 0)
        steps.layer[key] = Task(key, csr.assemble, rows, example, List(*numbers), List(*gathered))
        return steps.layer


def number_type(rows: int) -> DType:
    """Choose the type of the numbers of so many rows."""
    return np.int32 if rows <= csr.WIDE else np.int64


def _check(numbers: list[int], itself: int, fitting: Fitting) -> None:
    fitting.check(sum(numbers) + itself)
