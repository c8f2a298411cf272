"""Pack the rows that a worker holds, index chunks from the parcels of all workers, and
return values of rows.

A task packs all its partitions into parcels, one for each chunk. Values of the rows
come back to the same task, in the order of the rows in its parcels. So no row ids are
sent with the values.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.ids import joined
from dask_simjoin.engine.process import together
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.metrics.norms import Array, Frame, Ids
from dask_simjoin.planning.entity_chunks import Shuffled
from dask_simjoin.planning.spatial_chunks import ClusterChunks
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import BATCH
from dask_simjoin.tasks.chunks import (
    OPTIONAL_FIELDS,
    Chunk,
    Fingerprint,
    ReadRows,
    check_source,
    read_points,
    stacked,
)
from dask_simjoin.tasks.shuffle import (
    Parcel,
    Span,
    concat_field,
    indexed_spans,
    joined_rows,
    pack,
    packed,
    positions,
    shared_and_far,
    spans_of,
    unpacked,
)


def pack_partitions(
    chunks: Shuffled,
    spec: JoinSpec,
    with_ids: bool,
    threads: int,
    fingerprints: Sequence[Fingerprint],
    *partitions: Frame,
) -> list[Parcel]:
    """Pack partitions, and return one parcel for each chunk, with only the rows of that
    chunk and of its halo. Positions are sent as uint32 if they fit. Ids are not sent if
    they are the positions.
    """
    numbered = with_ids and all(
        _are_positions(partition, int(chunks.offsets[fingerprint[0]]), spec)
        for partition, fingerprint in zip(partitions, fingerprints, strict=True)
    )
    sizes = [len(partition) for partition in partitions]
    how = chunks, spec, with_ids and not numbered
    packing = [
        functools.partial(_pack, *how, fingerprints[first:last], partitions[first:last])
        for first, last in _batches(sizes)
    ]
    parcels, example = together(packing, threads), partitions[0].iloc[:0]
    if chunks.offsets[-1] <= np.iinfo(np.uint32).max:
        for parcel in parcels:
            parcel["position"] = parcel["position"].astype(np.uint32)
    joining = (
        functools.partial(_of_chunk, parcels, c, example) for c in range(len(chunks))
    )
    found = together(list(joining), threads)
    if numbered:
        for parcel in found:
            parcel["numbered"] = True
    return found


def _are_positions(partition: Frame, first: int, spec: JoinSpec) -> bool:
    """Return whether the ids of a partition's rows are their positions in the frame.
    `first`: position of its first row.
    """
    ids = partition.index
    return (
        spec.id is None
        and isinstance(ids, pd.RangeIndex)
        and (ids.start, ids.step) == (first, 1)
        and spec.id_dtype in (None, ids.dtype)
    )


def _batches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges (first, last + 1) of partitions to pack together. `sizes`: number of
    rows in each partition.
    """
    first, rows = 0, 0
    for n, own in enumerate(sizes):
        rows += own
        if rows >= BATCH or n == len(sizes) - 1:
            yield first, n + 1
            first, rows = n + 1, 0


def _pack(
    chunks: Shuffled,
    spec: JoinSpec,
    with_ids: bool,
    fingerprints: Sequence[Fingerprint],
    partitions: Sequence[Frame],
) -> Parcel:
    """Pack some partitions as one parcel. On the host, their coordinates are read into
    one array.
    """
    if len(partitions) == 1:
        return pack(partitions[0], fingerprints[0], chunks, spec, with_ids)
    sizes = [len(partition) for partition in partitions]
    x = np.empty((sum(sizes), spec.coordinates.dims or 0), order="F")
    position, buffer = np.empty(len(x), np.int64), np.empty(max(sizes) * x.shape[1])
    each: list[ReadRows] = []
    start = 0
    for partition, fingerprint in zip(partitions, fingerprints, strict=True):
        example = each[0]["example"] if each else None
        read = read_points(partition, fingerprint, spec, example, buffer)
        stop = start + len(read["x"])
        x[start:stop] = read["x"]
        position[start:stop] = positions(read, int(chunks.offsets[fingerprint[0]]))
        read["x"], start = x[start:stop], stop
        each.append(read)
    example = each[0]["example"]
    whole: dict[str, Any] = {
        "x": x[:start],
        "places": None,
        "rows": start,
        "example": example,
    }
    whole["ids"] = joined([read["ids"] for read in each])
    for name in OPTIONAL_FIELDS:
        if name in each[0]:
            whole[name] = stacked([read[name] for read in each], example)  # type: ignore[literal-required]
    return packed(
        partitions[0], cast(ReadRows, whole), position[:start], chunks, spec, with_ids
    )


def _of_chunk(parcels: list[Parcel], c: int, example: Frame) -> Parcel:
    """From several parcels, make one with only the rows of chunk `c`: first its own
    rows, then its halo.
    """
    sides = [spans_of(parcels, side, c) for side in range(2)]
    own, halo = (sum(stop - start for _, start, stop in spans) for spans in sides)
    filled = [span for span in itertools.chain(*sides) if span[2] > span[1]] or sides[
        0
    ][:1]
    names = [name for name in ("x", "position", *OPTIONAL_FIELDS) if name in parcels[0]]
    found = {name: concat_field(name, filled, example) for name in names}
    if "ids" in parcels[0]:
        found["ids"] = joined(
            [parcel["ids"][start:stop] for parcel, start, stop in filled]
        )
    return cast(Parcel, found | {"ends": np.array([[0, own], [own, own + halo]])})


