"""The plan of plain frames: one chunk of each, which meet once, so that there is little to decide.

How chunks are cut, what steps cost and how work is spread is nothing that it asks for: where there are few
pairs that took longer than the join.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dask_simjoin.engine.base import joiner_of_library
from dask_simjoin.metrics.norms import box_gap
from dask_simjoin.planning.budget import Resources, make_budget
from dask_simjoin.planning.checks import check_result
from dask_simjoin.planning.doubts import Doubt
from dask_simjoin.planning.goal import Goal
from dask_simjoin.planning.outputs import directions, rows_found
from dask_simjoin.planning.plan import AnyLayout
from dask_simjoin.planning.statistics.estimate import Estimate, no_estimate
from dask_simjoin.planning.tables import Tables

NO_BLOCKS = np.zeros((0, 2), np.int32)


@dataclass(frozen=True, eq=False)
class WholePlan:
    """What was decided before the chunks are made.

    Attributes
    ----------
    layout : Layout or SearchLayout
        How chunks are indexed.
    dims : int
        Dimensions of the space in which points are joined.
    table_rows : tuple of int
        Points of each table that take part.
    estimate : Estimate
        The pairs, each counted once; of nearest neighbours none.
    pair_bytes : float
        Memory of one row of the result.
    meets : bool
        Whether the chunks meet: both have points, and their boxes are within the distance.
    doubts : tuple of Doubt
        What is likely to be a mistake.
    """

    layout: AnyLayout
    dims: int
    table_rows: tuple[int, ...]
    estimate: Estimate
    pair_bytes: float
    meets: bool
    doubts: tuple[Doubt, ...] = field(default=())

    @property
    def rows(self) -> int:
        """Points that take part."""
        return sum(self.table_rows)

    def rows_found(self, k: int) -> int:
        """Return the most rows of a join with k neighbours: as many, where no distance is too large."""
        return rows_found(self.table_rows, k)


def make_whole_plan(tables: Tables, goal: Goal) -> WholePlan:
    """Plan a join of tables, each of which is one chunk; refuse a result beyond the configured limit."""
    shared = tables.dims, tables.rows
    if goal.k is not None:
        # searches give as many pairs as are asked for: how many are near is of no use
        layout, none = tables.search_layout(), no_estimate(NO_BLOCKS)
        return WholePlan(layout, *shared, none, tables.pair_bytes, all(tables.rows), tables.doubts(None))
    meets = all(tables.rows) and _near(tables)
    found = no_estimate(NO_BLOCKS)
    layout = tables.layout()
    if meets:
        spec, counted = tables.spec, not goal.materialise and not goal.listed
        shown = goal.listed or bool(spec.several) or spec.radius is not None
        joiner = joiner_of_library(spec.library)
        joiner.foresee(layout, shown=shown, counted=counted, connected=goal.connected)
        found = tables.estimate_whole(layout, not goal.materialise, goal.listed)
    # tiles tell of many pairs at once within one distance, and find each within several
    if not tables.spec.several and goal.dense < 2 * found.total / max(1, tables.left.rows):
        layout = tables.layout(dense=True)
    if goal.materialise:
        spec = tables.spec
        own = sum(tables.rows) if spec.include_self else 0
        budget = make_budget(spec.blocksize, spec.settings, Resources())
        check_result(found.total_low * directions(spec) + own, tables.pair_bytes, budget, spec.asked)
    return WholePlan(layout, *shared, found, tables.pair_bytes, meets, tables.doubts(found))


def _near(tables: Tables) -> bool:
    """Whether the boxes of both sides are within the distance."""
    (a, b), spec = (tables.left.every, tables.right.every), tables.spec
    gap = box_gap(spec.norm, a.lower, a.upper, b.lower, b.upper)
    return bool(gap <= spec.threshold)
