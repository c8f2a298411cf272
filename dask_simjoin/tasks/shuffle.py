"""Pack rows of partitions as parcels, grouped by chunk, and index chunks from parcels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.base import frames_for, host_kernels, joiner_for
from dask_simjoin.engine.compat import module_of, tally, to_host, values_of
from dask_simjoin.engine.ids import joined, row_ids
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.metrics.norms import Array, DType, Frame, Ids, Values
from dask_simjoin.planning.entity_chunks import Piece, Shuffled
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import (
    OPTIONAL_FIELDS,
    Chunk,
    Fingerprint,
    ReadRows,
    concat_points,
    indexed,
    read_piece,
    read_points,
    slice_rows,
    stacked,
)

CELL, ID, POSITION, COUNT, LIMIT = "_partitions", "id", "position", "count", "limit"
"""Column names of shuffled frames. Coordinates are x0, x1, ...; kept columns are k0, k1, ..."""


class Parcel(TypedDict):
    """Rows of a partition, grouped by the chunk that receives them: first its own rows, then those for halos.

    Within a group, rows have the order of the frame.
    """

    x: Array  # coordinates (n, d); float32 if all columns are float32, else float64
    position: Array  # positions of the rows in the whole frame (n,), int64
    # (2, chunks + 1): where each chunk's rows (ends[0]) and the rows for its halo (ends[1]) begin and end
    ends: np.ndarray
    ids: NotRequired[Ids]
    kept: NotRequired[Frame]
    own_limit: NotRequired[Array]


def pack(frame: Frame, fingerprint: Fingerprint, chunks: Shuffled, spec: JoinSpec,
         with_ids: bool) -> Parcel:  # fmt: skip
    """Pack the rows of a partition as a parcel. `with_ids`: whether to send ids."""
    read = read_points(frame, fingerprint, spec)
    return packed(frame, read, positions(read, int(chunks.offsets[fingerprint[0]])), chunks, spec, with_ids)


def positions(read: ReadRows, first: int) -> Array:
    """Return the positions of rows in the whole frame. `first`: position of the partition's first row."""
    places = read["places"]
    return (module_of(read["x"]).arange(read["rows"]) if places is None else places) + first


def packed(frame: Frame, read: ReadRows, position: Array, chunks: Shuffled, spec: JoinSpec,
           with_ids: bool) -> Parcel:  # fmt: skip
    """Pack rows that were read already. `position`: their positions in the whole frame."""
    x = read["x"]
    frames, joiner = frames_for(frame), joiner_for(frame)
    xp = frames.xp
    own, rows, needing = joiner.regions(
        x, chunks.regions, chunks.reach, chunks.threshold, chunks.norm, everywhere=chunks.everywhere
    )
    if chunks.everywhere:
        order, ends = _sorted_by_chunk(chunks.own_chunk(needing, position[rows]), len(chunks))
        taken, halo_ends = rows[order], np.full_like(ends, len(rows))
    else:
        taken, ends = _sorted_by_chunk(chunks.own_chunk(own, position), len(chunks))
        order, halo_ends = _sorted_by_chunk(chunks.halo_chunk(needing, position[rows]), len(chunks))
        taken, halo_ends = xp.concatenate([taken, rows[order]]), halo_ends + len(x)
    kinds = set(cell_columns(frame, spec).values())
    parcel = Parcel(
        x=_coordinates_at(x, taken, kinds.pop() if len(kinds) == 1 else np.dtype(np.float64)),
        position=position[taken],
        ends=np.stack([ends, halo_ends]),
    )
    if with_ids:
        parcel["ids"] = read["ids"].take(taken)
    if spec.keep:
        kept: dict[Any, Values] = {name: frames.values(read["kept"], name, taken) for name in spec.keep}
        parcel["kept"] = frames.result(kept, len(taken))
    if spec.radius is not None:
        parcel["own_limit"] = read["own_limit"][taken]
    return parcel


