"""Read chunks of sets from partitions, gather them into blocks, and make pairs of
blocks to compare.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict, TypeVar, cast

import numpy as np

from dask_simjoin.engine.base import (
    frames_for,
    frames_of_library,
    set_joiner_of_library,
)
from dask_simjoin.engine.ids import bytes_of_columns, id_bytes, joined, row_ids
from dask_simjoin.engine.native import native
from dask_simjoin.errors import ListError, TokenError, in_table
from dask_simjoin.metrics.norms import Array, ArrayModule, Frame, Ids
from dask_simjoin.planning.budget import Cause, room_now
from dask_simjoin.planning.checks import check_rows
from dask_simjoin.planning.left_out import LeftOut, LeftOutRows, left_out_in_words
from dask_simjoin.planning.size_blocks import SizeBlocks
from dask_simjoin.planning.unique_ids import check_summaries, summarise_ids
from dask_simjoin.request.messages import shown
from dask_simjoin.request.spec import RowSpec
from dask_simjoin.sets.columns import occurrences, presence
from dask_simjoin.sets.methods import SetJoiner, SetMethod
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.sets.token_ids import (
    EncodedSets,
    SetBlock,
    Vocabulary,
    collapse,
    hashes,
    merge,
    ranked,
    ranks,
    ranks_of,
    take_sets,
    token_hashes,
    unique_tokens,
)
from dask_simjoin.tasks.chunks import Chunk, check_source, named_rows, stacked
from dask_simjoin.tasks.counts import hash_columns, mixed_bits


class SetChunk(Chunk, SetBlock):
    """The rows of a chunk and its distinct sets. It is a plain dict of arrays and
    frames, which Dask can spill to disk.

    `order` has the positions of rows in the chunk. It begins with the rows that have
    tokens, sorted by set as in `SetBlock`. Then come rows with empty sets, and then
    rows without a set.
    """

    firsts: Array
    """(sets + 3,): where in `order` the rows of each set begin. Then come the starts of
    the rows with empty sets and of the rows without a set, and the end.
    """


LOG = logging.getLogger("dask_simjoin")


class ReadSetRows(TypedDict):
    """The sets, ids and kept columns of a partition's rows, in the order of the rows."""

    sets: EncodedSets
    missing: np.ndarray | None
    """Mask (rows,) of the rows without a set; None if every row has a set."""
    ids: Ids
    example: Frame
    kept: NotRequired[Frame]


class ReadSets(ReadSetRows):
    """The rows of a partition, with the vocabulary of the partition's tokens."""

    vocabulary: Vocabulary


Read = TypeVar("Read", bound=ReadSetRows)


def checked_presence(frame: Frame, spec: SetSpec, number: int | None) -> np.ndarray:
    """Return a mask (rows,) of the rows that have a set. Raise `TokenError` for a value
    that is not a set.
    """
    try:
        return presence(frame[spec.on[0]], spec.tokenizer)
    except ListError as error:
        raise TokenError(
            refused(frame, spec, number, error, _allowed_values(spec))
        ) from None


def read_sets(
    frame: Frame, spec: SetSpec, number: int | None = None, with_ids: bool = True
) -> ReadSets:
    """Read the sets and the ids of the rows in a partition.

    `number`: number of the partition, which messages name; None for a plain frame.
    """
    try:
        present, found = occurrences(frame[spec.on[0]], spec.tokenizer)
    except ListError as error:
        raise TokenError(
            refused(frame, spec, number, error, _allowed_values(spec))
        ) from None
    sets, vocabulary = unique_tokens(found)
    return ReadSets(
        **rows_read(frame, spec, sets, present, with_ids), vocabulary=vocabulary
    )


def rows_read(
    frame: Frame, spec: RowSpec, sets: EncodedSets, present: np.ndarray, with_ids: bool
) -> ReadSetRows:
    """Combine the encoded sets of a frame with the ids and the kept columns of its
    rows.

    `present`: mask of the rows with a set. `sets` is for these rows only.
    """
    missing = None
    if not present.all():
        missing = ~present
        sizes = np.zeros(len(present), np.int64)
        sizes[present] = np.diff(sets["offsets"])
        sets = EncodedSets(
            offsets=np.concatenate([[0], np.cumsum(sizes)]), codes=sets["codes"]
        )
    ids = row_ids(frame, spec.id, spec.id_dtype) if with_ids else frame.index
    read = ReadSetRows(
        sets=sets, missing=missing, ids=ids, example=frame.iloc[:0].copy()
    )
    if spec.keep and with_ids:
        # Dask may describe big-endian columns as native ones
        read["kept"] = native(frame[list(spec.keep)])
    return read


