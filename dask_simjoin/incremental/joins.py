"""The pairs of rows of an index, of what changed in it, and of a frame with it: what its verbs ask for."""

from __future__ import annotations

import numpy as np

from dask_simjoin.expressions.examples import pairs_example
from dask_simjoin.incremental.blocks import sizes
from dask_simjoin.incremental.changes import Changes
from dask_simjoin.incremental.expected import expect
from dask_simjoin.incremental.foreign import pairs_of_partition, spec_with
from dask_simjoin.incremental.lazy import example_of_rows, spec_of
from dask_simjoin.incremental.parts import NOTHING, Held
from dask_simjoin.incremental.report import UpdatePlan
from dask_simjoin.incremental.types import Delta, Snapshot
from dask_simjoin.metrics.types import Frame


def changes(delta: Delta, distance: bool, held: Held = NOTHING) -> Changes:
    """Tell what changed between two versions: `added`, `removed`, `report`; `held`: what is in memory."""
    return Changes(delta, distance, held=held)


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
