"""Pack rows of partitions as parcels, which are grouped by chunk, and index chunks from
parcels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.base import frames_for, host_joiner, host_kernels, joiner_for
from dask_simjoin.engine.compat import module_of, tally, to_host, values_of
from dask_simjoin.engine.ids import joined, row_ids
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.metrics.norms import Array, DType, Frame, Ids, Values
from dask_simjoin.planning.entity_chunks import Piece, Shuffled
from dask_simjoin.planning.spatial_chunks import ClusterChunks
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import (
    OPTIONAL_FIELDS,
    Chunk,
    Fingerprint,
    ReadRows,
    concat_points,
    copy_parts,
    indexed,
    read_piece,
    read_points,
    slice_rows,
    stacked,
)

CELL, ID, POSITION, COUNT, LIMIT = "_partitions", "id", "position", "count", "limit"
"""Names of columns in shuffled frames. Coordinates are x0, x1, ...; kept columns are
k0, k1, ...
"""


class Parcel(TypedDict):
    """Rows of a partition, grouped by the chunk that receives them: first its own rows,
    then rows for halos.

    Within a group, rows are in the order of the frame.
    """

    x: Array  # coordinates (n, d); float32 if all columns are float32, else float64
    # positions of the rows in the whole frame (n,): int64, or uint32 if workers send
    # them and they fit
    position: Array
    # (2, chunks + 1): where the rows for each chunk begin and end: its own rows
    # (ends[0]), and its halo (ends[1])
    ends: np.ndarray
    ids: NotRequired[Ids]
    # whether the ids of the rows are their positions, so that `ids` is missing
    numbered: NotRequired[bool]
    kept: NotRequired[Frame]
    own_limit: NotRequired[Array]


def pack(
    frame: Frame,
    fingerprint: Fingerprint,
    chunks: Shuffled,
    spec: JoinSpec,
    with_ids: bool,
) -> Parcel:
    """Pack the rows of a partition as a parcel. `with_ids`: whether to send ids."""
    read = read_points(frame, fingerprint, spec)
    return packed(
        frame,
        read,
        positions(read, int(chunks.offsets[fingerprint[0]])),
        chunks,
        spec,
        with_ids,
    )


def positions(read: ReadRows, first: int) -> Array:
    """Return the positions of rows in the whole frame. `first`: position of the
    partition's first row.
    """
    places = read["places"]
    return (
        module_of(read["x"]).arange(read["rows"]) if places is None else places
    ) + first


def packed(
    frame: Frame,
    read: ReadRows,
    position: Array,
    chunks: Shuffled,
    spec: JoinSpec,
    with_ids: bool,
) -> Parcel:
    """Pack rows that have been read. `position`: positions of the rows in the whole
    frame.
    """
    x = read["x"]
    frames, joiner = frames_for(frame), joiner_for(frame)
    xp = frames.xp
    within = chunks.reach, chunks.threshold, chunks.norm
    own, rows, needing = joiner.regions(
        x, chunks.regions, *within, everywhere=chunks.everywhere, mutual=chunks.mutual
    )
    if chunks.everywhere:
        order, ends = _sorted_by_chunk(
            chunks.own_chunk(needing, position[rows]), len(chunks)
        )
        taken, halo_ends = rows[order], np.full_like(ends, len(rows))
    else:
        taken, ends = _sorted_by_chunk(chunks.own_chunk(own, position), len(chunks))
        order, halo_ends = _sorted_by_chunk(
            chunks.halo_chunk(needing, position[rows]), len(chunks)
        )
        taken, halo_ends = xp.concatenate([taken, rows[order]]), halo_ends + len(x)
    kinds = set(cell_columns(frame, spec).values())
    parcel = Parcel(
        x=_coordinates_at(
            x, taken, kinds.pop() if len(kinds) == 1 else np.dtype(np.float64)
        ),
        position=position[taken],
        ends=np.stack([ends, halo_ends]),
    )
    if with_ids:
        parcel["ids"] = read["ids"].take(taken)
    if spec.keep:
        names = {name: name for name in spec.keep}
        kept = frames.columns_at(read["kept"], names, taken)
        parcel["kept"] = frames.result(kept, len(taken))
    if spec.radius is not None:
        parcel["own_limit"] = read["own_limit"][taken]
    return parcel


def _sorted_by_chunk(chunk: Array, chunks: int) -> tuple[Array, np.ndarray]:
    """Sort rows by chunk. `chunk` (n,): the chunk of each row.

    Return an order of the rows, and where the rows of each chunk begin and end in it
    (chunks + 1,).
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
            # with the default mode, "raise", NumPy would write to a buffer and copy it
            x[:, k].take(places, out=out[:, k], mode="clip")
        else:
            out[:, k] = x[:, k].take(places)
    return out


Span = tuple[Parcel, int, int]
"""A range of rows in a parcel: (parcel, start, stop)."""


def unpack(
    c: int,
    example: Frame,
    spec: JoinSpec,
    layout: Layout | SearchLayout,
    *parcels: Parcel,
) -> Chunk:
    """Index chunk `c` from the parcels of all partitions, which are in the order of the
    frame.
    """
    return unpacked([spans_of(parcels, side, c) for side in range(2)], example, layout)