def _sorted_by_chunk(chunk: Array, chunks: int) -> tuple[Array, np.ndarray]:
    """Sort rows by chunk. `chunk` (n,): the chunk of each row.

    Return the order, and where the rows of each chunk begin and end (chunks + 1,).
    """
    xp = module_of(chunk)
    ends = np.zeros(chunks + 1, np.int64)
    if xp is np:
        order = np.empty(len(chunk), np.int64)
        host_kernels("pack").deal(chunk, ends, np.empty_like(ends), order)
        return order, ends
    np.cumsum(to_host(tally(chunk, chunks)), out=ends[1:])
    return xp.argsort(chunk, kind="stable"), ends


def _coordinates_at(x: Array, places: Array, kind: DType) -> Array:
    """Return the coordinates of the rows at `places`, with dtype `kind`."""
    xp = module_of(x)
    out = xp.empty((len(places), x.shape[1]), kind, order="F")
    for k in range(x.shape[1]):
        if xp is np and kind == x.dtype:
            # with the default mode "raise", NumPy would write to a buffer first
            x[:, k].take(places, out=out[:, k], mode="clip")
        else:
            out[:, k] = x[:, k].take(places)
    return out


Span = tuple[Parcel, int, int]
"""A range (start, stop) of a parcel's rows."""


def unpack(c: int, example: Frame, spec: JoinSpec, layout: Layout | SearchLayout,
           *parcels: Parcel) -> Chunk:  # fmt: skip
    """Index chunk number `c` from the parcels of all partitions, which have the order of the frame."""
    return unpacked([spans_of(parcels, side, c) for side in range(2)], example, layout)


def spans_of(parcels: Sequence[Parcel], side: int, c: int) -> list[Span]:
    """List the spans with rows of chunk `c` (`side` 0), or of its halo (`side` 1).

    If there are no such rows, the result is one empty span.
    """
    spans = [(parcel, *parcel["ends"][side, c : c + 2].tolist()) for parcel in parcels]
    return [span for span in spans if span[2] > span[1]] or [(parcels[0], 0, 0)]


def unpacked(sides: list[list[Span]], example: Frame, layout: Layout | SearchLayout) -> Chunk:
    """Index the rows of a chunk and of its halo. `sides`: the spans of each."""
    made: list[Chunk] = []
    for spans in sides:
        some, position = spans[0][0], concat_field("position", spans, example)
        ids = frames_for(example).index(position)
        if "ids" in some:
            ids = joined([parcel["ids"][a:b] for parcel, a, b in spans])
        extra = {name: concat_field(name, spans, example) for name in OPTIONAL_FIELDS if name in some}
        x = concat_points([parcel["x"][a:b] for parcel, a, b in spans], layout, 1)
        made.append(
            indexed(x.astype(np.float64, copy=False), ids, layout, example, extra) | {"position": position}
        )
    return made[0] | {"halo": made[1]}


def concat_field(name: str, parts: list[Span], example: Frame) -> Any:
    some = [slice_rows(parcel[name], a, b) for parcel, a, b in parts]  # type: ignore[literal-required]
    return stacked(some, example)


def cell_columns(frame: Frame, spec: JoinSpec) -> dict[str, DType]:
    """Return names and dtypes of the coordinate columns in a shuffled frame.

    float32 columns are sent as float32, which takes half the bytes. The chunk converts them to float64
    exactly.
    """
    assert spec.dims is not None
    kinds = [frame[name].dtype for name in spec.on]
    if spec.lists:
        lists = lists_of(frame[spec.on[0]])
        kinds = [lists and lists.kind] * (spec.dims - bool(spec.by)) + kinds[1:]
    if spec.measure.embeds:
        kinds = [np.float64] * spec.dims
    narrow, wide = np.dtype(np.float32), np.dtype(np.float64)
    return {f"x{k}": narrow if kind == narrow else wide for k, kind in enumerate(kinds)}


def sent_names_of_kept(spec: JoinSpec) -> list[str]:
    """Return the names that kept columns have in a shuffled frame."""
    return [f"k{k}" for k in range(len(spec.keep))]


def send(frame: Frame, fingerprint: Fingerprint, chunks: Shuffled, spec: JoinSpec,
         with_ids: bool) -> Frame:  # fmt: skip
    """Make the frame that Dask shuffles: each row once for its own chunk, and once for each halo with it.

    Rows for a halo have ``-1 - position`` in the column of positions. `with_ids`: whether to send ids.
    """
    return _sent(frame, pack(frame, fingerprint, chunks, spec, with_ids), chunks, spec)