def hash_rows(frame: Frame, spec: SetSpec) -> Array:
    """Hash each row by its set and its kept columns (rows,), uint64. Equal rows have
    equal hashes.
    """
    read = read_sets(frame, spec, with_ids=False)
    offsets, codes = read["sets"]["offsets"], read["sets"]["codes"]
    numbers = token_hashes(read["vocabulary"]["tokens"]).view(np.uint64)
    mixed = mixed_bits(np.zeros(len(numbers), np.uint64), numbers)
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum(mixed[codes], dtype=np.uint64)]
    )
    found = sums[offsets[1:]] - sums[offsets[:-1]]
    if read["missing"] is not None:
        found[read["missing"]] = 1
    hashed = frames_for(frame).xp.asarray(found)
    return (
        mixed_bits(hashed, hash_columns(frame, (spec.keep,))) if spec.keep else hashed
    )


def refused(
    frame: Frame,
    spec: RowSpec,
    number: int | None,
    error: ListError,
    what: str = "texts",
) -> str:
    """Return the message for a row with an invalid value. `what`: the values that are
    allowed.

    `number`: number of the row's partition; None for a plain frame.
    """
    label = (
        frame.index[error.row]
        if spec.id not in frame.columns
        else frame[spec.id].iloc[error.row]
    )
    where = "" if number is None else f" of partition {number}"
    plain = label.item() if isinstance(label, np.generic) else label
    column = f"df[{spec.on[0]!r}]"
    remedy = (
        f"Drop such rows, or convert them: {column} = {column}.map(str, "
        "na_action='ignore')."
        if error.what.endswith("), which is not text")
        else "Drop or convert such rows first."
    )
    return (
        f"Column {spec.on[0]!r} must hold {what}: row {error.row}{where} (label "
        f"{shown(plain)}) holds {error.what}. {remedy}"
    )


def _allowed_values(spec: SetSpec) -> str:
    return "texts" if spec.tokenizer is not None else "lists of tokens"


def set_chunk(
    sets: EncodedSets,
    universe: int,
    missing: np.ndarray | None,
    ids: Ids,
    example: Frame,
    kept: Frame | None = None,
    position: np.ndarray | None = None,
) -> SetChunk:
    """Make a chunk of rows whose tokens are ranks.

    `position`: position of each row in the table, ascending.
    """
    xp = frames_for(example).xp
    made = collapse(sets, universe, missing)
    block = made["block"]
    index = {
        "offsets": xp.asarray(block["offsets"]),
        "tokens": xp.asarray(block["tokens"]),
        "weights": xp.asarray(block["weights"]),
        "universe": universe,
        "order": xp.asarray(made["order"]),
        "firsts": xp.asarray(made["firsts"]),
    }
    chunk = named_rows(index, ids, example, {} if kept is None else {"kept": kept})
    if position is not None:
        chunk["position"] = xp.asarray(position)
    return cast(SetChunk, chunk)


class SetParcel(TypedDict):
    """The rows that one partition sends to one block, in the order of the partition."""

    sets: EncodedSets
    missing: np.ndarray | None
    position: np.ndarray
    """(rows,), int64: position of each row in the whole table."""
    ids: Ids
    kept: NotRequired[Frame]


def read_partition(
    frame: Frame,
    planned: tuple[int, int],
    spec: Any,
    read_rows: Callable[..., ReadSetRows] = read_sets,
) -> ReadSetRows:
    """Read a partition. Raise an error if its number of rows has changed since
    planning.

    `planned`: number of the partition, and the number of rows that it had when the join
    was planned.
    """
    number, rows = planned
    check_source(number, len(frame), rows)
    return read_rows(frame, spec, number)


def send(
    read: ReadSetRows, rank: np.ndarray, first: int, blocks: SizeBlocks
) -> list[SetParcel | None]:
    """Replace the tokens of a partition by their ranks, and split its rows by block.
    `rank`: the rank of each token.
    """
    numbered: Any = {**read, "sets": ranked(read["sets"], rank)}
    return parcels_of(numbered, first, blocks)