def spans_of(parcels: Sequence[Parcel], side: int, c: int) -> list[Span]:
    """List the spans that have rows of chunk `c` (`side` 0), or of its halo (`side` 1).

    If there are no such rows, the result is one empty span.
    """
    spans = [(parcel, *parcel["ends"][side, c : c + 2].tolist()) for parcel in parcels]
    return [span for span in spans if span[2] > span[1]] or [(parcels[0], 0, 0)]


def unpacked(
    sides: list[list[Span]],
    example: Frame,
    layout: Layout | SearchLayout,
    threads: int = 1,
) -> Chunk:
    """Index the rows of a chunk, and separately the rows of its halo. `sides`: the
    spans of both.
    """
    own, halo = (
        indexed_spans(
            spans,
            example,
            layout,
            *joined_rows(spans, example, layout, threads),
            threads,
        )
        for spans in sides
    )
    return own | {"halo": halo}


def joined_rows(
    spans: list[Span],
    example: Frame,
    layout: Layout | SearchLayout,
    threads: int = 1,
) -> tuple[Array, Array]:
    """Return the coordinates (n, d) and the positions (n,) of all rows in some spans."""
    x = concat_points([parcel["x"][a:b] for parcel, a, b in spans], layout, threads)
    if module_of(x) is np:
        position = np.empty(len(x), np.int64)
        parts = [parcel["position"][a:b] for parcel, a, b in spans]
        copy_parts(parts, position, threads)
    else:
        position = concat_field("position", spans, example)
    return x.astype(np.float64, copy=False), position.astype(np.int64, copy=False)


def indexed_spans(
    spans: list[Span],
    example: Frame,
    layout: Layout | SearchLayout,
    x: Array,
    position: Array,
    threads: int = 1,
) -> Chunk:
    """Index the rows in some spans. `x`, `position`: coordinates and positions of these
    rows.
    """
    some, frames = spans[0][0], frames_for(example)
    with_ids = "ids" in some or "numbered" in some
    ids = frames.index(position)
    if any("ids" in parcel for parcel, _, _ in spans):
        ends = np.cumsum([0, *(b - a for _, a, b in spans)]).tolist()
        ids = joined(
            [
                parcel["ids"][a:b] if "ids" in parcel else ids[start : start + b - a]
                for (parcel, a, b), start in zip(spans, ends, strict=False)
            ]
        )
    extra = {
        name: concat_field(name, spans, example)
        for name in OPTIONAL_FIELDS
        if name in some
    }
    chunk = indexed(x, ids, layout, example, extra, threads, with_ids)
    return chunk | {"position": position}


def concat_field(name: str, parts: list[Span], example: Frame) -> Any:
    some = [slice_rows(parcel[name], a, b) for parcel, a, b in parts]  # type: ignore[literal-required]
    return stacked(some, example)


def cell_columns(frame: Frame, spec: JoinSpec) -> dict[str, DType]:
    """Return the names of the coordinate columns in a shuffled frame, with their
    dtypes.

    float32 columns are sent as float32, which takes half the bytes of float64. The
    chunk converts them exactly.
    """
    assert spec.coordinates.dims is not None
    kinds = [frame[name].dtype for name in spec.on]
    if spec.coordinates.lists:
        lists = lists_of(frame[spec.on[0]])
        kinds = [lists and lists.kind] * (
            spec.coordinates.dims - spec.coordinates.added
        ) + kinds[1:]
    if spec.measure.embeds:
        kinds = [np.float64] * spec.coordinates.dims
    narrow, wide = np.dtype(np.float32), np.dtype(np.float64)
    return {f"x{k}": narrow if kind == narrow else wide for k, kind in enumerate(kinds)}


def sent_names_of_kept(spec: JoinSpec) -> list[str]:
    """Return the names of kept columns in a shuffled frame."""
    return [f"k{k}" for k in range(len(spec.keep))]


def send(
    frame: Frame,
    fingerprint: Fingerprint,
    chunks: Shuffled,
    spec: JoinSpec,
    with_ids: bool,
) -> Frame:
    """Make the frame that Dask shuffles. It has each row once for its own chunk, and
    once per halo that has the row.

    Rows for a halo have ``-1 - position`` in the column of positions. `with_ids`:
    whether to send ids.
    """
    return _sent(frame, pack(frame, fingerprint, chunks, spec, with_ids), chunks, spec)


def send_piece(
    frame: Frame, piece: Piece, chunks: Shuffled, spec: JoinSpec, with_ids: bool
) -> Frame:
    """Make the frame that Dask shuffles, like `send`, for a piece of a partition.
    `as_planned` has checked the partition.
    """
    number, start, stop = piece
    some = frame.iloc[start:stop]
    first = int(chunks.offsets[number]) + start
    read = read_piece(some, spec)
    parcel = packed(some, read, positions(read, first), chunks, spec, with_ids)
    return _sent(some, parcel, chunks, spec)


