"""Find pairs by comparing every row with every other row, on CPUs: see `NestedLoop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term, kind_of
from dask_simjoin.engine.cpu.sinks import NO_COUNTS, NO_PAIRS, Sink, fill
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.norms import Array, Index, Norm
from dask_simjoin.papers.list_index import NestedLayout, compared
from dask_simjoin.papers.lists import NestedLoop

ACROSS, ROTATION, TRIANGLE = range(3)
"""Kinds of jobs: compare two ranges of rows, or one range with itself by one of two
schedules.
"""

JOB, UNIT, QUERY, NEEDED = range(4)
"""Indexes in `state`: the job, the unit and the query that come next, and the needed
capacity.
"""


@device_function
def partners(size: int, block: int, unit: int) -> int:
    """Return the number of blocks that block `unit` is compared with in a rotation,
    including itself.

    Blocks are arranged on a circle. A block is compared with the blocks in the half of
    the circle after it. If the number of blocks is even, two opposite blocks are
    compared only once, by the first of them. `size`: number of rows; `block`: rows per
    block.
    """
    number = -(-size // block)
    half = number // 2
    return half + 1 if number % 2 or unit < half else half


def block_scratch(dims: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scratch arrays of `join`: a transposed block of rows (dims, block),
    and totals (block,).
    """
    return np.empty((dims, block)), np.empty(block)


Counts = tuple[np.ndarray, np.ndarray]
"""Number of pairs of each row, for the rows of both indexes."""


class Target(NamedTuple):
    """Arrays that a kernel writes pairs of ids to, and their capacity; or the counts of
    pairs of each row.
    """

    left: Array
    right: Array
    cap: int
    counting: bool
    q_counts: Array
    d_counts: Array


def target_of(sink: Sink | None, counts: Counts | None) -> Target:
    left, right = NO_PAIRS if sink is None else (sink.left, sink.right)
    capacity = 0 if sink is None else sink.capacity
    return Target(left, right, capacity, counts is not None, *(counts or NO_COUNTS))


