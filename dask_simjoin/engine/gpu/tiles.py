"""Find pairs by comparing tiles on a GPU, in batches; a batch ends when the output
buffer is full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cupy
import numpy as np

from dask_simjoin.catalog import Tiles
from dask_simjoin.engine.columns import CAPACITY_PER_POINT
from dask_simjoin.engine.compat import constants_of, storage_of
from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.build import BUILDER, sliced_here
from dask_simjoin.engine.gpu.pairs import PairBatch
from dask_simjoin.engine.gpu.sources import FANOUT, MIXED, Sink, norm_constant
from dask_simjoin.engine.index import gpu as device
from dask_simjoin.engine.index.gpu import ENGINES, DeviceLayout, make_device_layout
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.metrics.norms import Array, Index, Norm
from dask_simjoin.sizes import BUFFER_SHARE

BATCH = 1 << 29
"""Maximum number of pairs in a batch; they take 4 GiB."""

MAX_UNITS = 1 << 26
"""Maximum number of units of work. Each unit takes the time of a few box tests, even if
no tile is near.
"""

MANY_BLOCKS = 16
"""With at least this many query blocks per thread block, a unit of work is one query
block and all tiles.

With long vectors, thread blocks then run in step, each a little behind the previous
one. So tiles that one of them has read are still in the L2 cache for the next. This
saves a tenth of the time for a million points of 384 dimensions.
"""

TILES_WARPS, TENSOR_WARPS = 4, 8

SLICED = {"vectors": "slices"}
"""Name of an array -> name of the array that replaces it for `tensor_hopper.cu`. It is
stored in slices.
"""


class _Launch:
    """A join of two indexes, or a self-join of one. It pauses when its output is full,
    and can be resumed.
    """

    def __init__(
        self,
        q: Index,
        d: Index,
        layout: DeviceLayout,
        is_self_join: bool,
        *,
        counting: bool = False,
        rows: Rows | None = None,
        **sink: int,
    ) -> None:
        self.q, self.d, self.layout, self.is_self_join = q, d, layout, is_self_join
        self.engine = ENGINES[layout.engine]
        tensor = self.engine.tensor
        start, stop = rows or (0, len(q["y"]))
        self.first, self.last = start // layout.grain, -(-stop // layout.grain)
        groups = -(-len(d["y"]) // (layout.tile * FANOUT))
        self.level1 = groups if groups > 1 else 0
        self.ranges = -(-groups // FANOUT)
        self.level2 = groups + self.ranges if self.ranges > 1 else 0
        blocks = self.last - self.first
        self.sliced = "slices" in q
        if self.sliced != ("slices" in d) or (
            self.sliced and not load.has_warpgroups()
        ):
            raise UnsupportedFrameError(
                "The chunks were indexed on a GPU of another architecture. Use workers "
                "with equal GPUs."
            )
        if storage_of(q["y"]) != storage_of(d["y"]):
            raise TypeError(
                "Two indexes are joined only if both store their points in the same "
                "way."
            )
        how = constants_of(q["y"]) | sink
        (name, function, constants), self.shared = _program(
            layout, counting, self.sliced, **how
        )
        self.constants = constants
        self.warps = constants.get("WARPS", TENSOR_WARPS) if tensor else TILES_WARPS
        self.function = load.kernel(name, function, **constants)
        if tensor:
            self.function.max_dynamic_shared_size_bytes = self.shared
        # with slices, one more warp copies them
        self.threads = 32 * (self.warps + self.sliced)
        full = load.grid_size(self.function, self.threads, self.shared)
        self.span = max(1, -(-blocks * self.ranges // MAX_UNITS))
        if (layout.dims > half.MAX_DIMS or not tensor) and blocks >= MANY_BLOCKS * full:
            self.span = max(self.span, self.ranges)
        # number of blocks that share a unit: two for `tensor_hopper.cu`
        share = 1 + self.sliced
        self.units = blocks * -(-self.ranges // self.span) * constants.get("SHARE", 1)
        self.blocks = share * max(1, min(full // share, self.units))
        self.state = cupy.zeros(5, cupy.uint64)
        self.resume = cupy.empty(
            (self.blocks, 3 if tensor else 2 + self.warps), cupy.int32
        )
        self.resume.data.memset_async(0xFF, self.resume.nbytes)  # -1 in all entries

    @property
    def slack(self) -> int:
        """Maximum number of pairs that are still written after the buffer is full.

        A warp (or, with tensor cores, a block) learns that the buffer is full when it
        writes its staged pairs.  Then it finishes the two tiles that it compares, and
        stops.
        """
        if self.sliced:
            tiles = self.constants["LATER"] + 1
            staged = self.warps * self.constants["BUFFER"]
            return self.blocks * (tiles * half.TILE * 2 * half.TILE + staged)
        if self.engine.tensor:
            return self.blocks * (half.TILE * 2 * half.TILE + self.warps * half.STAGE)
        return self.blocks * self.warps * (self.layout.tile**2 + half.STAGE)

    def run(
        self, capacity: int, out: Array, counts: tuple[Array, Array]
    ) -> tuple[int, bool]:
        """Run the kernel until `out` is full or the join is done.

        Return the number of pairs in `out`, and whether there are more pairs.
        `capacity`: number of pairs after which the kernel stops; `counts`: arrays to
        count pairs in.
        """
        layout, q, d = self.layout, self.q, self.d
        self.state[0] = 0
        self.state[2] = 0
        sides = []
        for side in (q, d):
            compared = [
                side[SLICED.get(name, name) if self.sliced else name]
                for name in self.engine.compared
            ]
            sides.append(
                [
                    *compared,
                    side["y"],
                    side["lower"],
                    side["upper"],
                    np.int32(len(side["y"])),
                ]
            )
        if layout.bounds is None:
            limits: list[Any] = [np.float64(layout.threshold), np.float64(-1)]
        else:
            limits = [layout.bounds.reach, layout.bounds.sure]
        levels = [np.int32(self.level1), np.int32(self.level2)]
        if self.engine.tensor:
            limits, levels = limits[:1], levels[:1]
        self.function(
            (self.blocks,),
            (self.threads,),
            (
                *sides[0],
                np.int32(self.first),
                np.int32(self.last),
                *sides[1],
                *levels,
                np.int32(self.is_self_join),
                np.int32(self.ranges),
                np.int32(self.span),
                *limits,
                np.float64(layout.threshold),
                np.uint64(capacity),
                out,
                *counts,
                self.state,
                self.resume,
            ),
            shared_mem=self.shared,
        )
        self.counters = self.state.get().tolist()
        return self.counters[0], self.counters[2] > 0

    @property
    def done(self) -> float:
        """Fraction of the units of work that blocks have started so far."""
        units = self.units
        if not self.engine.tensor:
            blocks = -(-(self.last - self.first) // MIXED) * MIXED
            units = blocks * -(-self.ranges // self.span)
        return min(1.0, self.counters[1] / max(1, units))


def _program(
    layout: DeviceLayout, counting: bool, sliced: bool | None = None, **sink: int
) -> tuple[load.Program, int]:
    """Return the program of a join, and the bytes of shared memory that its blocks
    request at launch.

    `sliced`: whether the indexes have ``slices``. None: assume the form that the
    current device builds. `sink`: further constants, for a sink.
    """
    engine = ENGINES[layout.engine]
    constants = {"DIMS": layout.dims, "EXACT": not engine.filters, "COUNTING": counting}
    constants |= sink | norm_constant(layout.norm)
    if not engine.tensor:
        return ("tiles", "join_tiles", constants), 0
    there = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    if sliced is None:
        sliced = sliced_here(layout.dims)
    program = (half.hopper_program if sliced else half.program)(
        layout.dims, there, counting=counting
    )
    if program is None:
        raise UnsupportedFrameError(
            "The join was planned for GPUs with more shared memory than this one has "
            f"({there} bytes "
            "per block). Plan it on a machine with a GPU like the smallest GPU of the "
            "workers."
        )
    name, more, shared = program
    return (name, f"join_{name}", constants | more), shared


def layout(
    options: Tiles,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None = None,
) -> DeviceLayout:
    # the limit of this process's GPU, because we assume that all GPUs of a cluster have
    # the same limit
    shared = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    return make_device_layout(
        lower, upper, mean, variance, threshold, shared=shared, norm=norm
    )


def build(x: Array, layout: DeviceLayout) -> Index:
    # compile while the index is built; even a join that only counts needs this program,
    # to sample pairs
    load.begin(_program(layout, False, None, **constants_of(x))[0])
    return device.build(x, layout, BUILDER)


def foresee(layout: DeviceLayout, counted: bool, connected: bool) -> None:
    """Start to compile the programs of `count` (with `counted`) and of `pass_to` (with
    `connected`).
    """
    if counted:
        load.begin(_program(layout, True)[0])
    for sink in Sink if connected else ():
        load.begin(_program(layout, False, SINK=sink.value, NODES_64=False)[0])


def _nothing(rows: Rows | None) -> bool:
    return rows is not None and rows[0] >= rows[1]


def batches(
    q: Index,
    d: Index,
    layout: DeviceLayout,
    *,
    is_self_join: bool,
    rows: Rows | None = None,
    max_pairs: int | None = None,
) -> Iterator[PairBatch]:
    """Yield all pairs of two indexes. In a self-join of one index, yield each pair
    once.

    `rows`: yield only the pairs of the queries start ... stop-1.  Both are multiples of
    the layout's grain; stop may also be the number of queries.  If all queries are cut
    into such parts, each pair is in exactly one part.  `max_pairs`: maximum number of
    pairs per batch.
    """
    if not len(q["y"]) or not len(d["y"]) or _nothing(rows):
        return
    join = _Launch(q, d, layout, is_self_join, rows=rows)
    max_pairs = min(max_pairs or BATCH, BATCH, load.memory() // BUFFER_SHARE // 8)
    capacity = min(
        max_pairs, max(1 << 16, CAPACITY_PER_POINT * max(len(q["y"]), len(d["y"])))
    )
    none = np.uint64(0)
    more, out, written = True, None, 0
    while more:
        if out is None or len(out) < capacity + join.slack:
            out = None  # free the old buffer before the new one is allocated
            out = cupy.empty((capacity + join.slack, 2), cupy.int32)
        number, more = join.run(capacity, out, (none, none))
        written += number
        # assume that the remaining units have as many pairs each as the finished ones,
        # plus a margin of 5 %
        left = int(written * (1 / max(join.done, 1e-3) - 1) * 1.05) if more else 0
        yield PairBatch(out[:number], join.counters[3], join.counters[4], left)
        capacity = int(min(max_pairs, max(capacity, left)))


def count(
    q: Index,
    d: Index,
    layout: DeviceLayout,
    *,
    is_self_join: bool,
    both: bool = True,
    rows: Rows | None = None,
) -> list[Array]:
    """Count the pairs of each query, and with `both` also of each point of the other
    index.

    The arrays are in the order of the indexes. A self-join returns one array. With
    `both`, it counts all pairs of each point. Otherwise it counts only the pairs that
    `batches` yields with the point as the query. `rows`: see `batches`.
    """
    counts = [
        cupy.zeros(len(side["y"]), cupy.uint64)
        for side in ((q,) if is_self_join else (q, d))
    ]
    if len(q["y"]) and len(d["y"]) and not _nothing(rows):
        join = _Launch(q, d, layout, is_self_join, counting=True, rows=rows)
        join.run(0, np.uint64(0), (counts[0], counts[-1] if both else np.uint64(0)))
    return [c.view(cupy.int64) for c in counts]


def pass_to(
    sink: Sink,
    q: Index,
    d: Index,
    layout: DeviceLayout,
    arguments: Sequence[Array | int],
    *,
    is_self_join: bool,
    nodes_64: bool = False,
    rows: Rows | None = None,
) -> None:
    """Pass pairs to a sink of `components.cuh`: all pairs, or only the pairs of the
    queries `rows`.
    """
    if not len(q["y"]) or not len(d["y"]) or _nothing(rows):
        return
    join = _Launch(
        q, d, layout, is_self_join, rows=rows, SINK=sink.value, NODES_64=nodes_64
    )
    given = [q["order"], d["order"], *arguments]
    at = cupy.asarray(
        [a if isinstance(a, int) else a.data.ptr for a in given], np.uint64
    )
    none = np.uint64(0)
    join.run(np.iinfo(np.int64).max, at, (none, none))