def unpack_partitions(
    example: Frame,
    layout: Layout | SearchLayout,
    threads: int,
    offsets: np.ndarray,
    *parcels: Parcel,
) -> Chunk:
    """Index a chunk from parcels that `pack_partitions` made. Its rows are put into the
    order of the frame.

    `offsets`: for each partition, the position of its first row in the whole frame.
    """
    return unpacked(
        [_in_order(parcels, side, offsets) for side in range(2)],
        example,
        layout,
        threads,
    )


def _in_order(parcels: Sequence[Parcel], side: int, offsets: np.ndarray) -> list[Span]:
    """List the spans with a chunk's own rows (`side` 0), or with its halo (`side` 1),
    in the order of the frame.
    """
    spans = [
        span for parcel in parcels for span in _by_partition(parcel, side, offsets)
    ]
    spans.sort(key=lambda span: int(span[0]["position"][span[1]]))
    return spans or [(parcels[0], 0, 0)]


def unpack_together(
    c: int,
    chunks: ClusterChunks,
    example: Frame,
    layout: Layout,
    threads: int,
    *parcels: Parcel,
) -> Chunk:
    """Index chunk `c` from parcels that `pack_partitions` made. One index has the
    chunk's own rows, then its halo.

    The chunk also stores which rows are its own, and which rows other chunks may have:
    see `Chunk`.
    """
    spans = [_in_order(parcels, side, chunks.offsets) for side in range(2)]
    own = sum(stop - start for _, start, stop in spans[0])
    every = [span for some in spans for span in some if span[2] > span[1]] or spans[0]
    x, position = joined_rows(every, example, layout, threads)
    shared, far = shared_and_far(c, chunks, x, own)
    chunk = indexed_spans(every, example, layout, x, position, threads)
    return chunk | {"own": own, "shared": shared, "far": far}


def own_positions(parcels: Sequence[Parcel]) -> list[Array]:
    """For each parcel of one task, return the positions of the chunk's own rows in it,
    without its halo.
    """
    return [parcel["position"][: int(parcel["ends"][0, 1])] for parcel in parcels]


def values_by_group(
    chunk: Chunk, values: Array, offsets: np.ndarray, groups: Sequence[Sequence[int]]
) -> list[Array]:
    """Split the values of a chunk's own rows by the task that packed each row. Return
    them as int32 if they fit.

    `offsets`: position of each partition's first row. `groups`: for each task, the
    partitions that it packed.
    """
    cuts = np.searchsorted(chunk["position"][: len(values)], offsets)
    kind = np.iinfo(np.int32)
    if len(values) and kind.min <= values.min() <= values.max() <= kind.max:
        values = values.astype(np.int32)
    parts = [[values[cuts[n] : cuts[n + 1]] for n in numbers] for numbers in groups]
    return [some[0] if len(some) == 1 else np.concatenate(some) for some in parts]


def rows_of_group(
    numbers: Sequence[int],
    meta: Frame,
    offsets: np.ndarray,
    threads: int,
    labels: Sequence[Ids],
    places: Sequence[Array],
    *values: Array,
) -> list[Frame]:
    """Make partitions of the result from values that have come back to the task that
    packed the rows.

    `numbers`: numbers of the partitions. `labels`: for each partition, the index labels
    of its rows. `places`: for each chunk, the positions of the rows that it got from
    this task. `values`: for each chunk, the values of these rows.
    """
    cuts = [np.searchsorted(own, offsets.astype(own.dtype)) for own in places]

    def rows_of(n: int, names: Ids) -> Frame:
        first, size = int(offsets[n]), int(offsets[n + 1] - offsets[n])
        check_source(n, len(names), size)
        found, rows = np.empty(size, np.int64), []
        for position, own, cut in zip(places, values, cuts, strict=True):
            rows.append(position[cut[n] : cut[n + 1]] - first)
            found[rows[-1]] = own[cut[n] : cut[n + 1]]
        # `dropna` removed the other rows, so they have no values
        if sum(map(len, rows)) < size:
            kept = np.sort(np.concatenate(rows))
            found, names = found[kept], names[kept]
        return frames_for(meta).rows(found, names, meta)

    each = zip(numbers, labels, strict=True)
    return together([functools.partial(rows_of, *one) for one in each], threads)


def _by_partition(parcel: Parcel, side: int, offsets: np.ndarray) -> list[Span]:
    """Split the rows of one chunk's parcel into a span per partition.

    `side`: 0 for own rows, 1 for the halo.
    """
    start, stop = parcel["ends"][side].tolist()
    xp = module_of(parcel["position"])
    position = parcel["position"][start:stop]
    cuts = start + xp.searchsorted(position, xp.asarray(offsets, position.dtype))
    places = [start, *cuts.tolist(), stop]
    return [(parcel, a, b) for a, b in itertools.pairwise(places) if b > a]
