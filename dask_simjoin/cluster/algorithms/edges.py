"""Collect the edges between near rows, and count and connect rows by place.

Edges are sorted by row. A place is the position of a row in the index of its chunk.
Near rows have near places, so values that are stored by place are close together in
memory. In frame order, each access to a neighbor would miss the CPU cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np

from dask_simjoin.engine.base import host_kernels, joiner_of_library
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.process import shared_out, together
from dask_simjoin.engine.protocols import Joiner, Ranged
from dask_simjoin.metrics.norms import Array
from dask_simjoin.planning.checks import MAX_ROWS
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import new_nodes
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.named_tuples import sent_by_fields


class EdgeRun(NamedTuple):
    """Edges that start at rows of a chunk, sorted by row."""

    rows: np.ndarray  # the rows that have edges, ascending, int32
    # where the edges of each of these rows start; then where the last ones end
    ends: np.ndarray
    others: np.ndarray  # row at the other end of each edge, int32
    squared: np.ndarray  # squared length of each edge, float64

    @classmethod
    def sorted(
        cls, number: int, rows: np.ndarray, others: np.ndarray, squared: np.ndarray
    ) -> EdgeRun:
        """Sort edges by row. `number`: how many rows the chunk has."""
        ends = np.zeros(number + 1, np.int64)
        out, values = np.empty(len(rows), np.int32), np.empty(len(rows))
        host_kernels("optics").by_row(rows, others, squared, ends, out, values)
        some = np.flatnonzero(np.diff(ends))
        return cls(some.astype(np.int32), np.append(0, ends[some + 1]), out, values)

    def piece(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the edges of rows `start` to `stop` - 1: offsets by row, the rows at
        the other ends, and squared distances.
        """
        first, last = np.searchsorted(self.rows, [start, stop])
        ends = np.zeros(stop - start + 1, np.int64)
        ends[self.rows[first:last] - start + 1] = np.diff(self.ends[first : last + 1])
        some = slice(self.ends[first], self.ends[last])
        return np.cumsum(ends), self.others[some], self.squared[some]


def edges_of_block(
    block_pair: BlockPair, buffer: int
) -> tuple[list[EdgeRun], list[EdgeRun] | None]:
    """Collect the edges between two chunks, or within one chunk. Each edge is listed
    once from each end.

    `buffer`: at most about this many pairs are sorted at a time.
    """
    is_self_join = block_pair.is_self_join
    sizes = [len(side["ids"]) for side in block_pair.chunks]
    runs: list[list[EdgeRun]] = [[] for _ in sizes]
    waiting: list[tuple[np.ndarray, ...]] = []
    number = 0

    def sort() -> None:
        nonlocal number
        if not number:
            return
        left, right, squared = (
            np.concatenate(column) for column in zip(*waiting, strict=True)
        )
        if is_self_join:
            twice = (
                np.concatenate(both)
                for both in ((left, right), (right, left), (squared, squared))
            )
            runs[0].append(EdgeRun.sorted(sizes[0], *twice))
        else:
            runs[0].append(EdgeRun.sorted(sizes[0], left, right, squared))
            runs[1].append(EdgeRun.sorted(sizes[1], right, left, squared))
        waiting.clear()
        number = 0

    def visitor(left: Array, right: Array, squared: Array) -> None:
        nonlocal number
        waiting.append(
            tuple(np.array(to_host(column)) for column in (left, right, squared))
        )
        number += len(left)
        if number >= buffer:
            sort()

    block_pair.joiner.visit(*block_pair.operands, visitor, is_self_join=is_self_join)
    sort()
    return runs[0], None if is_self_join else runs[1]


class CoreEdges(NamedTuple):
    """The edges that start at core rows of a chunk."""

    core: np.ndarray  # (n,), float64: core distances; infinity: not a core row
    degree: np.ndarray  # (n,), int32: number of edges per row
    # node at the other end of each edge, int32; a node is a row's number in all chunks
    others: np.ndarray
    reach: np.ndarray  # reachability distance of that node from the row, float64


