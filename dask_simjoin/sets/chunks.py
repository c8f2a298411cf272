"""Chunks of sets: read from partitions, put together as blocks, and compared in pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.engine.base import frames_for, frames_of_library, set_joiner_of_library
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.errors import ListError, TokenError
from dask_simjoin.metrics.norms import Array, ArrayModule, Frame, Ids
from dask_simjoin.request.messages import shown
from dask_simjoin.sets.columns import occurrences, presence
from dask_simjoin.sets.encode import CodedSets, collapse, each_once
from dask_simjoin.sets.methods import SetJoiner, SetMethod
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.sets.types import SetBlock, Vocabulary, same_numbers
from dask_simjoin.tasks.chunks import Chunk, named_rows
from dask_simjoin.tasks.counts import hash_columns, mixed_bits


class SetChunk(Chunk, SetBlock):
    """Hold the rows of a chunk, and its distinct sets: a plain dict of arrays and frames, so that it spills.

    Its index is the block of its sets; in its order rows are as sets are, then those whose sets are empty,
    and those that have none.
    """

    firsts: Array
    """Where the rows of each set begin in that order, of empty sets, without one, and the end (n + 3,)."""


class ReadSetRows(TypedDict):
    """Hold the rows of a partition, in their order."""

    sets: CodedSets
    missing: np.ndarray | None
    """Which rows have no set (rows,), bool; None: each has one."""
    ids: Ids
    example: Frame
    kept: NotRequired[Frame]


class ReadSets(ReadSetRows):
    """Hold what was read of a partition's rows."""

    vocabulary: Vocabulary


def checked_presence(frame: Frame, spec: SetSpec, number: int | None) -> np.ndarray:
    """Tell which rows have a set (rows,), bool; refuses rows that hold something else."""
    try:
        return presence(frame[spec.on[0]], spec.tokenizer)
    except ListError as error:
        raise TokenError(_refused(frame, spec, number, error)) from None


def read_sets(frame: Frame, spec: SetSpec, number: int | None = None, named: bool = True) -> ReadSets:
    """Read the sets and the names of rows; `number`: the partition's, for messages, if there are some.

    `named`: false: names are not needed, and may not be there.
    """
    name = spec.on[0]
    try:
        present, found = occurrences(frame[name], spec.tokenizer)
    except ListError as error:
        raise TokenError(_refused(frame, spec, number, error)) from None
    sets, vocabulary = each_once(found)
    missing = None
    if not present.all():
        missing = ~present
        sizes = np.zeros(len(present), np.int64)
        sizes[present] = np.diff(sets["offsets"])
        sets = CodedSets(offsets=np.concatenate([[0], np.cumsum(sizes)]), codes=sets["codes"])
    ids = row_ids(frame, spec.id, spec.id_dtype) if named else frame.index
    read = ReadSets(sets=sets, vocabulary=vocabulary, missing=missing, ids=ids, example=frame.iloc[:0].copy())
    if spec.keep and named:
        read["kept"] = frame[list(spec.keep)]
    return read


def hash_rows(frame: Frame, spec: SetSpec) -> Array:
    """Hash rows by their sets, and by what is kept (rows,), uint64: for `dask_simjoin.tasks.counts`."""
    read = read_sets(frame, spec, named=False)
    offsets, codes = read["sets"]["offsets"], read["sets"]["codes"]
    alike = same_numbers(read["vocabulary"]["tokens"]).view(np.uint64)
    mixed = mixed_bits(np.zeros(len(alike), np.uint64), alike)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed[codes], dtype=np.uint64)])
    found = sums[offsets[1:]] - sums[offsets[:-1]]
    if read["missing"] is not None:
        found[read["missing"]] = 1
    hashed = frames_for(frame).xp.asarray(found)
    return mixed_bits(hashed, hash_columns(frame, (spec.keep,))) if spec.keep else hashed


