"""Represent strings as blocks of codes: read them from partitions, gather them into blocks, and pair blocks.

A block of strings is a block of sets whose tokens are code points, in the order of the text. Each string is
followed by a tail: the code 0, or four codes that identify its group (`by=`). So an empty string has a size
above 0, and only a missing string has size 0. Equal strings of the same group are stored once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from dask_simjoin.engine.base import edit_joiner, segment_kernels
from dask_simjoin.errors import ListError, TextError
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.sets.chunks import (
    ReadSetRows,
    SetBlockPair,
    SetChunk,
    SetParcel,
    gathered,
    refused,
    rows_read,
    set_chunk,
)
from dask_simjoin.sets.columns import texts_of
from dask_simjoin.sets.methods import SetJoiner
from dask_simjoin.sets.token_ids import EncodedSets, hashes
from dask_simjoin.sets.tokens import code_points
from dask_simjoin.strings.requests import EditSpec
from dask_simjoin.tasks.counts import hash_columns, mixed_bits

POINTS = sys.maxunicode + 1
"""Exclusive upper bound of code points, and of the codes in tails."""


class EditBlockPair(SetBlockPair):
    """Two chunks of strings to compare, and the options of the join."""

    @property
    def joiner(self) -> SetJoiner:
        joiner: SetJoiner = edit_joiner()
        return joiner


def checked_presence(frame: Frame, spec: EditSpec, number: int | None) -> np.ndarray:
    """Return a mask (rows,) of the rows that can match; raise `TextError` for values that are not texts."""
    return _present_texts(frame, spec, number)[0]


def _present_texts(frame: Frame, spec: EditSpec, number: int | None) -> tuple[np.ndarray, Array, Array]:
    """Return a mask of the rows that can match, and the bounds and code points of their texts."""
    try:
        present, texts = texts_of(frame[spec.on[0]], hint="")
    except ListError as error:
        raise TextError(refused(frame, spec, number, error)) from None
    ends, points = code_points(texts, 0, None)
    if spec.code is None:
        return present, ends, points
    # a row with a missing value in by= matches no row
    has_group = ~np.isnan(frame[spec.code].to_numpy())
    both = present & has_group
    if not has_group[present].all():
        some = has_group[present]
        points = points[np.repeat(some, np.diff(ends))]
        ends = np.concatenate([[0], np.cumsum(np.diff(ends)[some])])
    return both, ends, points


def read_texts(frame: Frame, spec: EditSpec, number: int | None = None, with_ids: bool = True) -> ReadSetRows:
    """Read the strings and the ids of a partition's rows.

    `number`: number of the partition, for messages; None: a plain frame.
    """
    present, ends, points = _present_texts(frame, spec, number)
    tails = np.zeros((len(ends) - 1, spec.rule.tail), np.int32)
    if spec.code is not None:
        # equal groups have the same float, so their bits identify groups
        groups = frame[spec.code].to_numpy()[present].astype(np.float64).view(np.uint64)
        for k in range(spec.rule.tail):
            tails[:, k] = (groups >> np.uint64(16 * k)) & np.uint64(0xFFFF)
    offsets, codes = np.empty(len(ends), np.int64), np.empty(len(points) + tails.size, np.int32)
    points = np.require(points, np.uint32, "W")
    segment_kernels().with_tails(np.ascontiguousarray(ends, np.int64), points, tails, offsets, codes)
    return rows_read(frame, spec, EncodedSets(offsets=offsets, codes=codes), present, with_ids)


def read_sample(frame: Frame, spec: EditSpec, number: int | None) -> tuple[ReadSetRows, np.ndarray]:
    """Read the strings of a sample; also return their codes."""
    read = read_texts(frame, spec, number, with_ids=False)
    return read, read["sets"]["codes"]


def hash_rows(frame: Frame, spec: EditSpec) -> Array:
    """Hash each row by its string and kept columns (rows,), uint64. Equal rows have equal hashes."""
    read = read_texts(frame, spec, with_ids=False)
    found = hashes(read["sets"])
    if read["missing"] is not None:
        found[read["missing"]] = 1
    return mixed_bits(found, hash_columns(frame, (spec.keep,))) if spec.keep else found


def gather_block(example: Frame, spec: EditSpec, *parcels: SetParcel | None) -> SetChunk:
    """Concatenate the parcels for one block.

    The codes get the smallest dtype that holds them, so that fewer bytes are sent and spilled.
    """
    bound = [codes_bound(parcel["sets"]) for parcel in parcels if parcel is not None]
    chunk = gathered(max(bound, default=1), example, lambda frame: read_texts(frame, spec), parcels)
    chunk["tokens"] = chunk["tokens"].astype(np.min_scalar_type(chunk["universe"] - 1))
    return chunk


def codes_bound(sets: EncodedSets) -> int:
    """Return the exclusive upper bound of the codes in strings. A small bound makes sorting faster."""
    return int(sets["codes"].max(initial=0)) + 1


def chunks_of(read: Sequence[ReadSetRows]) -> list[SetChunk]:
    return [
        set_chunk(
            one["sets"], codes_bound(one["sets"]), one["missing"], one["ids"], one["example"], one.get("kept")
        )
        for one in read
    ]