def _sent(frame: Frame, parcel: Parcel, chunks: Shuffled, spec: JoinSpec) -> Frame:
    """Convert a parcel to the frame that Dask shuffles. `frame`: the rows that are in
    the parcel.
    """
    frames, position, own = (
        frames_for(frame),
        parcel["position"],
        int(parcel["ends"][0, -1]),
    )
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


def shared_and_far(
    c: int, chunks: ClusterChunks, x: Array, own: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of chunk `c` that other chunks may have, and the rows of its halo
    without neighbors in the region: see `Chunk`.

    `x` (n, d): coordinates of the `own` rows of the region, then of the halo.
    """
    near = chunks.near_reach, chunks.near_threshold, chunks.norm
    _, rows, needing = host_joiner().regions(
        np.asfortranarray(x[own:]), chunks.regions, *near, mutual=True
    )
    near_halo = np.zeros(len(x) - own, bool)
    near_halo[rows[needing == c]] = True
    shared = np.concatenate(
        [_near_walls(x[:own], c, chunks), own + np.flatnonzero(near_halo)]
    )
    return shared, own + np.flatnonzero(~near_halo)


def _near_walls(x: Array, c: int, chunks: ClusterChunks) -> Array:
    """Return the points of region `c` that may belong to the near halos of other
    regions (k,).

    The other regions are behind the walls of this region, so only points near a wall
    can be near those regions.
    """
    cut, low, high = chunks.regions.walls
    near = np.zeros(len(x), bool)
    for k, lower, upper in zip(
        cut.tolist(), low[c].tolist(), high[c].tolist(), strict=True
    ):
        if lower > -np.inf:
            near |= x[:, k] - lower <= chunks.near_reach
        if upper < np.inf:
            near |= upper - x[:, k] <= chunks.near_reach
    return np.flatnonzero(near)


def cell_chunk_together(
    frame: Frame,
    c: int,
    chunks: ClusterChunks,
    example: Frame,
    spec: JoinSpec,
    layout: Layout,
    threads: int,
) -> Chunk:
    """Index chunk `c` from the rows that Dask's shuffle has sent to it. One index has
    the chunk's own rows, then its halo, each in the order of the frame.
    """
    sent = values_of(frame[POSITION])
    own = int((sent >= 0).sum())
    order = np.lexsort((np.where(sent >= 0, sent, -1 - sent), sent < 0))
    x = frames_for(example).coordinates(frame, tuple(cell_columns(example, spec)))
    x, position = x[order], sent[order]
    position[own:] = -1 - position[own:]
    shared, far = shared_and_far(c, chunks, x, own)
    ids, extra = frames_for(example).index(position), _extra_columns(frame, order, spec)
    chunk = indexed(x, ids, layout, example, extra, threads, False)
    return chunk | {"position": position, "own": own, "shared": shared, "far": far}


def _extra_columns(frame: Frame, places: Array, spec: JoinSpec) -> dict[str, Any]:
    """Return the optional fields of a chunk from some rows of a shuffled frame."""
    extra: dict[str, Any] = {}
    if spec.keep:
        frames = frames_for(frame)
        names = dict(zip(spec.keep, sent_names_of_kept(spec), strict=True))
        kept = frames.columns_at(frame, names, places)
        extra["kept"] = frames.result(kept, len(places))
    if spec.radius is not None:
        extra["own_limit"] = values_of(frame[LIMIT])[places]
    return extra


def cell_chunk(
    frame: Frame,
    example: Frame,
    spec: JoinSpec,
    layout: Layout | SearchLayout,
    with_ids: bool,
) -> Chunk:
    """Index a chunk from the rows that Dask's shuffle has sent to it."""
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
        extra = _extra_columns(frame, places, spec)
        sides.append(
            indexed(x[places], ids, layout, example, extra) | {"position": numbers}
        )
    return sides[0] | {"halo": sides[1]}


PartCounts = tuple[np.ndarray, Array]
"""For some rows of a partition: positions in the partition (n,), and numbers of
neighbors (n,).
"""


def counts_by_partition(
    chunk: Chunk, counts: Array | int, offsets: np.ndarray
) -> list[PartCounts]:
    """Split the counts of a chunk's rows by partition. `offsets`: for each partition,
    the position of its first row.
    """
    position = to_host(chunk["position"])
    cuts = np.searchsorted(position, offsets)
    values = np.zeros(len(position), np.int64) if isinstance(counts, int) else counts
    return [
        (position[start:stop] - first, values[start:stop])
        for start, stop, first in zip(cuts[:-1], cuts[1:], offsets[:-1], strict=True)
    ]


def labelled_counts(labels: Ids, meta: Frame, *parts: PartCounts) -> Frame:
    """Combine the counts that all chunks have for a partition's rows, and label them
    like the rows.
    """
    frames = frames_for(meta)
    values = frames.xp.zeros(len(labels), np.int64)
    for rows, counts in parts:
        values[frames.xp.asarray(rows)] = frames.xp.asarray(counts)
    return frames.rows(values, labels, meta)
