"""Plain frames as chunks of sets: one chunk of each, their tokens in one order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.ids import id_bytes, value_bytes
from dask_simjoin.errors import TABLES, in_table
from dask_simjoin.metrics.types import Frame
from dask_simjoin.planning.checks import check_rows
from dask_simjoin.planning.free_memory import room_now
from dask_simjoin.planning.statistics.unique_ids import check_summaries, summarise_ids
from dask_simjoin.sets.chunks import ReadSets, SetChunk, read_sets, set_chunk
from dask_simjoin.sets.encode import merge, ranked, ranks, ranks_of
from dask_simjoin.sets.meeting import SetMeeting
from dask_simjoin.sets.spec import SetSpec


def whole_sets(frames: Sequence[Frame], spec: SetSpec, with_ids: bool) -> list[SetChunk]:
    """Make one chunk of each of one plain frame or two; refuses ids that repeat, where they are needed."""
    return chunks_of(read_whole(frames, spec, with_ids))


def read_whole(frames: Sequence[Frame], spec: SetSpec, with_ids: bool) -> list[ReadSets]:
    """Read one plain frame or two; see `whole_sets`."""
    sides = [spec, *([spec.right] if len(frames) > 1 else [])]
    read: list[ReadSets] = []
    for which, frame, own in zip(TABLES if len(frames) > 1 else [None], frames, sides, strict=False):
        check_rows(len(frame), 0)
        with in_table(which):
            read.append(read_sets(frame, own))
            if with_ids:
                check_summaries([summarise_ids(read[-1]["ids"], own.id)], own.id)
    return read


def chunks_of(read: Sequence[ReadSets]) -> list[SetChunk]:
    """Put the tokens of all tables in one order, and make a chunk of each."""
    merged = merge(*(one["vocabulary"] for one in read)) if len(read) > 1 else None
    whole = ranks(read[0]["vocabulary"] if merged is None else merged["vocabulary"])
    chunks = []
    for part, one in enumerate(read):
        sets = ranked(one["sets"], whole if merged is None else ranks_of(whole, merged["codes"], part))
        chunks.append(
            set_chunk(sets, len(whole), one["missing"], one["ids"], one["example"], one.get("kept"))
        )
    return chunks


def whole_meeting(chunks: Sequence[SetChunk], spec: SetSpec) -> SetMeeting:
    """Bring a chunk together with itself, or with the other table's."""
    return SetMeeting(chunks[0], chunks[-1], len(chunks) == 1, spec, spec.method)


def room_check(chunks: Sequence[SetChunk], spec: SetSpec) -> Callable[[int], None]:
    """Return what refuses so many rows of a result that do not fit memory."""
    sides = chunks[0], chunks[-1]
    kept = sum(
        value_bytes(chunk["kept"][name])
        for chunk in sides
        if "kept" in chunk
        for name in chunk["kept"].columns
    )
    row_bytes = sum(id_bytes(chunk["ids"]) for chunk in sides) + kept + 8 * (spec.score is not None)
    device = frames_of_library(spec.library).memory()
    return room_now(row_bytes, spec.asked, device)
