"""Find the pairs that were added or removed between two versions, and estimate the work
of an update.

A row group may have both deleted and unchanged rows, which are compared with each
other. If there are only few such row groups, each of them is read only once.

The estimate joins a sample of row groups with the new rows, and another sample with
themselves. It counts the pairs and the seconds on this machine, and extrapolates them
to all row groups.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dask_simjoin.calls.examples import pairs_example
from dask_simjoin.disk_index.blocks import (
    Blocks,
    BlockSide,
    Sizes,
    blocks_of,
    boxes_of,
    even_parts,
    read_side,
    row_bytes,
    sizes,
)
from dask_simjoin.disk_index.cell_filter import near_tiles, touched
from dask_simjoin.disk_index.compare import Comparison, pairs_with_part, pairs_within
from dask_simjoin.disk_index.files import call_on_workers, parquet
from dask_simjoin.disk_index.graph import (
    example_of_rows,
    lazy_pairs,
    pairs_of_partition,
    spec_of,
    spec_with,
)
from dask_simjoin.disk_index.pair_files import stored_pairs
from dask_simjoin.disk_index.reports import ChangeReport, UpdatePlan
from dask_simjoin.disk_index.row_batch import (
    ReplacedRows,
    RowBatch,
    changed,
    concat_replaced,
    joined_rows,
    load,
    load_both,
    replaced_of,
    some,
)
from dask_simjoin.disk_index.segments import (
    NO_CACHED_ROWS,
    CachedRows,
    UnchangedRows,
    loaded,
)
from dask_simjoin.disk_index.types import Delta, Snapshot
from dask_simjoin.engine.base import frames_for
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.options import MAX_WHOLE
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import FEW, MIN_PART


def read_gone(
    gone: Snapshot,
    rest: Snapshot,
    spec: JoinSpec,
    size: Sizes,
    ordered: bool,
    marked: bool,
    cached: CachedRows,
) -> tuple[BlockSide, list[UnchangedRows]]:
    """Read deleted rows.

    If they are few and not cached, also read the unchanged rows in the same row groups.
    """
    few = int(gone.groups.rows.sum()) * row_bytes(spec) <= size.hold_bytes
    both = (
        _in_both(gone, rest)
        if few and not cached.segments.keys() & set(gone.files)
        else None
    )
    if both is None or not len(both):
        return read_side(gone, spec, size, ordered, marked, cached), []
    parts = [both[part] for part in even_parts(rest.groups.rows[both[:, 1]], size)]
    two = [(rest.part(part[:, 1]), gone.part(part[:, 0]), spec) for part in parts]
    found: list[tuple[RowBatch, RowBatch]] = call_on_workers(
        "simjoin_beside", load_both, two
    )
    unchanged = [
        UnchangedRows(stayed, part[:, 1])
        for (stayed, _), part in zip(found, parts, strict=True)
    ]
    deleted = joined_rows([went for _, went in found])
    read = changed(deleted, boxes_of(rest).dims.tolist(), spec, ordered, marked)
    if not len(read["seq"]):
        return BlockSide([], [], [], 0), unchanged
    return BlockSide(
        [read], [read["tiles"]], [read["seq"]], len(read["seq"])
    ), unchanged


def _in_both(gone: Snapshot, rest: Snapshot) -> np.ndarray | None:
    """Match each row group in `gone` with the same row group in `rest`.

    Return pairs of indexes (n, 2) in `gone.groups` and `rest.groups`, sorted by the
    second. Return None if `rest` lacks some row groups, because they have been
    rewritten.
    """
    places = zip(rest.groups.file.tolist(), rest.groups.group.tolist(), strict=True)
    known = {
        (rest.files[file], group): number for number, (file, group) in enumerate(places)
    }
    found = [
        known.get((gone.files[file], group), -1)
        for file, group in zip(
            gone.groups.file.tolist(), gone.groups.group.tolist(), strict=True
        )
    ]
    if -1 in found:
        return None
    order = np.argsort(found, kind="stable")
    return np.stack([order, np.asarray(found, np.int64)[order]], axis=1)


@dataclass(frozen=True, eq=False)
class PairChanges:
    """The pairs that were added and removed between two versions. The blocks to compare
    are chosen on first use.

    Added rows are compared with each other and with the rows in both versions. So are
    deleted rows. Rows in both versions are not compared with each other, because their
    pairs did not change.
    """

    delta: Delta
    distance: bool
    # whether pairs have row numbers instead of ids, and then no kept columns
    numbered: bool = False
    cached: CachedRows = NO_CACHED_ROWS  # rows of the index that are in memory

    @functools.cached_property
    def blocks(self) -> tuple[Blocks, Blocks]:
        """The blocks to compare: for the added pairs, and for the removed pairs."""
        delta, rest = self.delta, self.delta.unchanged
        spec = spec_of(rest, None, self.distance, self.numbered)
        size = sizes(rest, spec)
        ordered = bool(len(rest.groups))
        marked = any(
            rest.files[one] not in self.cached.segments
            for one in np.unique(rest.groups.file).tolist()
        )
        came = read_side(delta.inserted, spec, size, ordered, marked, self.cached)
        went, unchanged = read_gone(
            delta.deleted, rest, spec, size, ordered, marked, self.cached
        )
        before, after = _replaced(came, went, spec), _replaced(went, came, spec)
        return (
            blocks_of(came, delta.inserted, rest, spec, size, before, self.cached),
            blocks_of(
                went, delta.deleted, rest, spec, size, after, self.cached, unchanged
            ),
        )

    @functools.cached_property
    def added(self) -> Frame:
        if self.delta.pairs is not None:
            rows = self.delta.unchanged
            return stored_pairs(
                self.delta.pairs,
                rows,
                spec_of(rows, None, self.distance, self.numbered),
            )
        return lazy_pairs(self.blocks[0], self.delta.unchanged)

    @functools.cached_property
    def removed(self) -> Frame:
        return lazy_pairs(self.blocks[1], self.delta.unchanged)

    @functools.cached_property
    def report(self) -> ChangeReport:
        """How much work it takes to find the changed pairs."""
        came, went = self.blocks
        rows = self.delta.unchanged
        # stored pairs need no comparison of added rows
        sides = (came, went) if self.delta.pairs is None else (went,)
        none = np.zeros(0, np.int64)
        near = np.unique(np.concatenate([none, *(side.touched for side in sides)]))
        read = np.unique(np.concatenate([none, *(side.read for side in sides)]))
        return ChangeReport(
            came.changed_rows,
            went.changed_rows,
            len(read),
            len(near) - len(read),
            len(rows.groups),
            int(rows.groups.rows[read].sum()),
            sum(bytes_of(rows, side.read) for side in sides),
            sum(map(len, sides)),
        )


def _replaced(own: BlockSide, other: BlockSide, spec: JoinSpec) -> ReplacedRows | None:
    """Return the rows of `other` whose row numbers are also in `own`; None if there are
    no such rows.
    """
    if not own.seqs or not other.seqs:
        return None
    return concat_replaced(
        [replaced_of(own.seqs, loaded(part, spec)) for part in other.parts]
    )


def bytes_of(rows: Snapshot, groups: np.ndarray) -> int:
    """Return how many compressed bytes some row groups take in their files."""
    total, chosen = 0, rows.groups[groups]
    for file in np.unique(chosen.file).tolist():
        with parquet(rows.root / "rows" / rows.files[file]) as whole:
            about = whole.metadata
        for group in chosen.group[chosen.file == file].tolist():
            row_group = about.row_group(group)
            total += sum(
                row_group.column(k).total_compressed_size
                for k in range(row_group.num_columns)
            )
    return total


def plan_of(x: np.ndarray, rows: Snapshot) -> UpdatePlan:
    """Estimate an update that adds rows. `x` (n, columns): their coordinates as the
    user gave them, on the host.
    """
    spec = spec_of(rows, None, False)
    example, boxes = example_of_rows(rows), boxes_of(rows)
    xp, n = frames_for(example).xp, len(x)
    how = Comparison(
        spec, tuple(boxes.dims.tolist()), pairs_example(example, example, spec)
    )
    columns = ["left", "right"]
    points = spec.measure.embed(xp.asfortranarray(xp.asarray(x, np.float64)), xp)
    if not n:  # without rows, the array does not show how long lists are
        points = xp.zeros((0, spec.coordinates.dims or 1))
    number = xp.arange(n)
    own = RowBatch(
        x=points,
        seq=number + MAX_WHOLE,
        ids=frames_for(example).index(number),
        example=example,
    )
    if spec.keep:
        own["kept"] = example[list(spec.keep)].reindex(range(n))
    own = changed(own, how.cut, spec, ordered=True)
    near = near_tiles(own["tiles"], boxes, spec.norm, spec.threshold)
    chosen = np.flatnonzero(
        touched(own["tiles"], near, boxes, spec.norm, spec.threshold)
    )
    size = rows.groups.rows

    def with_new(group: int) -> int:
        return len(pairs_with_part(how, own, rows.part([group]), None, columns))

    def with_itself(group: int) -> int:
        return len(pairs_within(how, load(rows.part([group]), spec), None, columns))

    def among_new(_: int) -> int:
        return len(pairs_within(how, few, None, columns))

    few = some(
        own, xp.asarray(np.sort(np.random.default_rng(0).permutation(n)[:MIN_PART]))
    )
    old, seconds = _scaled(with_new, chosen, size)
    _, anew = _scaled(with_itself, np.arange(len(size)), size)
    new, own_seconds = _scaled(
        among_new, np.zeros(1, np.int64), np.array([len(few["seq"])])
    )
    part = n / max(1, len(few["seq"]))
    return UpdatePlan(
        n,
        len(chosen),
        len(size),
        int(size[chosen].sum()),
        bytes_of(rows, chosen),
        old + new * part * part,
        seconds + own_seconds * part,
        anew,
    )


def _scaled(
    find: Callable[[int], int], groups: np.ndarray, rows: np.ndarray
) -> tuple[float, float]:
    """Call `find` for a few of the row groups, and extrapolate the pairs and the
    seconds to all of them.

    `find`: takes the number of a row group, and returns its number of pairs. `groups`:
    all row groups. `rows`: number of rows in each row group.
    """
    if not len(groups):
        return 0.0, 0.0
    few = groups[
        np.linspace(0, len(groups) - 1, min(FEW, len(groups))).astype(np.int64)
    ]
    find(int(few[0]))
    began = time.perf_counter()
    pairs = sum(find(group) for group in few.tolist())
    took = time.perf_counter() - began
    scale = float(rows[groups].sum()) / max(1.0, float(rows[few].sum()))
    return pairs * scale, took * scale


def pairs_with(frame: Frame, rows: Snapshot, eps: float, distance: bool) -> Frame:
    """Return a lazy frame of the pairs between rows of a lazy frame (left) and rows of
    an index (right).
    """
    spec = spec_with(frame, rows, eps, distance)
    example = pairs_example(frame._meta, example_of_rows(rows), spec)
    return frame.map_partitions(
        pairs_of_partition, rows, spec, example, sizes(rows, spec), meta=example
    )