def send_piece(frame: Frame, piece: Piece, chunks: Shuffled, spec: JoinSpec, with_ids: bool) -> Frame:
    """Make the frame that Dask shuffles, like `send`, for a piece of a partition that `as_planned` has
    checked."""
    number, start, stop = piece
    some = frame.iloc[start:stop]
    first = int(chunks.offsets[number]) + start
    read = read_piece(some, spec)
    parcel = packed(some, read, positions(read, first), chunks, spec, with_ids)
    return _sent(some, parcel, chunks, spec)


def _sent(frame: Frame, parcel: Parcel, chunks: Shuffled, spec: JoinSpec) -> Frame:
    """Convert a parcel to the frame that Dask shuffles. `frame`: the rows in the parcel."""
    frames, position, own = frames_for(frame), parcel["position"], int(parcel["ends"][0, -1])
    position[own:] = -1 - position[own:]
    columns: dict[str, Values] = {}
    for k, (name, kind) in enumerate(cell_columns(frame, spec).items()):
        columns[name] = parcel["x"][:, k].astype(kind, copy=False)
    if "ids" in parcel:
        columns[ID] = parcel["ids"]
    for name, column in zip(sent_names_of_kept(spec), spec.keep, strict=True):
        columns[name] = parcel["kept"][column]
    if spec.radius is not None:
        columns[LIMIT] = parcel["own_limit"]
    sizes = np.diff(parcel["ends"], axis=1).reshape(-1)
    cell = frames.xp.asarray(np.repeat(np.tile(np.arange(len(chunks)), 2), sizes))
    return frames.result(columns | {POSITION: position, CELL: cell}, len(cell))


def cell_chunk(frame: Frame, example: Frame, spec: JoinSpec, layout: Layout | SearchLayout,
               with_ids: bool) -> Chunk:  # fmt: skip
    """Index a chunk from the rows that the shuffle sent to it."""
    frames = frames_for(example)
    xp = frames.xp
    position = values_of(frame[POSITION])
    x = frames.coordinates(frame, tuple(cell_columns(example, spec)))
    own, halo = xp.flatnonzero(position >= 0), xp.flatnonzero(position < 0)
    own, halo = own[xp.argsort(position[own])], halo[xp.argsort(-position[halo])]
    sides: list[Chunk] = []
    for places, numbers in ((own, position[own]), (halo, -1 - position[halo])):
        ids = frames.index(numbers)
        if with_ids:
            ids = row_ids(frame[[ID]].take(places), ID, spec.id_dtype)
        extra: dict[str, Array | Frame] = {}
        if spec.keep:
            names = zip(spec.keep, sent_names_of_kept(spec), strict=True)
            kept: dict[Any, Values] = {name: frames.values(frame, column, places) for name, column in names}
            extra["kept"] = frames.result(kept, len(places))
        if spec.radius is not None:
            extra["own_limit"] = values_of(frame[LIMIT])[places]
        sides.append(indexed(x[places], ids, layout, example, extra) | {"position": numbers})
    return sides[0] | {"halo": sides[1]}


MIN_PACKED_ROWS = 1 << 19
"""Pack partitions together until they have at least this many rows.

The system gives arrays of 4 MB large memory pages. With smaller arrays, waiting for memory took longer than
packing.
"""


def pack_partitions(chunks: Shuffled, spec: JoinSpec, with_ids: bool, fingerprints: Sequence[Fingerprint],
                    *partitions: Frame) -> list[Parcel]:  # fmt: skip
    """Pack partitions, and split the result into one parcel per chunk: its rows and its halo's rows."""
    sizes = [len(partition) for partition in partitions]
    parcels = [
        _pack(chunks, spec, with_ids, fingerprints[first:last], partitions[first:last])
        for first, last in _batches(sizes)
    ]
    return [_parcel_of_chunk(parcels, c, partitions[0].iloc[:0]) for c in range(len(chunks))]


