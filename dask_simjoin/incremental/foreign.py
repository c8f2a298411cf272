"""The pairs of a frame with the rows of an index: a task for each of the frame's partitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.incremental.blocks import Sizes, boxes_of
from dask_simjoin.incremental.compare import Comparison, pairs_of_two
from dask_simjoin.incremental.cuts import cut_parts
from dask_simjoin.incremental.loaded import load, moved, rows_of
from dask_simjoin.incremental.reach import near_tiles, touched
from dask_simjoin.incremental.types import Snapshot
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.spec import JoinSpec


def spec_with(frame: Frame, rows: Snapshot, eps: float, distance: bool) -> JoinSpec:
    """Make what a join of a frame like `frame` with an index is asked for."""
    options = rows.options
    right = replace(options.spec(rows.library, eps), return_distance=distance)
    keep = tuple(name for name in options.keep if name in frame.columns)
    called = dict(zip(options.keep, options.names, strict=False))
    other = replace(right, names=options.names[len(options.keep) :])
    names = tuple(called[name] for name in keep)
    return replace(right, id=options.id, keep=keep, names=names, other=other, dropna=options.dropna)


def pairs_of_partition(frame: Frame, rows: Snapshot, spec: JoinSpec, like: Frame, size: Sizes) -> Frame:
    """Find the pairs of a partition with the rows of an index, of which a chunk at a time is read."""
    columns, boxes = list(like.columns), boxes_of(rows)
    own = rows_of(frame, spec, frames_for(frame).xp.zeros(len(frame), np.int64))
    if not len(own["seq"]):
        return like
    cut = boxes.dims.tolist()
    own = moved(own, cut, spec, ordered=True)
    near = near_tiles(own["tiles"], boxes, spec.norm, spec.threshold)
    chosen = np.flatnonzero(touched(own["tiles"], near, boxes, spec.norm, spec.threshold))
    how, most = Comparison(spec, tuple(cut), like), max(1, size.rows // 2)
    parts = (
        pairs_of_two(how, own, load(rows.part(chosen[some]), spec.right), columns)
        for some in cut_parts(rows.groups.rows[chosen], most)
    )
    found = [part for part in parts if len(part)] or [like]
    return found[0] if len(found) == 1 else frames_for(like).stacked(found)