def gather_edges(
    rows: int,
    max_eps: float,
    min_samples: int,
    first_nodes: list[int],
    buffer: int,
    *parts: list[EdgeRun],
) -> CoreEdges:
    """Compute the core distances of a chunk's rows, and gather the edges of its core
    rows.

    `first_nodes`: one node for each part. The edges of a part end in one chunk, and
    this node is the first row of that chunk. `buffer`: at most this many edges are
    gathered at a time, or all of one row. Distances are rounded to 15 decimals, as in
    scikit-learn.
    """
    runs = [
        (run, node)
        for part, node in zip(parts, first_nodes, strict=True)
        for run in part
    ]
    degree = np.zeros(rows, np.int64)
    for run, _ in runs:
        degree[run.rows] += np.diff(run.ends)
    total = np.append(0, np.cumsum(degree))
    core, left = np.full(rows, np.inf), np.zeros(rows, np.int32)
    others, reach = [np.empty(0, np.int32)], [np.empty(0)]
    kernels, start = host_kernels("optics"), 0
    while start < rows:
        stop = int(np.searchsorted(total, total[start] + buffer, side="right")) - 1
        stop = min(max(stop, start + 1), rows, start + buffer)
        some = slice(start, stop)
        number = int(total[stop] - total[start])
        nodes, squared = np.empty(number, np.int32), np.empty(number)
        at = total[start:stop] - total[start]
        for run, node in runs:
            kernels.append_rows(*run.piece(start, stop), node, at, nodes, squared)
        far = np.full(stop - start, np.inf)
        kernels.kth_smallest(
            total[start : stop + 1] - total[start],
            squared,
            min_samples - 1,
            far,
            np.empty(int(degree[some].max(initial=0))),
        )
        far = np.sqrt(far)
        core[some] = np.round(np.where(far <= max_eps, far, np.inf), 15)
        row = np.repeat(np.arange(stop - start), degree[some])
        near = (squared <= max_eps * max_eps) & np.isfinite(core[some])[row]
        row = row[near]
        left[some] = np.bincount(row, minlength=stop - start)
        others.append(nodes[near])
        reach.append(np.round(np.maximum(np.sqrt(squared[near]), core[some][row]), 15))
        start = stop
    return CoreEdges(core, left, np.concatenate(others), np.concatenate(reach))


def order_of(chunk: Chunk) -> Array:
    """For each place in a chunk, return the row that is stored there (n,), int32."""
    return chunk["order"][: len(chunk["ids"])]


def by_place(block_pair: BlockPair) -> BlockPair:
    """Return a block pair whose visitors receive places instead of rows.

    Read the property `rows` from the original block pair: it is cached there, but not
    in the new one.
    """
    placed = []
    for chunk in block_pair.chunks:
        order = chunk["order"]
        placed.append(
            cast(
                Chunk,
                chunk | {"order": block_pair.xp.arange(len(order), dtype=order.dtype)},
            )
        )
    return block_pair._replace(query=placed[0], data=placed[-1])


@sent_by_fields
class PlaceCounts(NamedTuple):
    """Neighbor counts of consecutive places in a chunk, as one share of the work has
    found them.
    """

    start: int  # the first of these places
    # (k,): counts, clipped to the smallest unsigned dtype that holds `min_samples`
    counts: Array


def counts_by_place(block_pair: BlockPair, min_samples: int) -> tuple[PlaceCounts, ...]:
    """Count the neighbors of each place: within one chunk, or for two chunks in the
    other chunk.

    If the work is shared, the counts of the first chunk begin at the first place of
    this share, not at 0.
    """
    placed, rows, xp, least = (
        by_place(block_pair),
        block_pair.places,
        block_pair.xp,
        min_samples - 1,
    )
    found = placed.joiner.counts(
        *placed.operands, is_self_join=block_pair.is_self_join, enough=least, rows=rows
    )
    starts = [0] * len(found)
    if rows is not None and xp is np:
        start, stop = rows
        starts[0], some = start, found[0]
        found[0] = (
            some[start:]
            if block_pair.is_self_join and some[stop:].any()
            else some[start:stop]
        )
    # the counts are sent to another task, so use a small dtype
    kind = np.min_scalar_type(min(least, MAX_ROWS))
    found = [xp.minimum(some, np.iinfo(kind).max).astype(kind) for some in found]
    return tuple(map(PlaceCounts, starts, found))


def cores_by_place(min_samples: int, *parts: PlaceCounts) -> Array:
    """Return a mask (n,) of the places with core rows. `parts`: the counts by all
    shares of the work.
    """
    xp, least = module_of(parts[0].counts), min_samples - 1
    ends = [start + len(counts) for start, counts in parts]
    # the shares follow each other without overlap
    if [start for start, _ in parts] == [0, *ends[:-1]]:
        cores = [counts >= least for _, counts in parts]
        return cores[0] if len(cores) == 1 else xp.concatenate(cores)
    found = xp.zeros(max(ends), np.int64)
    for start, counts in parts:
        found[start : start + len(counts)] += counts
    return found >= least


