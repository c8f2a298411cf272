"""Searches whose results name rows by their numbers, and results made from these."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.errors import in_table
from dask_simjoin.metrics.norms import Array, ArrayModule, Frame
from dask_simjoin.planning.unique_ids import check_summaries, summarise_ids
from dask_simjoin.request.spec import JoinSpec, RowSpec
from dask_simjoin.tasks.closest import RowPairs
from dask_simjoin.tasks.matches import measured

POSITION = "row_id"
"""Name of the column of row numbers. If the table has a column with this name,
apostrophes are appended.
"""


def check_ids(frame: Frame, spec: RowSpec, which: str | None) -> None:
    """Raise an error if ids are missing or repeat. `which`: name of the table; None:
    there is only one.
    """
    with in_table(which):
        ids = summarise_ids(row_ids(frame, spec.id), spec.id, frame.index)
        check_summaries([ids], spec.id)


def numbered_by_index(frame: Frame, columns: list[Hashable]) -> Frame:
    """Return columns of a plain frame, with row numbers as its index."""
    rows = frame[columns]
    rows.index = frames_for(frame).index(np.arange(len(frame)))
    return rows


def in_one_task(rows: Frame) -> Any:
    """Gather the rows of a lazy frame, as an argument of other tasks."""
    return rows.reduction(_itself, aggregate=_itself, meta=0)


def _itself(rows: Frame) -> Frame:
    return rows


def scores_of(
    tables: tuple[Frame, Frame], spec: RowSpec, best: RowPairs, xp: ArrayModule
) -> Array:
    """Return the distances or similarities of pairs from their totals (pairs,)."""
    if isinstance(spec, JoinSpec):
        return measured(spec, xp)(xp.array(best.total))
    values = [
        table[own.on[0]].iloc[rows]
        for table, own, rows in zip(tables, (spec, spec.right), best[:2], strict=True)
    ]
    return xp.asarray(spec.scores(best.total, *values))


def rows_of_pairs(
    tables: tuple[Frame, Frame], spec: RowSpec, best: RowPairs, example: Frame
) -> Frame:
    """Make rows of the result. `best`: positions of the rows in their tables."""
    if not len(best.total):
        return example
    frames = frames_for(example)
    columns: dict[str, Any] = {}
    for table, own, name, kept, rows in (
        (tables[0], spec, "left", spec.kept_left, best.left),
        (tables[1], spec.other or spec, "right", spec.kept_right, best.right),
    ):
        places = frames.xp.asarray(rows)
        columns[name] = frames.ids(row_ids(table, own.id), places)
        columns |= frames.columns_at(table, kept, places)
    if spec.score is not None:
        columns[spec.score] = scores_of(tables, spec, best, frames.xp)
    return frames.result(
        {name: columns[name] for name in example.columns}, len(best.total)
    )
