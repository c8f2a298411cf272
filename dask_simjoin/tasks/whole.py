"""Plain frames as chunks: one chunk of each, and the plan of their join."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.methods import asks_sample
from dask_simjoin.errors import TABLES, in_table
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.settings import MAX_BYTES
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.checks import check_rows
from dask_simjoin.planning.doubts import LEAST_ROWS, check_share, doubts_of_left_out, raise_doubts
from dask_simjoin.planning.free_memory import check_room
from dask_simjoin.planning.goal import Goal
from dask_simjoin.planning.outputs import directions
from dask_simjoin.planning.plan import Plan, make_plan
from dask_simjoin.planning.statistics.partition import RIGHT, Seen, look
from dask_simjoin.planning.statistics.sample_pairs import PROBE
from dask_simjoin.planning.statistics.unique_ids import check_summaries
from dask_simjoin.planning.tables import Tables, tables_of
from dask_simjoin.planning.whole import WholePlan, make_whole_plan
from dask_simjoin.tasks.chunks import Chunk, seen_chunk


def whole_chunks(frames: Sequence[Frame], spec: JoinSpec, goal: Goal,
                 sampled: bool = False) -> tuple[list[Chunk], WholePlan]:  # fmt: skip
    """Make one chunk of each of one plain frame or two, and plan their join.

    `sampled`: the plan estimates the pairs, and not only for what is in doubt.
    """
    tables, seen = _tables(frames, spec, goal, sampled)
    plan = make_whole_plan(tables, goal)
    _check_ids(tables, frames, spec)
    if goal.materialise:
        own = plan.rows if spec.include_self else 0
        rows, low = plan.estimate.total_low * directions(spec) + own, plan.estimate.total_low
        device = frames_of_library(spec.library).memory()
        check_share(plan.doubts, low / max(1.0, tables.candidates), rows, plan.pair_bytes, spec)
    raise_doubts(plan.doubts, None)
    if goal.materialise:
        check_room(rows, plan.pair_bytes, spec.asked, True, device)
    chunks = [
        seen_chunk(one, len(frame), replace(own_spec, dims=plan.dims), plan.layout)
        for one, (frame, own_spec) in zip(seen, _sides(frames, spec), strict=True)
        if one is not None  # else what was seen was refused
    ]
    return chunks, plan


def whole_chunk(frame: Frame, spec: JoinSpec, goal: Goal, sampled: bool = False) -> tuple[Chunk, WholePlan]:
    """Make one chunk of a plain frame, and plan its join with itself."""
    (chunk,), plan = whole_chunks([frame], spec, goal, sampled)
    return chunk, plan


def plan_whole(frames: Sequence[Frame], spec: JoinSpec, goal: Goal, sampled: bool = False) -> Plan:
    """Plan a join of one plain frame or two in all that can be told of it; `sampled`: see `whole_chunks`."""
    tables, _ = _tables(frames, spec, goal, sampled or goal.k is not None)
    # chunks need no room, as there is one of each frame, which is searched however far away it is
    goal = replace(goal, result_bytes_per_row=0, others_per_row=0, max_total=math.inf)
    plan = make_plan(tables, goal)
    _check_ids(tables, frames, spec)
    raise_doubts(plan.doubts, None)
    return plan


def layout_seconds(frame: Frame, spec: JoinSpec, goal: Goal) -> float:
    """Return the seconds that a method takes to choose clusters, lists or dimensions from a sample.

    A plan does so once; a second time everything it needs is compiled.
    """
    tables, _ = _tables([frame], spec, goal, goal.k is not None)
    began = time.perf_counter()
    if goal.k is None:
        tables.layout()
    else:
        tables.search_layout()
    return time.perf_counter() - began


def _tables(frames: Sequence[Frame], spec: JoinSpec, goal: Goal,
            sampled: bool) -> tuple[Tables, list[Seen | None]]:  # fmt: skip
    """Summarise frames as tables that are one chunk each, and give what was read of them."""
    raise_doubts([doubt for frame, own in _sides(frames, spec) for doubt in doubts_of_left_out(frame, own)])
    # clusters are those that a plan tells the recall of, so they are made of the same sample
    sampled = sampled or spec.approximate
    probed = sampled or goal.k is not None or min(map(len, frames)) >= LEAST_ROWS or asks_sample(spec.method)
    found = [
        look(frame, number, own, goal.with_ids, int(probed), None if sampled else PROBE)
        for number, (frame, own) in zip((0, RIGHT), _sides(frames, spec), strict=False)
    ]
    for summary, _ in found:
        check_rows(summary.source_rows, 0)
    # it comes out as one frame, whatever size partitions of a result are set to have
    settings = replace(spec.settings, output=None)
    whole = replace(spec, partitioning="entity", blocksize=MAX_BYTES, settings=settings)
    return tables_of([[summary] for summary, _ in found], whole), [seen for _, seen in found]


def _check_ids(tables: Tables, frames: Sequence[Frame], spec: JoinSpec) -> None:
    for which, table, (_, own) in zip(
        TABLES if len(frames) > 1 else [None], tables.each, _sides(frames, spec), strict=True
    ):
        for summary in table.summaries:
            if summary.ids is not None:
                with in_table(which):
                    check_summaries([summary.ids], own.id)


def _sides(frames: Sequence[Frame], spec: JoinSpec) -> list[tuple[Frame, JoinSpec]]:
    return [(frames[0], spec), *((frame, spec.right) for frame in frames[1:])]