def all_cores(chunk: Chunk) -> Array:
    """Return a mask (n,) that marks all rows of a chunk as core rows."""
    order = order_of(chunk)
    return module_of(order).ones(len(order), bool)


def components_by_place(
    block_pair: BlockPair, core: Array | None, threads: int = 1
) -> Array:
    """For each place, return the first place of its component (n,). A place without a
    core row is its own component.

    If the work is shared, only the edges in this share connect rows. `core`: None if
    all rows are core rows. `threads`: how many threads unite the sets of one forest.
    """
    core = all_cores(block_pair.query) if core is None else core
    parent = new_nodes(len(core), block_pair.xp)
    connect_places(block_pair, core, parent, threads)
    block_pair.joiner.roots(parent, threads)
    return parent


def ranged_of(block_pair: BlockPair) -> Ranged | None:
    """Return the functions whose work on a single chunk threads can share; None: there
    are none.
    """
    joiner, layout = block_pair.joiner, block_pair.layout
    return joiner.ranged(layout) if block_pair.is_self_join else None


MIN_PLACES, TURNS = 1 << 14, 4
"""A single chunk is divided among threads only if each thread gets at least
`MIN_PLACES` places. Each thread gets `TURNS` ranges of them.
"""


def divided(block_pair: BlockPair, threads: int) -> list[BlockPair]:
    """Divide the work on a single chunk into parts for the threads of the host."""
    number = min(threads, len(block_pair.query["ids"]) // MIN_PLACES)
    if number < 2 or block_pair.xp is not np:
        return [block_pair]
    number *= TURNS
    return [block_pair._replace(part=(k, number)) for k in range(number)]


def for_places(
    work: Callable[[int, int], object], block_pair: BlockPair, threads: int
) -> None:
    """Call `work` for ranges of the places of this share of the work on a chunk,
    several for each thread.
    """
    first, last = block_pair.rows or (0, len(block_pair.query["ids"]))

    def shifted(start: int, stop: int) -> None:
        work(first + start, first + stop)

    if last > first:
        grain = block_pair.layout.grain
        shared_out(shifted, last - first, threads, grain, MIN_PLACES, TURNS)


def connect_places(
    block_pair: BlockPair, core: Array, parent: Array, threads: int = 1
) -> None:
    """Connect the core rows of a chunk along the edges in this share of the work.

    `parent`: the parent of each place in a disjoint-set forest. Several `threads` can
    connect places if it is on the host and int32.
    """
    if not len(core):
        return
    is_shared = parent.dtype == np.int32
    ranged = ranged_of(block_pair) if is_shared else None
    if ranged is None:
        calls = [
            functools.partial(_connect_part, part, core, parent)
            for part in divided(block_pair, threads if is_shared else 1)
        ]
        together(calls, threads)
        return
    index, _, layout = block_pair.operands
    shared = ranged.shared_to_connect(index, core)
    for step in range(ranged.steps):

        def connect(start: int, stop: int, step: int = step) -> None:
            ranged.connect_of(index, layout, (start, stop), shared, parent, step)

        for_places(connect, block_pair, threads)


def _connect_part(block_pair: BlockPair, core: Array, parent: Array) -> None:
    placed = by_place(block_pair)
    placed.joiner.connect(
        *placed.operands,
        parent,
        (core, core),
        0,
        is_self_join=True,
        rows=block_pair.rows,
    )


def joined_places(library: str, *parts: Array) -> Array:
    """Merge the components that the shares of the work on one chunk have found."""
    return joined(parts, joiner_of_library(library))


def joined(parts: Sequence[Array], joiner: Joiner) -> Array:
    """Merge the components that the shares of the work have found."""
    parent, xp = parts[0], joiner.xp
    for part in parts[1:]:
        later = xp.maximum(parent, part)
        # places that both shares connect to earlier ones
        both = xp.flatnonzero(later < xp.arange(len(part), dtype=part.dtype))
        parent = xp.minimum(parent, part)
        joiner.link(parent, both, later[both])
        joiner.roots(parent)
    return parent
