"""Move the rows of partitions to blocks: what each partition sends, and how a block is put together."""

from __future__ import annotations

from typing import NotRequired, TypedDict

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.ids import joined
from dask_simjoin.metrics.types import Array, Frame, Ids
from dask_simjoin.sets.chunks import ReadRows, ReadSets, SetChunk, read_sets, set_chunk
from dask_simjoin.sets.encode import CodedSets, hashes, ranked, some_sets
from dask_simjoin.sets.planning.blocks import SizeBlocks
from dask_simjoin.sets.spec import SetSpec
from dask_simjoin.tasks.chunks import check_source, stacked


class Parcel(TypedDict):
    """Hold the rows that a partition sends to a block, in their order."""

    sets: CodedSets
    missing: np.ndarray | None
    position: np.ndarray
    """Their numbers in the frame (rows,), int64."""
    ids: Ids
    kept: NotRequired[Frame]


def read_partition(frame: Frame, known: tuple[int, int], spec: SetSpec) -> ReadSets:
    """Read a partition; `known`: its number, and its rows when the join was planned."""
    number, planned = known
    check_source(number, len(frame), planned)
    return read_sets(frame, spec, number)


def send(read: ReadRows, rank: np.ndarray, first: int, blocks: SizeBlocks) -> list[Parcel | None]:
    """Put the rows of a partition into parcels for blocks; None: it has none for that block.

    `rank`: of each of its tokens; `first`: the number of its first row in the frame.
    """
    sets = ranked(read["sets"], rank)
    sizes = np.diff(sets["offsets"])
    block = blocks.block_of(sizes, hashes(sets))
    parcels: list[Parcel | None] = []
    for b in range(len(blocks)):
        rows = np.flatnonzero(block == b)
        parcels.append(_some(read, sets, rows, first) if len(rows) else None)
    return parcels


def _some(read: ReadRows, sets: CodedSets, rows: np.ndarray, first: int) -> Parcel:
    whole = len(rows) == len(read["ids"])
    missing = read["missing"]
    there = frames_for(read["example"]).xp.asarray(rows)
    parcel = Parcel(
        sets=sets if whole else some_sets(sets, rows),
        missing=missing if whole or missing is None else missing[rows],
        position=rows + first,
        ids=read["ids"] if whole else read["ids"].take(there),
    )
    if "kept" in read:
        parcel["kept"] = read["kept"] if whole else read["kept"].iloc[there]
    return parcel


def gather_block(universe: int, example: Frame, spec: SetSpec, *parcels: Parcel | None) -> SetChunk:
    """Make a block of what partitions send to it, in their order."""
    there = [parcel for parcel in parcels if parcel is not None]
    if not there:
        nothing = read_sets(example, spec)
        return set_chunk(
            nothing["sets"], universe, None, nothing["ids"], nothing["example"], nothing.get("kept"),
            np.zeros(0, np.int64),
        )  # fmt: skip
    sizes = [np.diff(parcel["sets"]["offsets"]) for parcel in there]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
    codes = np.concatenate([parcel["sets"]["codes"] for parcel in there])
    missing = None
    if any(parcel["missing"] is not None for parcel in there):
        missing = np.concatenate(
            [
                np.zeros(len(parcel["ids"]), np.bool_) if parcel["missing"] is None else parcel["missing"]
                for parcel in there
            ]
        )
    kept = None
    if "kept" in there[0]:
        kept = stacked([parcel["kept"] for parcel in there], example)
    return set_chunk(
        CodedSets(offsets=offsets, codes=codes), universe, missing,
        joined([parcel["ids"] for parcel in there]), example, kept,
        np.concatenate([parcel["position"] for parcel in there]),
    )  # fmt: skip


PartCounts = tuple[np.ndarray, Array]
"""Rows of a partition (some,), as numbers in it, and a number for each of them."""


def counts_by_partition(chunk: SetChunk, counts: Array | int, offsets: np.ndarray) -> list[PartCounts]:
    """Split numbers of the rows of a block, by position, by the partitions that they are of."""
    position = to_host(chunk["position"])
    cuts = np.searchsorted(position, offsets)
    values = np.zeros(len(position), np.int64) if isinstance(counts, int) else counts
    return [
        (position[start:stop] - first, values[start:stop])
        for start, stop, first in zip(cuts[:-1], cuts[1:], offsets[:-1], strict=True)
    ]


def put_beside(labels: Ids, meta: Frame, *parts: PartCounts) -> Frame:
    """Put the numbers of the rows of one partition together, beside the rows' labels."""
    frames = frames_for(meta)
    values = frames.xp.zeros(len(labels), np.int64)
    for rows, counts in parts:
        values[frames.xp.asarray(rows)] = frames.xp.asarray(counts)
    return frames.rows(values, labels, meta)
