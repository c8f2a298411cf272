"""Searches for the nearest rows of plain frames: see `dask_simjoin.tasks.local`."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from dask_simjoin.engine.base import frames_for, frames_of_library, recall_module
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.planning.budget import Cause, check_room
from dask_simjoin.planning.estimate import Recall
from dask_simjoin.planning.outputs import nearest_output, rows_found
from dask_simjoin.planning.plan import Plan
from dask_simjoin.reports.plan import NearestPlanReport
from dask_simjoin.request.requests import LEFT
from dask_simjoin.sizes import ENTRY_BYTES, NUMBER_BYTES
from dask_simjoin.tasks.chunks import read_piece
from dask_simjoin.tasks.local import LocalDriver
from dask_simjoin.tasks.nearest import (
    ANY_TOTAL,
    Neighbors,
    Totals,
    kth_distance,
    mutual_state,
    search_chunk,
)
from dask_simjoin.tasks.neighbor_rows import (
    find_rows,
    has_neighbor,
    nearest_or_missing,
    nearest_rows,
    state_of_all_rows,
    whole_rows,
    whole_rows_on_device,
)
from dask_simjoin.tasks.ties import ties_in, with_ties

MERGE_COPIES = 3
"""Number of copies of the result that are in memory while results are merged."""


class LocalNearest(LocalDriver):
    """Searches for nearest rows. `frames`: the table, and the searched table if it is
    another one.
    """

    @property
    def is_self_join(self) -> bool:
        return len(self.frames) == 1

    def finds_mutual(self, wanted: Neighbors) -> bool:
        """Return whether `nearest` returns only mutual neighbors if it should."""
        return not wanted.ties and frames_for(self.frames[0]).memory() is None

    def nearest(self, wanted: Neighbors, example: Frame) -> Frame:
        spec, (least, most) = self.spec, wanted.totals
        with_alone = wanted.how == LEFT
        output = nearest_output(wanted.k, True, most, least, wanted.ties)
        (queries, *others), plan, _ = self.indexed(output)
        data = others[0] if others else queries
        all_rows = self.all_rows(queries) if with_alone else queries
        if not (len(queries["ids"]) and len(data["ids"])):
            if not with_alone:
                return example
            return nearest_or_missing(all_rows, None, spec, example)
        device = frames_for(example).memory()
        check_neighbors(plan, wanted, device, spec.of_lists)
        search = functools.partial(
            search_chunk,
            layout=plan.layout,
            k=wanted.k + wanted.ties,
            numbers=(0, 0),
            is_self_join=self.is_self_join,
            totals=wanted.totals,
            threads=self.threads,
        )
        if wanted.mutual and self.finds_mutual(wanted):
            state = mutual_state(queries, data, search)
        else:
            state = search(queries, data)
        if wanted.ties:
            about = state, wanted.k, spec, queries
            tied = ties_in(*about, data, (0, 0), wanted.totals)
            state = with_ties(*about, most, tied)
        elif not with_alone:
            chunks = queries, data
            if device is None:
                return whole_rows(*chunks, state, spec, example, self.threads)
            return whole_rows_on_device(*chunks, state, spec, example)
        if all_rows is not queries:
            state = state_of_all_rows(state, self.frames[0], spec)
        made = nearest_or_missing if with_alone else nearest_rows
        return made(all_rows, state, spec, example, find_rows(state, data, 0, spec))

    def plan_nearest(self, wanted: Neighbors) -> NearestPlanReport:
        """Plan the search. Return the report of the plan."""
        output = nearest_output(wanted.k, with_ids=True, max_total=wanted.totals[1])
        made = self.planned(output)
        device = frames_of_library(self.spec.library).memory()
        check_neighbors(made, wanted, device, self.spec.of_lists)
        if self.spec.search.approximate:
            made = replace(
                made, result=replace(made.result, recall=self._recall(made, wanted))
            )
        return NearestPlanReport(made, self.spec, wanted.k, wanted.totals[1])

    def _recall(self, plan: Plan, wanted: Neighbors) -> Recall:
        """Measure the recall of an approximate search."""
        specs = [self.spec] if self.is_self_join else [self.spec, self.spec.right]
        sides = [
            read_piece(frame, own.with_dims(plan.tables.dims))["x"]
            for frame, own in zip(self.frames, specs, strict=True)
        ]
        recall = recall_module(self.spec.search.method)
        how = plan.layout, wanted.k, self.spec.library, wanted.totals[1]
        found: Recall = recall.measured_neighbors(
            sides[0], sides[-1], *how, recall.PLANNED
        )
        return found

    def has_neighbor(self, totals: Totals, example: Series) -> Series:
        """Return whether each row has a neighbor."""
        least, most = totals
        output = nearest_output(1, max_total=most, min_total=least)
        (queries, *others), plan, _ = self.indexed(output)
        data = others[0] if others else queries
        if len(queries["ids"]) and len(data["ids"]):
            how = plan.layout, 1, (0, 0), self.is_self_join, totals
            state = search_chunk(queries, data, *how, threads=self.threads)
            found = has_neighbor(state)
        else:
            found = frames_for(example).xp.zeros(len(queries["ids"]), bool)
        return self.series(found, False, example.name)

    def k_distances(self, k: int, totals: Totals, example: Series) -> Series:
        """Return the distance from each row to its k-th nearest neighbor."""
        (chunk,), plan, _ = self.indexed(nearest_output(k, max_total=totals[1]))
        if k >= plan.rows:  # no row has k neighbors
            found = frames_for(example).xp.full(len(chunk["ids"]), math.inf)
        else:
            how = plan.layout, k, (0, 0), True, totals
            state = search_chunk(chunk, chunk, *how, threads=self.threads)
            found = kth_distance(state, k, self.spec)
        return self.series(found, math.nan, example.name)


def check_neighbors(
    plan: Plan, wanted: Neighbors, device: int | None, lists: bool
) -> None:
    """Raise an error if neighbors of plain frames do not fit into the free memory.

    `device`: as in `check_room`; `lists`: see `Cause`.
    """
    rows = plan.rows_found(wanted.k)
    row_bytes = (
        plan.result.pair_bytes + NUMBER_BYTES if wanted.totals == ANY_TOTAL else 0.0
    )
    with_alone = wanted.how == LEFT
    # usually the arrays of the search become the result, but in these cases they are
    # copied
    if device is not None or with_alone:
        row_bytes = (ENTRY_BYTES + row_bytes) * (
            MERGE_COPIES if wanted.mutual or with_alone else 1
        )
    elif wanted.mutual:
        rows = max(rows, rows_found(plan.tables.rows[::-1], wanted.k))
        # int32 numbers of both directions are compared
        row_bytes = max(ENTRY_BYTES + NUMBER_BYTES // 2, row_bytes)
    else:
        row_bytes = max(ENTRY_BYTES, row_bytes)
    cause = Cause(wanted.what, lists=lists)
    check_room(rows, row_bytes, cause, False, device)
