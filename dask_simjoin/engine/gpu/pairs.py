"""Convert the pairs that GPU kernels find to columns of results, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import cupy
import numpy as np

from dask_simjoin.engine.base import Numbers, method_module
from dask_simjoin.engine.compat import constants_of
from dask_simjoin.engine.gated import GatedLayout
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.sources import Sink, norm_constant
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Kept, Layout, Measured, Pairs, Rows
from dask_simjoin.metrics.norms import Array, DType, Index, Norm
from dask_simjoin.sizes import FEW

AT_ONCE = 2**24
"""Most pairs, or candidates, that functions on arrays get together."""


class GrowingGpuColumns:
    """Columns of equal length. Values are appended to them in batches."""

    def __init__(self, dtypes: list[DType]) -> None:
        self._length = 0
        self._columns = [cupy.empty(0, dtype) for dtype in dtypes]

    @property
    def _room(self) -> int:
        return min(len(column) for column in self._columns)

    def add(self, more: int, left: int) -> list[Array]:
        """Append `more` values to each column; return arrays to write these values to.

        `left`: estimated number of values that will be appended later.
        """
        begin, self._length = self._length, self._length + more
        if self._length > self._room:
            try:
                # grow by this factor at most, because the estimate may be too high
                self._grow(begin, min(self._length + left, 4 * self._length))
            except MemoryError:
                self._grow(begin, self._length)
        return [column[begin : self._length] for column in self._columns]

    def _grow(self, length: int, capacity: int) -> None:
        for number, column in enumerate(self._columns):
            # after a MemoryError, some columns have already grown
            if len(column) < capacity:
                longer = cupy.empty(capacity, column.dtype)
                longer[:length] = column[:length]
                self._columns[number] = longer

    def columns(self) -> list[Array]:
        """Return the columns, without unused capacity."""
        if self._room - self._length > self._room // FEW:
            for number in range(len(self._columns)):
                self._columns[number] = self._columns[number][: self._length].copy()
        return [column[: self._length] for column in self._columns]


@dataclass(frozen=True)
class PairBatch:
    """A batch of pairs, as positions in the orders of two indexes."""

    # (pairs, 2), int32: position in the first and in the second index; valid until the
    # next batch is requested
    places: Array
    # number of candidates that float64 decided so far, and how many of these are not
    # pairs
    decided: int
    refused: int
    left: int = 0  # estimated number of pairs in later batches; 0 for the last batch
    totals: Array | None = None  # (pairs,); None: the points in "y" have them


class GpuLayout(Layout, Protocol):
    """Index settings of one join on GPUs, the same for all its chunks."""

    @property
    def dims(self) -> int:
        """Number of dimensions of the points."""


class GpuMethod(Protocol):
    """The functions of a method's GPU module.

    An index has "y" (n, d), its points, as float64 or narrow points, and "order" (n,),
    int32, the positions of these points in the chunk. Both are in index order. Pairs
    and `rows` are places in this order.
    """

    def layout(
        self,
        options: Any,
        lower: np.ndarray,
        upper: np.ndarray,
        mean: np.ndarray,
        variance: np.ndarray,
        threshold: float,
        norm: Norm,
        sample: JoinSample | None = None,
    ) -> GpuLayout:
        """Choose how to index all chunks, from moments (d,) of all points and the
        threshold.

        `options`: an object of the method's class, which has its options. `sample`:
        samples of the points, on the host, if there are any.
        """

    def build(self, x: Array, layout: GpuLayout) -> Index:
        """Return the index of a chunk's points (n, d)."""

    def batches(
        self,
        q: Index,
        d: Index,
        layout: GpuLayout,
        *,
        is_self_join: bool,
        rows: Rows | None = None,
        max_pairs: int | None = None,
    ) -> Iterator[PairBatch]:
        """Yield all pairs of two indexes. In a self-join of one index, yield each pair
        once.

        `rows`: yield only the pairs of the queries start ... stop-1. Both numbers are
        multiples of the layout's grain; stop may also be the number of queries.
        `max_pairs`: maximum number of pairs per batch.
        """

    def count(
        self,
        q: Index,
        d: Index,
        layout: GpuLayout,
        *,
        is_self_join: bool,
        both: bool = True,
        rows: Rows | None = None,
    ) -> list[Array]:
        """Count the pairs of each query, and with `both` also of each point of the
        other index.

        `rows`: count only the pairs that `batches` yields for these queries.
        """

    def pass_to(
        self,
        sink: Sink,
        q: Index,
        d: Index,
        layout: GpuLayout,
        arguments: Sequence[Array | int],
        *,
        is_self_join: bool,
        nodes_64: bool = False,
        rows: Rows | None = None,
    ) -> None:
        """Pass pairs to a sink: all pairs, or only the pairs of the queries `rows`.

        `arguments`: further arguments of the sink.
        """