def _batches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges (first, last + 1) of partitions to pack together. `sizes`: rows of each partition."""
    first, rows = 0, 0
    for n, own in enumerate(sizes):
        rows += own
        if rows >= MIN_PACKED_ROWS or n == len(sizes) - 1:
            yield first, n + 1
            first, rows = n + 1, 0


def _pack(chunks: Shuffled, spec: JoinSpec, with_ids: bool, fingerprints: Sequence[Fingerprint],
          partitions: Sequence[Frame]) -> Parcel:  # fmt: skip
    """Pack partitions as one parcel. On the host, their coordinates are read into one array."""
    if len(partitions) == 1:
        return pack(partitions[0], fingerprints[0], chunks, spec, with_ids)
    sizes = [len(partition) for partition in partitions]
    x = np.empty((sum(sizes), spec.dims or 0), order="F")
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
    combined: dict[str, Any] = {"x": x[:start], "places": None, "rows": start, "example": example}
    combined["ids"] = joined([read["ids"] for read in each])
    for name in OPTIONAL_FIELDS:
        if name in each[0]:
            combined[name] = stacked([read[name] for read in each], example)  # type: ignore[literal-required]
    return packed(partitions[0], cast(ReadRows, combined), position[:start], chunks, spec, with_ids)


def _parcel_of_chunk(parcels: list[Parcel], c: int, example: Frame) -> Parcel:
    """Make a parcel for chunk `c`: its own rows, then the rows of its halo."""
    sides = [spans_of(parcels, side, c) for side in range(2)]
    own, halo = (sum(stop - start for _, start, stop in spans) for spans in sides)
    filled = [span for span in itertools.chain(*sides) if span[2] > span[1]] or sides[0][:1]
    names = [name for name in ("x", "position", *OPTIONAL_FIELDS) if name in parcels[0]]
    found = {name: concat_field(name, filled, example) for name in names}
    if "ids" in parcels[0]:
        found["ids"] = joined([parcel["ids"][start:stop] for parcel, start, stop in filled])
    return cast(Parcel, found | {"ends": np.array([[0, own], [own, own + halo]])})


def unpack_partitions(example: Frame, layout: Layout | SearchLayout, offsets: np.ndarray,
                      *parcels: Parcel) -> Chunk:  # fmt: skip
    """Index a chunk from parcels of `pack_partitions`; sort its rows in the order of the frame.

    `offsets`: position of each partition's first row in the whole frame.
    """
    sides: list[list[Span]] = []
    for side in range(2):
        spans = [span for parcel in parcels for span in _by_partition(parcel, side, offsets)]
        spans.sort(key=lambda span: int(span[0]["position"][span[1]]))
        sides.append(spans or [(parcels[0], 0, 0)])
    return unpacked(sides, example, layout)


def _by_partition(parcel: Parcel, side: int, offsets: np.ndarray) -> list[Span]:
    """Split a parcel of one chunk into a span per partition. `side`: 0 for own rows, 1 for the halo."""
    start, stop = parcel["ends"][side].tolist()
    xp = module_of(parcel["position"])
    cuts = start + xp.searchsorted(parcel["position"][start:stop], xp.asarray(offsets))
    places = [start, *cuts.tolist(), stop]
    return [(parcel, a, b) for a, b in itertools.pairwise(places) if b > a]


PartCounts = tuple[np.ndarray, Array]
"""For some rows of a partition: their positions in it (n,), and their numbers of neighbors (n,)."""


def counts_by_partition(chunk: Chunk, counts: Array | int, offsets: np.ndarray) -> list[PartCounts]:
    """Split the counts of a chunk's rows by partition. `offsets`: position of each partition's first row."""
    position = to_host(chunk["position"])
    cuts = np.searchsorted(position, offsets)
    values = np.zeros(len(position), np.int64) if isinstance(counts, int) else counts
    return [
        (position[start:stop] - first, values[start:stop])
        for start, stop, first in zip(cuts[:-1], cuts[1:], offsets[:-1], strict=True)
    ]


def labelled_counts(labels: Ids, meta: Frame, *parts: PartCounts) -> Frame:
    """Combine the counts of a partition's rows from all chunks, and label them like the rows."""
    frames = frames_for(meta)
    values = frames.xp.zeros(len(labels), np.int64)
    for rows, counts in parts:
        values[frames.xp.asarray(rows)] = frames.xp.asarray(counts)
    return frames.rows(values, labels, meta)
