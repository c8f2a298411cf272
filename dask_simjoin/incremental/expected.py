"""What an update would do, told before: from boxes which row groups it reads, from some of them the rest.

Some of the row groups within reach are read and joined with the new rows, and as many of all row groups with
themselves.  So the numbers of pairs are those of a sample, and the seconds those of this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions.examples import pairs_example
from dask_simjoin.incremental.blocks import boxes_of
from dask_simjoin.incremental.changes import bytes_of
from dask_simjoin.incremental.compare import Comparison, pairs_with_part, pairs_within
from dask_simjoin.incremental.lazy import example_of_rows
from dask_simjoin.incremental.loaded import Loaded, load, moved, some
from dask_simjoin.incremental.reach import near_tiles, touched
from dask_simjoin.incremental.report import UpdatePlan
from dask_simjoin.incremental.types import Snapshot
from dask_simjoin.options.spec import JoinSpec

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