Timed = Callable[[str, Callable[[], Any]], Any]
"""Function of a name and a step.

It runs the step until its kernels end, stores its time in seconds under the name, and
returns its result.
"""


@runtime_checkable
class Profiled(Protocol):
    """A method whose module can measure the steps of a join."""

    def profile_join(self, index: Index, layout: Any, timed: Timed) -> Numbers:
        """Join an index with itself, timing each step with `timed`; return counters of
        the work.
        """


@runtime_checkable
class LayoutStats(Protocol):
    """A method whose module has further counters for the work of a self-join."""

    def layout_stats(self, index: Index, layout: Any) -> Numbers:
        """Return counters for the work of a self-join of an index."""


def count_batches(batches: Iterable[PairBatch]) -> Numbers:
    """Consume the batches of a join, and count batches, pairs and float64 decisions."""
    numbers: Numbers = {
        "pairs": 0,
        "batches": 0,
        "largest_batch": 0,
        "decided": 0,
        "refused": 0,
    }
    for found in batches:
        pairs = len(found.places)
        numbers["pairs"] += pairs
        numbers["batches"] += 1
        numbers["largest_batch"] = max(numbers["largest_batch"], pairs)
        numbers |= {"decided": found.decided, "refused": found.refused}
    return numbers


LIBRARY = "cudf"


def method_of(name: str) -> GpuMethod:
    """Return the GPU module of a method."""
    method: GpuMethod = method_module(name, LIBRARY)
    return method


def finishing(
    layout: GpuLayout | GatedLayout,
    function: str,
    y: Array | None = None,
    *,
    labels: bool,
) -> load.Program:
    """Return the program that compiles a function of `finish.cu`: see `load.Program`.

    `y`: points as indexes store them; None: float64. `labels`: whether the function
    writes labels instead of positions.
    """
    own: Any = layout.inner if isinstance(layout, GatedLayout) else layout
    constants = {"DIMS": own.dims, "EXACT": True, "LABELS": labels} | norm_constant(
        layout.norm
    )
    return "finish", function, constants | ({} if y is None else constants_of(y))


def finish(layout: GpuLayout, function: str, y: Array, *, labels: bool) -> Any:
    """Return a function of `finish.cu` as a kernel: see `finishing`."""
    name, function, constants = finishing(layout, function, y, labels=labels)
    return load.kernel(name, function, **constants)


def labelled_pairs(
    method: GpuMethod,
    q: Index,
    d: Index,
    layout: GpuLayout,
    *,
    is_self_join: bool,
    distance: Measured | None,
    labels: tuple[Array, Array] | None,
    rows: Rows | None,
    kept: Kept | None,
) -> Pairs:
    """Return all pairs of two indexes: see `Joiner.pairs`."""
    kind = cupy.int32 if labels is None else cupy.int64
    names = labels or (q["order"], d["order"])
    assert all(name.dtype == kind for name in names)
    wanted = [
        (side, cupy.ascontiguousarray(some))
        for side in range(2)
        for some in (kept or ((), ()))[side]
    ]
    dtypes = [
        kind,
        kind,
        *([] if distance is None else [cupy.float64]),
        *(some.dtype for _, some in wanted),
    ]
    result, told = GrowingGpuColumns(dtypes), (0, 0)
    function = finish(layout, "name_pairs", q["y"], labels=labels is not None)
    for found in method.batches(q, d, layout, is_self_join=is_self_join, rows=rows):
        n = len(found.places)
        left, right, *more = columns = result.add(n, found.left)
        away = None if distance is None else more.pop(0)
        if n:
            order = found.places, np.uint64(n), q["order"], d["order"]
            own_totals = away is not None and found.totals is None
            total = away if own_totals else np.uint64(0)
            function(
                *load.shape_of(n),
                (
                    *order,
                    *names,
                    np.int32(is_self_join),
                    q["y"],
                    d["y"],
                    left,
                    right,
                    total,
                ),
            )
            if wanted:
                table = _table(wanted, more)
                keep = finish(layout, "keep_columns", q["y"], labels=labels is not None)
                keep(
                    *load.shape_of(n),
                    (*order, np.int32(is_self_join), table, np.int32(len(more))),
                )
        if distance is not None:
            columns[2][:] = distance(away if found.totals is None else found.totals)
        told = (found.decided, found.refused)
    whole = result.columns()
    away = whole[2] if distance is not None else None
    return Pairs(whole[0], whole[1], away, *told, whole[2 + (distance is not None) :])


def _table(wanted: list[tuple[int, Array]], out: list[Array]) -> Array:
    """Return the array that describes kept columns to the kernel.

    Each row has the addresses of input and output, the bytes per value, and the side
    (0: left, 1: right).
    """
    columns = [
        (some.data.ptr, to.data.ptr, some.itemsize, side)
        for (side, some), to in zip(wanted, out, strict=True)
    ]
    return cupy.asarray(np.array(columns, np.uint64))