@kernel
def join(
    jobs: Array,
    q_y: Array,
    q_places: Array,
    d_y: Array,
    names: tuple[Array, Array],
    block: int,
    threshold: float,
    norm: Kind,
    is_self_join: bool,
    target: Target,
    state: Array,
    scratch: tuple[Array, Array],
) -> int:
    """Write pairs of ids to `target`, or count the pairs of each row; return the number
    written.

    `jobs` (m, 5): start and stop of rows in `q_y`, start and stop of rows in `d_y`, and
    the kind of the job. In jobs of the kinds ROTATION and TRIANGLE, both ranges are the
    same rows. `q_places`: positions of the rows of `q_y`; in a self-join, their
    positions in `d_y`. `names`: ids of both. `scratch`: see `block_scratch`.

    The kernel stops before a row whose pairs might exceed the capacity. Then
    `state` has the job, the pair of blocks, the row, and the needed capacity. At the
    end, the needed capacity is 0. Blocks are transposed, so that a vector instruction
    compares several rows at once.
    """
    (q_names, d_names), (staged, totals) = names, scratch
    left, right, cap, counting, q_counts, d_counts = target
    dims = q_y.shape[1]
    n = 0
    for job in range(state[JOB], len(jobs)):
        q_first, q_stop, d_first, d_stop, kind = jobs[job]
        rows = block if kind != TRIANGLE else 1
        for a in range(-(-(q_stop - q_first) // rows)):
            begin = q_first + a * rows
            end = min(begin + rows, q_stop)
            number = -(-(d_stop - d_first) // block)
            first = d_first
            if kind == ROTATION:
                number = partners(q_stop - q_first, block, a)
            elif kind == TRIANGLE:
                first = begin + 1
                number = -(-(d_stop - first) // block)
            for step in range(number):
                unit = a * (-(-(d_stop - d_first) // block) + 1) + step
                if unit < state[UNIT]:
                    continue
                at = first + step * block
                if kind == ROTATION:
                    at = (
                        d_first + (a + step) % (-(-(d_stop - d_first) // block)) * block
                    )
                width = min(block, d_stop - at)
                for j in range(width):
                    for k in range(dims):
                        staged[k, j] = d_y[at + j, k]
                for p in range(max(begin, state[QUERY]), end):
                    if not counting and n + width > cap:
                        state[JOB], state[UNIT], state[QUERY], state[NEEDED] = (
                            job,
                            unit,
                            p,
                            width,
                        )
                        return n
                    totals[:] = 0.0
                    for k in range(dims):
                        x = q_y[p, k]
                        for j in range(width):
                            totals[j] = add_term(totals[j], x - staged[k, j], norm)
                    own = q_places[p]
                    # the first step compares the block with itself, so only later rows
                    # count
                    first_lane = p - at + 1 if kind == ROTATION and step == 0 else 0
                    for j in range(first_lane, width):
                        if totals[j] > threshold:
                            continue
                        other = at + j
                        if counting:
                            q_counts[
                                other if is_self_join and other < own else own
                            ] += 1
                            d_counts[
                                own if is_self_join and other < own else other
                            ] += 1
                        else:
                            one, two = q_names[own], d_names[other]
                            if is_self_join and two < one:
                                one, two = two, one
                            left[n], right[n] = one, two
                            n += 1
                state[QUERY] = 0
        state[UNIT] = 0
    state[NEEDED] = 0
    return n


def build(x: np.ndarray, layout: Layout, threads: int = 1) -> Index:
    """Return an index that keeps the rows `x` (n, d) in their order."""
    order = np.zeros(len(x) + SWEEP_LANES, np.int32)
    order[: len(x)] = np.arange(len(x))
    return {"order": order, "y": np.ascontiguousarray(x)}


def part(index: Index, start: int, stop: int) -> Index:
    return {
        "order": index["order"][start : stop + SWEEP_LANES],
        "y": index["y"][start:stop],
    }


def points(index: Index) -> np.ndarray:
    return index["y"]


def end(index: Index, stop: int, layout: Layout) -> int:
    return len(index["y"])


writes_names = False

KINDS = {"rotation": ROTATION, "triangle": TRIANGLE}

WORK_PARTS = 64
"""In a self-join, `work` divides the queries into this many equal parts."""


def layout(
    options: NestedLoop,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None = None,
) -> NestedLayout:
    return NestedLayout(threshold, options, len(lower), norm)


def compare(
    q_y: np.ndarray,
    d_y: np.ndarray,
    layout: Layout,
    kind: int,
    block: int,
    is_self_join: bool,
    names: Sequence[np.ndarray],
    sink: Sink | None,
    counts: Counts | None = None,
) -> None:
    """Compare two sets of rows in one job of the kind `kind`.

    Write pairs of ids to a sink, or count pairs.
    """
    jobs, state = (
        np.array([[0, len(q_y), 0, len(d_y), kind]], np.int64),
        np.zeros(4, np.int64),
    )
    positions, scratch = (
        np.arange(len(q_y), dtype=np.int32),
        block_scratch(q_y.shape[1], block),
    )

    def write() -> tuple[int, int]:
        n = join(
            jobs,
            q_y,
            positions,
            d_y,
            (names[0], names[1]),
            block,
            layout.threshold,
            kind_of(layout.norm),
            is_self_join,
            target_of(sink, counts),
            state,
            scratch,
        )
        return n, int(state[NEEDED])

    if sink is None:
        write()
    else:
        fill(sink, write)


def _run(
    q: Index,
    d: Index,
    layout: NestedLayout,
    is_self_join: bool,
    names: Sequence[np.ndarray],
    sink: Sink | None,
    counts: Counts | None,
) -> None:
    kind = KINDS[layout.options.schedule] if is_self_join else ACROSS
    compare(
        q["y"],
        d["y"],
        layout,
        kind,
        layout.options.block,
        is_self_join,
        names,
        sink,
        counts,
    )


def entry_points(
    run: Callable[..., object],
) -> tuple[Callable[..., tuple[int, int]], Callable[..., None]]:
    """Return the functions `pairs` and `counts` of a `CpuMethod`. Both call `run`."""

    def pairs(
        q: Index,
        d: Index,
        layout: Layout,
        is_self_join: bool,
        names: list[np.ndarray],
        sink: Sink,
        orient_by_position: bool,
    ) -> tuple[int, int]:
        run(q, d, layout, is_self_join, names, sink, None)
        return 0, 0  # no counters of a filter, because float64 decides all pairs

    def counts(
        q: Index,
        d: Index,
        layout: Layout,
        is_self_join: bool,
        q_counts: np.ndarray,
        d_counts: np.ndarray,
        enough: int | None = None,
    ) -> None:
        run(
            q,
            d,
            layout,
            is_self_join,
            [q["order"], d["order"]],
            None,
            (q_counts, d_counts),
        )

    return pairs, counts


pairs, counts = entry_points(_run)


def layout_stats(index: Index, layout: NestedLayout) -> Numbers:
    return compared(len(index["y"]), layout.dims)


def work(q: Index, d: Index, layout: NestedLayout, is_self_join: bool) -> np.ndarray:
    """Return the relative work of equal parts of the queries.

    In a self-join, later parts have less work, because each row is compared only with
    later rows.
    """
    return np.arange(WORK_PARTS, 0, -1) - 0.5 if is_self_join else np.ones(1)
