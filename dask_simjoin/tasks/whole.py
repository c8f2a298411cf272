"""Plain frames as chunks: one chunk of each, and the plan of their join."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.methods import asks_sample
from dask_simjoin.errors import TABLES, in_table
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.settings import MAX_BYTES
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.checks import check_rows
from dask_simjoin.planning.doubts import LEAST_ROWS, raise_doubts
from dask_simjoin.planning.free_memory import check_room
from dask_simjoin.planning.goal import Goal
from dask_simjoin.planning.outputs import directions
from dask_simjoin.planning.plan import Plan, make_plan
from dask_simjoin.planning.statistics.partition import RIGHT, summarise
from dask_simjoin.planning.statistics.sample_pairs import PROBE
from dask_simjoin.planning.statistics.unique_ids import check_summaries
from dask_simjoin.planning.tables import tables_of
from dask_simjoin.tasks.chunks import Chunk, make_chunk


def whole_chunks(frames: Sequence[Frame], spec: JoinSpec, goal: Goal,
                 sampled: bool = False) -> tuple[list[Chunk], Plan]:  # fmt: skip
    """Make one chunk of each of one plain frame or two, and plan their join.

    `sampled`: the plan estimates the pairs, and not only for what is in doubt.
    """
    plan = plan_whole(frames, spec, goal, sampled)
    if goal.materialise:
        own = plan.rows if spec.include_self else 0
        rows = plan.estimate.total_low * directions(spec) + own
        device = frames_of_library(spec.library).memory()
        check_room(rows, plan.pair_bytes, eps_of(spec), True, device)
    chunks = [
        make_chunk(frame, (0, source), replace(own_spec, dims=plan.dims), plan.layout)
        for (frame, own_spec), (source,) in zip(_sides(frames, spec), plan.sources, strict=True)
    ]
    return chunks, plan


def whole_chunk(frame: Frame, spec: JoinSpec, goal: Goal, sampled: bool = False) -> tuple[Chunk, Plan]:
    """Make one chunk of a plain frame, and plan its join with itself."""
    (chunk,), plan = whole_chunks([frame], spec, goal, sampled)
    return chunk, plan


def plan_whole(frames: Sequence[Frame], spec: JoinSpec, goal: Goal, sampled: bool = False) -> Plan:
    """Plan a join of one plain frame or two, each of which is one chunk; see `whole_chunks`."""
    sides = _sides(frames, spec)
    # chunks need no room, as there is one of each frame, which is searched however far away it is
    goal = replace(goal, result_bytes_per_row=0, others_per_row=0, max_total=math.inf)
    sampled = sampled or goal.k is not None
    probed = sampled or min(map(len, frames)) >= LEAST_ROWS or asks_sample(spec.method)
    summaries = [
        summarise(frame, number, own, goal.with_ids, int(probed), None if sampled else PROBE)
        for number, (frame, own) in zip((0, RIGHT), sides, strict=False)
    ]
    for summary in summaries:
        check_rows(summary.source_rows, 0)
    # it comes out as one frame, whatever size partitions of a result are set to have
    settings = replace(spec.settings, output=None)
    whole = replace(spec, partitioning="entity", blocksize=MAX_BYTES, settings=settings)
    plan = make_plan(tables_of([[summary] for summary in summaries], whole), goal)
    for which, summary, (_, own) in zip(TABLES if len(sides) > 1 else [None], summaries, sides, strict=True):
        if summary.ids is not None:
            with in_table(which):
                check_summaries([summary.ids], own.id)
    raise_doubts(plan.doubts, None)
    return plan


def eps_of(spec: JoinSpec) -> str:
    """Name the distance that a join was asked for, in messages."""
    return f"{spec.bound}={spec.eps if spec.radius is None else spec.radius!r}"


def _sides(frames: Sequence[Frame], spec: JoinSpec) -> list[tuple[Frame, JoinSpec]]:
    return [(frames[0], spec), *((frame, spec.right) for frame in frames[1:])]
