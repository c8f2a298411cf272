"""Move the rows that a worker holds to their chunks: all its partitions at once, a parcel for each chunk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.ids import joined
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.chunking.base import Shuffled
from dask_simjoin.tasks.chunks import EXTRA, Chunk, Fingerprint, ReadRows, read_points, stacked
from dask_simjoin.tasks.moving import Parcel, Span, joined_of, pack, packed, positions, spans_of, unpacked

ROWS_AT_ONCE = 1 << 19
"""Rows of partitions that are packed at a time: arrays of 4 MB get new memory in large pages, and for many
smaller ones workers wait longer than for all else that is done with them."""


def pack_together(chunks: Shuffled, spec: JoinSpec, with_ids: bool, fingerprints: Sequence[Fingerprint],
                  *partitions: Frame) -> list[Parcel]:  # fmt: skip
    """Pack partitions, in their order: of each chunk one parcel, as if there were only this chunk.

    `with_ids`: ids travel too.
    """
    sizes = [len(partition) for partition in partitions]
    parcels = [
        _pack(chunks, spec, with_ids, fingerprints[first:last], partitions[first:last])
        for first, last in _batches(sizes)
    ]
    return [_of_chunk(parcels, c, partitions[0].iloc[:0]) for c in range(len(chunks))]


def _batches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Choose partitions first ... last-1, of so many rows each, that are packed at once."""
    first, rows = 0, 0
    for n, own in enumerate(sizes):
        rows += own
        if rows >= ROWS_AT_ONCE or n == len(sizes) - 1:
            yield first, n + 1
            first, rows = n + 1, 0


def _pack(chunks: Shuffled, spec: JoinSpec, with_ids: bool, fingerprints: Sequence[Fingerprint],
          partitions: Sequence[Frame]) -> Parcel:  # fmt: skip
    """Pack some partitions as one: on the host, where they are read to one array."""
    if len(partitions) == 1:
        return pack(partitions[0], fingerprints[0], chunks, spec, with_ids)
    sizes = [len(partition) for partition in partitions]
    x = np.empty((sum(sizes), spec.dims or 0), order="F")
    position, room = np.empty(len(x), np.int64), np.empty(max(sizes) * x.shape[1])
    each: list[ReadRows] = []
    start = 0
    for partition, fingerprint in zip(partitions, fingerprints, strict=True):
        example = each[0]["example"] if each else None
        read = read_points(partition, fingerprint, spec, example, room)
        stop = start + len(read["x"])
        x[start:stop] = read["x"]
        position[start:stop] = positions(read, int(chunks.offsets[fingerprint[0]]))
        read["x"], start = x[start:stop], stop
        each.append(read)
    example = each[0]["example"]
    whole: dict[str, Any] = {"x": x[:start], "places": None, "rows": start, "example": example}
    whole["ids"] = joined([read["ids"] for read in each])
    for name in EXTRA:
        if name in each[0]:
            whole[name] = stacked([read[name] for read in each], example)  # type: ignore[literal-required]
    return packed(partitions[0], cast(ReadRows, whole), position[:start], chunks, spec, with_ids)


def _of_chunk(parcels: list[Parcel], c: int, example: Frame) -> Parcel:
    """Put what parcels have for one chunk together: its own rows, and then those of its halo."""
    sides = [spans_of(parcels, side, c) for side in range(2)]
    own, halo = (sum(stop - start for _, start, stop in spans) for spans in sides)
    filled = [span for span in itertools.chain(*sides) if span[2] > span[1]] or sides[0][:1]
    names = [name for name in ("x", "position", *EXTRA) if name in parcels[0]]
    found = {name: joined_of(name, filled, example) for name in names}
    if "ids" in parcels[0]:
        found["ids"] = joined([parcel["ids"][start:stop] for parcel, start, stop in filled])
    return cast(Parcel, found | {"ends": np.array([[0, own], [own, own + halo]])})


def unpack_together(example: Frame, layout: Layout | SearchLayout, offsets: np.ndarray,
                    *parcels: Parcel) -> Chunk:  # fmt: skip
    """Index a chunk that `pack_together` has packed: its rows are in the order of the frame.

    `offsets`: the number of each partition's first row, in the whole frame.
    """
    sides: list[list[Span]] = []
    for side in range(2):
        spans = [span for parcel in parcels for span in _by_partition(parcel, side, offsets)]
        spans.sort(key=lambda span: int(span[0]["position"][span[1]]))
        sides.append(spans or [(parcels[0], 0, 0)])
    return unpacked(sides, example, layout)


def _by_partition(parcel: Parcel, side: int, offsets: np.ndarray) -> list[Span]:
    """List the rows of each partition that a parcel has, of the chunk itself or of its halo."""
    start, stop = parcel["ends"][side].tolist()
    xp = module_of(parcel["position"])
    cuts = start + xp.searchsorted(parcel["position"][start:stop], xp.asarray(offsets))
    places = [start, *cuts.tolist(), stop]
    return [(parcel, a, b) for a, b in itertools.pairwise(places) if b > a]