def _refused(frame: Frame, spec: SetSpec, number: int | None, error: ListError) -> str:
    label = frame.index[error.row] if spec.id not in frame.columns else frame[spec.id].iloc[error.row]
    where = "" if number is None else f" of partition {number}"
    plain = label.item() if isinstance(label, np.generic) else label
    what = "texts" if spec.tokenizer is not None else "lists of tokens"
    return (
        f"Column {spec.on[0]!r} must hold {what}: row {error.row}{where} (label {shown(plain)}) holds "
        f"{error.what}. Leave such rows out first, or convert them."
    )


def set_chunk(sets: CodedSets, universe: int, missing: np.ndarray | None, ids: Ids, example: Frame,
              kept: Frame | None = None, position: np.ndarray | None = None) -> SetChunk:  # fmt: skip
    """Make a chunk of rows whose tokens are ranks; `position`: their numbers in the frame, ascending."""
    xp = frames_for(example).xp
    made = collapse(sets, universe, missing)
    block = made["block"]
    index = {
        "offsets": xp.asarray(block["offsets"]), "tokens": xp.asarray(block["tokens"]),
        "weights": xp.asarray(block["weights"]), "universe": universe,
        "order": xp.asarray(made["order"]), "firsts": xp.asarray(made["firsts"]),
    }  # fmt: skip
    chunk = named_rows(index, ids, example, {} if kept is None else {"kept": kept})
    if position is not None:
        chunk["position"] = xp.asarray(position)
    return cast(SetChunk, chunk)


class SetComparison(NamedTuple):
    """Say which sets are compared: some of the first chunk's with some of the second's, or with each other.

    Attributes
    ----------
    left, right : SetBlock
        `right` None: each pair within `left` once.
    left_first, right_first : int
        The positions of their first sets in the chunks.
    """

    left: SetBlock
    right: SetBlock | None
    left_first: int
    right_first: int


class SetBlockPair(NamedTuple):
    """Say which two chunks are compared, and by what.

    Attributes
    ----------
    q, d : SetChunk
        The first and the second chunk, or twice the same.
    same : bool
        Whether they are one chunk, in which each pair is found once.
    spec : SetSpec
    method : str or SetMethod
    part : tuple of int
        Which part of the work this is, and of how many.
    library : str or None
        Whose arrays these are, if it is another than the frames'.
    """

    q: SetChunk
    d: SetChunk
    same: bool
    spec: SetSpec
    method: str | SetMethod
    part: tuple[int, int] = (0, 1)
    library: str | None = None

    @property
    def _library(self) -> str:
        return self.spec.library if self.library is None else self.library

    @property
    def joiner(self) -> SetJoiner:
        """Choose what joins blocks of this library."""
        joiner: SetJoiner = set_joiner_of_library(self._library)
        return joiner

    @property
    def xp(self) -> ArrayModule:
        """Tell the module of the chunks' arrays."""
        return frames_of_library(self._library).xp

    @property
    def first(self) -> bool:
        """Tell whether this is the first part of the work: what is done once is done with it."""
        return not self.part[0]

    @property
    def range(self) -> tuple[int, int]:
        """Tell which sets of the second chunk are this part of the work, by their tokens."""
        (number, parts), sets = self.part, len(self.d["weights"])
        if parts == 1:
            return 0, sets
        offsets = self.d["offsets"]
        total = int(offsets[-1])
        wanted = self.xp.asarray([total * number // parts, total * (number + 1) // parts])
        start, stop = self.xp.searchsorted(offsets, wanted).tolist()
        return start, sets if number == parts - 1 else stop

    def comparisons(self, start: int, stop: int) -> Iterator[SetComparison]:
        """Go through what sets start ... stop-1 of the second chunk are compared with."""
        some = part_of(self.d, start, stop)
        if not self.same:
            yield SetComparison(part_of(self.q, 0, len(self.q["weights"])), some, 0, start)
            return
        if start:
            yield SetComparison(part_of(self.d, 0, start), some, 0, start)
        yield SetComparison(some, None, start, start)


def part_of(block: SetBlock, start: int, stop: int) -> SetBlock:
    """Take sets start ... stop-1 of a block."""
    offsets: Array = block["offsets"][start : stop + 1]
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return SetBlock(
        offsets=offsets - first if first else offsets,
        tokens=block["tokens"][first:last],
        universe=block["universe"],
        weights=block["weights"][start:stop],
    )