def parcels_of(
    read: ReadSetRows, first: int, blocks: SizeBlocks
) -> list[SetParcel | None]:
    """Split the rows of a partition by block. Return one parcel per block; None for a
    block that gets no rows.

    Tokens must have the same numbers in all partitions. `first`: position of the
    partition's first row in the table.
    """
    block = blocks.block_of(np.diff(read["sets"]["offsets"]), hashes(read["sets"]))
    rows = (np.flatnonzero(block == b) for b in range(len(blocks)))
    return [_parcel(read, some, first) if len(some) else None for some in rows]


def _parcel(read: ReadSetRows, rows: np.ndarray, first: int) -> SetParcel:
    has_all = len(rows) == len(read["ids"])
    sets, missing = read["sets"], read["missing"]
    there = frames_for(read["example"]).xp.asarray(rows)
    parcel = SetParcel(
        sets=sets if has_all else take_sets(sets, rows),
        missing=missing if has_all or missing is None else missing[rows],
        position=rows + first,
        ids=read["ids"] if has_all else read["ids"].take(there),
    )
    if "kept" in read:
        parcel["kept"] = read["kept"] if has_all else read["kept"].iloc[there]
    return parcel


def gather_block(
    universe: int, example: Frame, spec: SetSpec, *parcels: SetParcel | None
) -> SetChunk:
    return gathered(universe, example, functools.partial(read_sets, spec=spec), parcels)


def gathered(
    universe: int,
    example: Frame,
    read: Callable[[Frame], ReadSetRows],
    parcels: Sequence[SetParcel | None],
) -> SetChunk:
    """Concatenate the parcels that a block receives.

    `read`: reads a frame; it is called with an empty one.
    """
    there = [parcel for parcel in parcels if parcel is not None]
    if not there:
        there = [_parcel(read(example), np.zeros(0, np.int64), 0)]
    sizes = [np.diff(parcel["sets"]["offsets"]) for parcel in there]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
    codes = np.concatenate([parcel["sets"]["codes"] for parcel in there])
    missing = None
    if any(parcel["missing"] is not None for parcel in there):
        missing = np.concatenate(
            [
                np.zeros(len(parcel["ids"]), np.bool_)
                if parcel["missing"] is None
                else parcel["missing"]
                for parcel in there
            ]
        )
    kept = None
    if "kept" in there[0]:
        kept = stacked([parcel["kept"] for parcel in there], example)
    return set_chunk(
        EncodedSets(offsets=offsets, codes=codes),
        universe,
        missing,
        joined([parcel["ids"] for parcel in there]),
        example,
        kept,
        np.concatenate([parcel["position"] for parcel in there]),
    )


class SetComparison(NamedTuple):
    """The arguments of one call to a joiner, which compares the sets of two blocks, or
    of one block.
    """

    left: SetBlock
    right: SetBlock | None  # None: compare the sets of `left` with each other
    left_first: int
    right_first: int
    """For each side, the position of its first set in its chunk."""


