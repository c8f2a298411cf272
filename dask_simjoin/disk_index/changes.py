"""Pairs added and removed between two versions, and the estimated work to find them.

The row groups that rows go from are compared with those rows: read for each of both, they are read twice.

Some of the row groups within reach are read and joined with the new rows, and as many of all row groups with
themselves.  So the numbers of pairs are those of a sample, and the seconds those of this machine.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

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
from dask_simjoin.disk_index.files import parquet
from dask_simjoin.disk_index.graph import example_of_rows, lazy_pairs, pairs_of_partition, spec_of, spec_with
from dask_simjoin.disk_index.pair_files import stored_pairs
from dask_simjoin.disk_index.reports import ChangeReport, UpdatePlan
from dask_simjoin.disk_index.row_batch import (
    Loaded,
    Replaced,
    joined_rows,
    load,
    load_both,
    moved,
    put_replaced,
    replaced_of,
    some,
)
from dask_simjoin.disk_index.segments import NOTHING, Held, SegmentsBeside, loaded
from dask_simjoin.disk_index.types import Delta, Snapshot
from dask_simjoin.engine.base import frames_for
from dask_simjoin.graph.dask_private import Task
from dask_simjoin.graph.examples import pairs_example
from dask_simjoin.graph.source import gather
from dask_simjoin.graph.workers import on_worker
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.spec import JoinSpec


def read_gone(gone: Snapshot, rest: Snapshot, spec: JoinSpec, size: Sizes, ordered: bool, marked: bool,
              held: Held) -> tuple[BlockSide, list[SegmentsBeside]]:  # fmt: skip
    """Read rows that went, and those beside them, if they are few and none of them is in memory."""
    few = int(gone.groups.rows.sum()) * row_bytes(spec) <= size.held
    both = _in_both(gone, rest) if few and not held.slabs.keys() & set(gone.files) else None
    if both is None or not len(both):
        return read_side(gone, spec, size, ordered, marked, held), []
    parts = [both[part] for part in even_parts(rest.groups.rows[both[:, 1]], size)]
    graph: dict[Any, Any] = {}
    name = f"simjoin_beside-{uuid.uuid4().hex}"
    for n, part in enumerate(parts):
        key, two = (name, n), (rest.part(part[:, 1]), gone.part(part[:, 0]))
        graph[key] = Task(key, on_worker, load_both, *two, spec)
    found: list[tuple[Loaded, Loaded]] = gather(graph, list(graph))
    beside = [SegmentsBeside(stayed, part[:, 1]) for (stayed, _), part in zip(found, parts, strict=True)]
    read = moved(
        joined_rows([went for _, went in found]), boxes_of(rest).dims.tolist(), spec, ordered, marked
    )
    if not len(read["seq"]):
        return BlockSide([], [], [], 0), beside
    return BlockSide([read], [read["tiles"]], [read["seq"]], len(read["seq"])), beside


def _in_both(gone: Snapshot, rest: Snapshot) -> np.ndarray | None:
    """Number the row groups (n, 2) that rows went from, here and among those that stayed, in whose order.

    None: some were written anew.
    """
    places = zip(rest.groups.file.tolist(), rest.groups.group.tolist(), strict=True)
    known = {(rest.files[file], group): number for number, (file, group) in enumerate(places)}
    found = [
        known.get((gone.files[file], group), -1)
        for file, group in zip(gone.groups.file.tolist(), gone.groups.group.tolist(), strict=True)
    ]
    if -1 in found:
        return None
    order = np.argsort(found, kind="stable")
    return np.stack([order, np.asarray(found, np.int64)[order]], axis=1)


@dataclass(frozen=True, eq=False)
class PairChanges:
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


def _replaced(own: BlockSide, other: BlockSide, spec: JoinSpec) -> Replaced | None:
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


SAMPLED = 8
"""Row groups that are read, of those within reach and of all."""

MOST_ROWS = 1 << 14
"""New rows that are joined with each other."""


def expect(x: np.ndarray, rows: Snapshot, spec: JoinSpec) -> UpdatePlan:
    """Plan an update with new rows of these coordinates (n, columns), as given, on the host."""
    example, boxes = example_of_rows(rows), boxes_of(rows)
    xp, n = frames_for(example).xp, len(x)
    how = Comparison(spec, tuple(boxes.dims.tolist()), pairs_example(example, example, spec))
    columns = ["left", "right"]
    points = spec.measure.embed(xp.asfortranarray(xp.asarray(x, np.float64)), xp)
    if not n:  # no list tells how many columns there are
        points = xp.zeros((0, spec.dims or 1))
    number = xp.arange(n)
    own = Loaded(x=points, seq=number + (1 << 62), ids=frames_for(example).index(number), example=example)
    if spec.keep:
        own["kept"] = example[list(spec.keep)].reindex(range(n))
    own = moved(own, how.cut, spec, ordered=True)
    near = near_tiles(own["tiles"], boxes, spec.norm, spec.threshold)
    chosen = np.flatnonzero(touched(own["tiles"], near, boxes, spec.norm, spec.threshold))
    size = rows.groups.rows

    def with_new(group: int) -> int:
        return len(pairs_with_part(how, own, rows.part([group]), None, columns))

    def with_itself(group: int) -> int:
        return len(pairs_within(how, load(rows.part([group]), spec), None, columns))

    def among_new(_: int) -> int:
        return len(pairs_within(how, few, None, columns))

    few = some(own, xp.asarray(np.sort(np.random.default_rng(0).permutation(n)[:MOST_ROWS])))
    old, seconds = _scaled(with_new, chosen, size)
    _, anew = _scaled(with_itself, np.arange(len(size)), size)
    new, own_seconds = _scaled(among_new, np.zeros(1, np.int64), np.array([len(few["seq"])]))
    part = n / max(1, len(few["seq"]))
    return UpdatePlan(
        n, len(chosen), len(size), int(size[chosen].sum()), bytes_of(rows, chosen), old + new * part * part,
        seconds + own_seconds * part, anew,
    )  # fmt: skip


def _scaled(find: Callable[[int], int], groups: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
    """Tell pairs and seconds of some groups from those of a few of them, the first of which warms up."""
    if not len(groups):
        return 0.0, 0.0
    few = groups[np.linspace(0, len(groups) - 1, min(SAMPLED, len(groups))).astype(np.int64)]
    find(int(few[0]))
    began = time.perf_counter()
    pairs = sum(find(group) for group in few.tolist())
    took = time.perf_counter() - began
    scale = float(rows[groups].sum()) / max(1.0, float(rows[few].sum()))
    return pairs * scale, took * scale


def changes(delta: Delta, distance: bool, held: Held = NOTHING) -> PairChanges:
    """Tell what changed between two versions: `added`, `removed`, `report`; `held`: what is in memory."""
    return PairChanges(delta, distance, held=held)


def changed_pairs(delta: Delta, distance: bool) -> tuple[Frame, Frame]:
    """Make lazy frames of the pairs that came and of those that went between two versions."""
    found = changes(delta, distance)
    return found.added, found.removed


def pairs_with(frame: Frame, rows: Snapshot, eps: float, distance: bool) -> Frame:
    """Make a lazy frame of the pairs of a lazy frame's rows, which are left, with those of an index."""
    spec = spec_with(frame, rows, eps, distance)
    example = pairs_example(frame._meta, example_of_rows(rows), spec)
    return frame.map_partitions(pairs_of_partition, rows, spec, example, sizes(rows, spec), meta=example)


def plan_of(x: np.ndarray, rows: Snapshot) -> UpdatePlan:
    """Tell what an update with new rows would do, of which `x` (n, columns) are the coordinates as given."""
    return expect(x, rows, spec_of(rows, None, False))
