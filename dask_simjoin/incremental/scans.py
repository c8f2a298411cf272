"""How many rows are read for new ones, as row groups lie, and as they would if they were put in order anew.

Both are told from the boxes of row groups alone: points drawn in the boxes, as many as there are rows, stand
for rows, and such points in kd order for row groups that were just written.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order
from dask_simjoin.incremental.blocks import boxes_of
from dask_simjoin.incremental.reach import Boxes, near_tiles, tiled, touched
from dask_simjoin.incremental.types import Groups, Options, Snapshot

POINTS = 4096
"""Points that stand for rows that are looked for."""

OPENED = 4096
"""Rows that are read in the time in which a file is opened, as measured."""

PER_GROUP, MOST = 32, 1 << 16
"""Points that stand for the rows of a row group, and for all rows, at most."""

FAN_OUT = 4


def drawn(groups: Groups, options: Options, number: int, seed: int = 0) -> np.ndarray:
    """Draw points (number, d) in the boxes of row groups, as many in each as it has rows.

    Of dimensions that boxes do not tell of they are 0.
    """
    random = np.random.default_rng(seed)
    rows = groups.rows / max(1, groups.rows.sum())
    of = np.searchsorted(np.cumsum(rows), random.uniform(size=number) * rows.sum(), side="right")
    of = np.minimum(of, len(rows) - 1)
    x = np.zeros((number, options.dims))
    low, high = groups.low[of], groups.high[of]
    share = random.uniform(size=low.shape)
    x[:, list(options.cut)] = (1 - share) * low + share * high  # of which no part is too large
    return x


def fresh(rows: Snapshot) -> tuple[Boxes, np.ndarray]:
    """Guess the boxes of row groups, and their rows (groups,), if all rows were put in order anew."""
    every, size = int(rows.groups.rows.sum()), rows.options.group
    number = max(1, min(MOST, PER_GROUP * -(-every // size)))
    x = drawn(rows.groups, rows.options, number, seed=1)[:, boxes_of(rows).dims]
    each = every / number
    points = max(1, 1 << round(np.log2(max(1.0, min(size, every) / each))))
    with np.errstate(over="ignore", invalid="ignore"):
        cuts = dims_to_cut(np.nan_to_num(x.var(axis=0)), x)
    order = kd_order(x, cuts, points, FAN_OUT)
    starts = np.arange(0, number, points)
    low, high = np.minimum.reduceat(x[order], starts), np.maximum.reduceat(x[order], starts)
    return Boxes(boxes_of(rows).dims, low, high), np.diff([*starts, number]) * each


def reached(x: np.ndarray, boxes: Boxes, options: Options) -> np.ndarray:
    """Tell which row groups are within reach of any of some rows (n, d): (groups,), bool."""
    measure = options.spec("pandas").measure
    tiles, threshold = tiled(x, boxes.dims), measure.threshold(options.eps)
    near = near_tiles(tiles, boxes, measure.norm, threshold)
    return touched(tiles, near, boxes, measure.norm, threshold)


def scanned(x: np.ndarray, boxes: Boxes, rows: np.ndarray, options: Options) -> float:
    """Count the rows of the row groups within reach of a row, on average over rows (n, d)."""
    measure, total = options.spec("pandas").measure, 0.0
    sides = x[:, boxes.dims]
    points = tiled(x[:0], boxes.dims)._replace(x=sides, size=1, lower=sides, upper=sides)
    near = near_tiles(points, boxes, measure.norm, measure.threshold(options.eps))
    total = float((near @ rows).sum())
    return total / max(1, len(x))


def excess(rows: Snapshot, new: Groups) -> float:
    """Count the rows that are read for some new ones besides those that would be, were all in order.

    `new`: the row groups that they were written as.  A file that is opened counts as some rows.
    """
    number = int(new.rows.sum())
    if not len(rows.groups) or not number:
        return 0.0
    x, options = drawn(new, rows.options, min(number, POINTS)), rows.options
    now = reached(x, boxes_of(rows), options)
    boxes, sizes = fresh(rows)
    more = rows.groups.rows[now].sum() - sizes[reached(x, boxes, options)].sum()
    files = len(np.unique(rows.groups.file[now])) - 1
    return max(0.0, float(more) + OPENED * files)