class SetBlockPair(NamedTuple):
    """Two chunks of sets to compare, with the options of the join."""

    query: SetChunk
    data: SetChunk  # in a self-join both can be the same chunk
    is_self_join: bool  # whether both are the same chunk; then each pair is found once
    spec: SetSpec
    method: str | SetMethod
    part: tuple[int, int] = (0, 1)
    """The share of the work to do: (index of the share, number of shares)."""
    library: str | None = None  # library of the arrays; None: the same as the frames'
    threads: int = 1  # number of threads on the host that share the work

    @property
    def _library(self) -> str:
        return self.spec.library if self.library is None else self.library

    @property
    def joiner(self) -> SetJoiner:
        joiner: SetJoiner = set_joiner_of_library(self._library)
        return joiner

    @property
    def xp(self) -> ArrayModule:
        return frames_of_library(self._library).xp

    @property
    def first(self) -> bool:
        """Whether this is the first share of the work. Only that share finds the pairs
        of rows with equal sets.
        """
        return not self.part[0]

    @property
    def range(self) -> tuple[int, int]:
        """The range of sets in `data` that this share compares. All shares have about
        equal numbers of tokens.
        """
        (number, parts), sets = self.part, len(self.data["weights"])
        if parts == 1:
            return 0, sets
        offsets = self.data["offsets"]
        total = int(offsets[-1])
        wanted = self.xp.asarray(
            [total * number // parts, total * (number + 1) // parts]
        )
        start, stop = self.xp.searchsorted(offsets, wanted).tolist()
        return start, sets if number == parts - 1 else stop

    def comparisons(self, start: int, stop: int) -> Iterator[SetComparison]:
        """Yield the comparisons of the sets `start` to `stop` - 1 of `data` with all
        sets of `query`.

        If both are the same chunk, sets are compared only with earlier sets.
        """
        some = part_of(self.data, start, stop)
        if not self.is_self_join:
            yield SetComparison(
                part_of(self.query, 0, len(self.query["weights"])), some, 0, start
            )
            return
        if start:
            yield SetComparison(part_of(self.data, 0, start), some, 0, start)
        yield SetComparison(some, None, start, start)


def part_of(block: SetBlock, start: int, stop: int) -> SetBlock:
    offsets: Array = block["offsets"][start : stop + 1]
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return SetBlock(
        offsets=offsets - first if first else offsets,
        tokens=block["tokens"][first:last],
        universe=block["universe"],
        weights=block["weights"][start:stop],
    )


def named_sides(spec: Any) -> list[tuple[str | None, Any]]:
    """For each table, return its name in messages, and its options. If there is only
    one table, its name is None.
    """
    if spec.other is None:
        return [(None, spec)]
    return list(zip(spec.tables, (spec, spec.other), strict=True))


def read_each(
    frames: Sequence[Frame],
    spec: Any,
    with_ids: bool,
    read_rows: Callable[[Frame, Any], Read],
) -> list[Read]:
    """Read one or two plain frames by calling `read_rows`. If `with_ids`, raise an
    error for repeated ids. Log how many rows cannot be compared.
    """
    read: list[Read] = []
    others = []
    for (which, own), frame in zip(named_sides(spec), frames, strict=True):
        check_rows(len(frame), 0)
        with in_table(which):
            read.append(read_rows(frame, own))
            if with_ids:
                ids = summarise_ids(read[-1]["ids"], own.id, frame.index)
                check_summaries([ids], own.id)
        missing = read[-1]["missing"]
        rows = 0 if missing is None else int(missing.sum())
        others.append(rows_without_a_value(len(frame), (rows,), own))
    text = None if spec.allow_missing else left_out_in_words(others)
    if text is not None:
        LOG.info("left out %s", text)
    return read


def rows_without_a_value(
    rows: int, partitions: tuple[int, ...], spec: RowSpec
) -> LeftOut:
    """Describe the rows of a table without a set or a text, or without a value in a
    column of ``by=``. `rows`: number of all rows; `partitions`: number of these rows in
    each partition.
    """
    columns = (*spec.on, *getattr(spec, "by", ()))
    reason = LeftOutRows(columns, "missing", sum(partitions))
    return LeftOut(rows, partitions, (reason,))


def chunks_of(read: Sequence[ReadSets]) -> list[SetChunk]:
    """Rank the tokens of all tables together, and convert each table to a chunk."""
    merged = merge(*(one["vocabulary"] for one in read)) if len(read) > 1 else None
    rank = ranks(read[0]["vocabulary"] if merged is None else merged["vocabulary"])
    chunks = []
    for part, one in enumerate(read):
        sets = ranked(
            one["sets"],
            rank if merged is None else ranks_of(rank, merged["codes"], part),
        )
        chunks.append(
            set_chunk(
                sets,
                len(rank),
                one["missing"],
                one["ids"],
                one["example"],
                one.get("kept"),
            )
        )
    return chunks


def memory_check(chunks: Sequence[SetChunk], spec: RowSpec) -> Callable[[int], None]:
    """Return a function that is called with numbers of result rows, by any thread. It
    raises an error if all of them together do not fit in memory.
    """
    sides = chunks[0], chunks[-1]
    kept = sum(
        bytes_of_columns(chunk["kept"], chunk["kept"].columns.tolist())
        for chunk in sides
        if "kept" in chunk
    )
    row_bytes = (
        sum(id_bytes(chunk["ids"]) for chunk in sides)
        + kept
        + 8 * (spec.score is not None)
    )
    device = frames_of_library(spec.library).memory()
    return running_total(room_now(row_bytes, Cause.of(spec, len(chunks) > 1), device))


def running_total(report: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function for several threads that adds up the numbers it is called with,
    and calls `report` with their sum so far.
    """
    total, adding = 0, threading.Lock()

    def add(number: int) -> None:
        nonlocal total
        with adding:
            total += number
            report(total)

    return add
