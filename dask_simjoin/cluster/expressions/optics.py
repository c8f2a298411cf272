"""Define the expressions of OPTICS: the order of rows, and clusters extracted from it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.edges import (
    edges_of_block,
    gather_edges,
)
from dask_simjoin.cluster.algorithms.optics import (
    FILL,
    FOREST,
    core_distances,
    forest_of_block,
    labels_of,
    labels_series,
    merge_border_edges,
    merge_forests,
    numbers_of_rows,
    order_forest,
    order_rows,
    smallest_of_block,
    with_positions,
)
from dask_simjoin.graph.aligned import Aligned
from dask_simjoin.graph.base import LabelledExpr, Steps, blocks_of_chunks, pick, picked
from dask_simjoin.graph.chunks import Chunks
from dask_simjoin.graph.dask_private import (
    Blockwise,
    Expr,
    List,
    PartitionsFiltered,
    Task,
    TaskRef,
)
from dask_simjoin.graph.lazy_join import block_pair_of
from dask_simjoin.graph.left_out import positions_left_out
from dask_simjoin.graph.row_values import ChunkValues, FoundByChunk
from dask_simjoin.graph.source import FrozenSource, optimise_in_place
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.checks import check_edges, check_order
from dask_simjoin.planning.limits import SHARE, Limits
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.planning.tables import JoinStatistics
from dask_simjoin.sizes import PAIRS_AT_ONCE
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import PREDECESSOR, Groups


class Extracted(Aligned):
    """A lazy Series of labels from a result of OPTICS, aligned with the rows of that
    result.
    """

    _label = "simjoin_labels"
    _parameters = ["frame", "source", "eps", "options", "meta", "chosen"]

    @property
    def _groups(self) -> Groups:
        # predecessors are row numbers, so they would change if the rows came in another
        # order
        return (tuple(name for name in self.frame.columns if name != PREDECESSOR),)

    def _values(self) -> Expr:
        source = self._source.inner
        how = self.operand("eps"), self.operand("options"), self._meta
        return ExtractedParts(
            FrozenSource(optimise_in_place(source)),
            *how,
            source.divisions,
            self.operand("chosen"),
        )


class ExtractedParts(PartitionsFiltered, LabelledExpr):
    """Label all rows in one task, and split the labels into partitions."""

    _label = "simjoin_labels_rows"
    _parameters = [
        "result",
        "eps",
        "options",
        "meta",
        "source_divisions",
        "_partitions",
    ]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _layer(self) -> dict[Any, Any]:
        result = self.operand("result").inner
        layer = dict(result.__dask_graph__())
        parts = [TaskRef(key) for key in result.__dask_keys__()]
        whole = (f"simjoin_labels_found-{self.deterministic_token}", 0)
        layer[whole] = Task(
            whole, _labels, self.operand("eps"), self.operand("options"), *parts
        )
        for place, n in enumerate(self._partitions):
            found, key = (
                (f"simjoin_labels_of-{self.deterministic_token}", n),
                (self._name, place),
            )
            layer[found] = Task(found, pick, TaskRef(whole), n)
            layer[key] = Task(
                key, labels_series, TaskRef(found), parts[n], self._meta.name
            )
        return layer


def _labels(
    eps: float | None, options: dict[str, Any], *parts: Frame
) -> list[np.ndarray]:
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return np.split(labels_of(parts, eps, options), ends)


class ForestRows(ChunkValues):
    """Order the rows by a spanning forest, and return the result by chunk.

    Tasks find core distances, and then the forest of each block pair. A tree of tasks
    merges the forests. `neighbors`: how many other rows must be within `max_eps` of a
    core row.
    """

    _label = "simjoin_optics_order"
    _parameters = ["chunks", "plan", "spec", "neighbors"]

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_optics", self.deterministic_token)
        add, number = steps.add, self.operand("neighbors")
        every, blocks = range(len(plan.chunks)), plan.work.blocks.tolist()
        refs = [self.chunks.chunk_ref(c) for c in every]
        block_pairs = [
            block_pair_of(self.chunks, i, j, self.operand("spec"), plan.layout)
            for i, j in blocks
        ]
        met = blocks_of_chunks(plan)

        def of_chunk(found: list[TaskRef], c: int) -> list[Task]:
            return [picked(found[b], side) for b, side, _ in met[c]]

        smallest = [
            add("smallest", b, smallest_of_block, found, number)
            for b, found in enumerate(block_pairs)
        ]
        cores = [
            add("core", c, core_distances, refs[c], number, *of_chunk(smallest, c))
            for c in every
        ]
        numbers = steps.row_numbers(plan, refs)
        numbers = [
            add("rows", c, numbers_of_rows, refs[c], own)
            for c, own in enumerate(numbers)
        ]
        forests = [
            add(
                "forest",
                b,
                forest_of_block,
                block_pairs[b],
                *(List(x[i], x[j]) for x in (cores, numbers)),
            )
            for b, (i, j) in enumerate(blocks)
        ]
        trees = [add("trees", b, pick, forest, 0) for b, forest in enumerate(forests)]
        reached = [
            add("reached", b, pick, forest, 1) for b, forest in enumerate(forests)
        ]
        # 4 at a time, because each forest may have an edge per row
        forest = steps.merged("merge", merge_forests, trees, fan_in=4)
        attached = [
            add("attached", c, merge_border_edges, cores[c], *of_chunk(reached, c))
            for c in every
        ]
        every_row = List(*numbers), List(*cores), List(*attached)
        order = add(
            "visit", 0, order_forest, *every_row, forest, self.operand("spec").measure
        )
        for c in every:
            steps.layer[(self._name, c)] = Task((self._name, c), pick, order, c)
        return steps.layer


ORDER_BYTES, FOREST_BYTES = 150, 500
"""Bytes that a row takes in the task that orders all rows: by all edges, and by a
forest.
"""


ORDER_ROW, ORDER_PAIR = 430.0, 110.0
"""Nanoseconds of a thread to put a row in the order of OPTICS, and to visit a pair."""


class Order(FoundByChunk):
    """A lazy result of OPTICS whose chunks are not planned yet."""

    _label = "simjoin_optics"
    _fill = FILL
    _parameters = [
        "frame",
        "source",
        "spec",
        "max_eps",
        "min_samples",
        "mode",
        "meta",
        "chosen",
    ]

    @property
    def output(self) -> OutputSpec:
        """Memory per row: row number, number of edges, distances and results; in mode
        "forest" also the nearest rows.
        """
        others = self.operand("min_samples") if self.operand("mode") == FOREST else 0
        # a stored nearest row takes 16 bytes: a row number and a distance
        return OutputSpec(
            result_bytes_per_row=64,
            bytes_per_other=16,
            others_per_row=others,
            single_home=True,
            after_row=ORDER_ROW,
            after_pair=ORDER_PAIR,
        )

    @property
    def _row_bytes(self) -> int:
        return FOREST_BYTES if self.operand("mode") == FOREST else ORDER_BYTES

    def _check_statistics(self, statistics: JoinStatistics, limits: Limits) -> None:
        check_order(statistics.left.rows, self._row_bytes, limits)

    def _values(self) -> Expr:
        values, spec = super()._values(), self.operand("spec")
        left_out = positions_left_out(self._source, self.plan, spec)
        return values if left_out is None else WithPositions(values, left_out)

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        samples, max_eps = self.operand("min_samples"), self.operand("max_eps")
        forest = self.operand("mode") == FOREST
        limits = limits_for(self.operand("spec").library)
        check_order(plan.rows, self._row_bytes, limits)
        if forest:
            return ForestRows(
                chunks, plan, self.operand("spec"), max(1, min(samples - 1, plan.rows))
            )
        # without a cluster, all threads order the rows in one process
        memory = limits.limit or (limits.shared or 0) * limits.threads or None
        check_edges(plan.result.estimate.total_low, max_eps, memory)
        buffer = PAIRS_AT_ONCE
        if limits.memory is not None and not limits.gpu:
            # a pair takes 96 bytes while its two edges, one in each direction, are
            # sorted
            buffer = int(np.clip(limits.memory // SHARE // 96, 1 << 16, PAIRS_AT_ONCE))
        return OrderedRows(chunks, plan, self.operand("spec"), samples, max_eps, buffer)


class WithPositions(Blockwise):
    """Convert the predecessors in a result to positions in the whole frame. `left_out`:
    a `LeftOutPositions`.
    """

    _parameters = ["frame", "left_out"]
    operation = staticmethod(with_positions)

    @functools.cached_property
    def _meta(self) -> Any:
        return self.frame._meta

    def _divisions(self) -> Any:
        return self.frame.divisions

    def _broadcast_dep(self, dep: Expr) -> bool:
        return bool(dep is self.operand("left_out") or dep.npartitions == 1)


class OrderedRows(ChunkValues):
    """Order the rows by all edges, and return the result for each chunk.

    Each block pair sorts its edges by row. One task per chunk gathers the edges of the
    chunk's rows, and computes their core distances. Then one task orders all rows.
    """

    _label = "simjoin_optics_order"
    _parameters = [
        "chunks",
        "plan",
        "spec",
        "min_samples",
        "max_eps",
        "buffer",
    ]

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        spec, buffer = self.operand("spec"), self.operand("buffer")
        steps = Steps("simjoin_optics", self.deterministic_token)
        every = range(len(plan.chunks))
        refs = [self.chunks.chunk_ref(c) for c in every]
        sizes = [steps.add("sizes", c, _size, refs[c]) for c in every]
        firsts = steps.add("nodes", 0, _first_nodes, *sizes)
        runs = [
            steps.add(
                "edges",
                b,
                edges_of_block,
                block_pair_of(self.chunks, i, j, spec, plan.layout),
                buffer,
            )
            for b, (i, j) in enumerate(plan.work.blocks.tolist())
        ]
        how = self.operand("max_eps"), self.operand("min_samples")
        gathered = []
        for c, met in enumerate(blocks_of_chunks(plan)):
            nodes = List(*(picked(firsts, other) for _, _, other in met))
            own = (picked(runs[b], side) for b, side, _ in met)
            gathered.append(
                steps.add(
                    "gather", c, gather_edges, sizes[c], *how, nodes, buffer, *own
                )
            )
        numbers = steps.row_numbers(plan, refs)
        order = steps.add("visit", 0, order_rows, List(*numbers), List(*gathered))
        for c in every:
            steps.layer[(self._name, c)] = Task((self._name, c), pick, order, c)
        return steps.layer


def _size(chunk: Chunk) -> int:
    return len(chunk["ids"])


def _first_nodes(*sizes: int) -> list[int]:
    return np.cumsum([0, *sizes]).tolist()
