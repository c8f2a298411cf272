"""The pairs that came and those that went between two versions of an index, and what finding them takes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from dask_simjoin.incremental.blocks import Blocks, Side, blocks_of, read_side, sizes
from dask_simjoin.incremental.files import parquet
from dask_simjoin.incremental.lazy import lazy_pairs, spec_of
from dask_simjoin.incremental.pair_frames import stored_pairs
from dask_simjoin.incremental.parts import NOTHING, Held, loaded
from dask_simjoin.incremental.read_once import read_gone
from dask_simjoin.incremental.replaced import Replaced, put_replaced, replaced_of
from dask_simjoin.incremental.report import ChangeReport
from dask_simjoin.incremental.types import Delta, Snapshot
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.spec import JoinSpec


@dataclass(frozen=True, eq=False)
class Changes:
    """What changed; what is compared is decided when it is first asked for.

    Rows that came, I, and that went, D, are compared with each other and with those that stayed, S: I x I
    and I x S, D x D and D x S, never S x S.
    """

    delta: Delta
    distance: bool
    numbered: bool = False
    """Whether rows are named by their numbers, and nothing of them is kept."""
    held: Held = NOTHING
    """What of the index is in memory."""

    @functools.cached_property
    def blocks(self) -> tuple[Blocks, Blocks]:
        """What is compared for the pairs that came, and for those that went."""
        delta = self.delta
        spec = spec_of(delta.same, None, self.distance, self.numbered)
        size = sizes(delta.same, spec)
        snapshots = delta.inserted, delta.deleted
        rest = delta.same
        ordered = bool(len(rest.groups))
        marked = any(rest.files[one] not in self.held.slabs for one in np.unique(rest.groups.file).tolist())
        came = read_side(delta.inserted, spec, size, ordered, marked, self.held)
        went, beside = read_gone(delta.deleted, rest, spec, size, ordered, marked, self.held)
        before, after = _replaced(came, went, spec), _replaced(went, came, spec)
        return (
            blocks_of(came, snapshots[0], delta.same, spec, size, before, self.held),
            blocks_of(went, snapshots[1], delta.same, spec, size, after, self.held, beside),
        )

    @functools.cached_property
    def added(self) -> Frame:
        """A lazy frame of the pairs that came."""
        if self.delta.pairs is not None:
            rows = self.delta.same
            return stored_pairs(self.delta.pairs, rows, spec_of(rows, None, self.distance, self.numbered))
        return lazy_pairs(self.blocks[0], self.delta.same)

    @functools.cached_property
    def removed(self) -> Frame:
        """A lazy frame of the pairs that went."""
        return lazy_pairs(self.blocks[1], self.delta.same)

    @functools.cached_property
    def report(self) -> ChangeReport:
        """What finding them takes."""
        came, went = self.blocks
        rows = self.delta.same
        sides = (came, went) if self.delta.pairs is None else (went,)  # pairs that are stored are there
        none = np.zeros(0, np.int64)
        near = np.unique(np.concatenate([none, *(side.touched for side in sides)]))
        read = np.unique(np.concatenate([none, *(side.read for side in sides)]))
        return ChangeReport(
            came.moved_rows, went.moved_rows, len(read), len(near) - len(read), len(rows.groups),
            int(rows.groups.rows[read].sum()), sum(bytes_of(rows, side.read) for side in sides),
            sum(map(len, sides)),
        )  # fmt: skip


def _replaced(own: Side, other: Side, spec: JoinSpec) -> Replaced | None:
    """Find what replaced rows of one side are on the other."""
    if not own.seqs or not other.seqs:
        return None
    return put_replaced([replaced_of(own.seqs, loaded(part, spec)) for part in other.parts])


def bytes_of(rows: Snapshot, groups: np.ndarray) -> int:
    """Count the bytes of some row groups in their files."""
    total, chosen = 0, rows.groups[groups]
    for file in np.unique(chosen.file).tolist():
        with parquet(rows.root / "rows" / rows.files[file]) as whole:
            about = whole.metadata
        for group in chosen.group[chosen.file == file].tolist():
            told = about.row_group(group)
            total += sum(told.column(k).total_compressed_size for k in range(told.num_columns))
    return total
