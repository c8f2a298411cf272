"""What verbs make of their arguments: a frame's example, checked options, one chunk of a plain frame."""

from __future__ import annotations

from dataclasses import replace

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.errors import TABLES, in_table
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.settings import MAX_BYTES
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.checks import check_rows
from dask_simjoin.planning.doubts import LEAST_ROWS, raise_doubts
from dask_simjoin.planning.free_memory import check_room
from dask_simjoin.planning.outputs import directions
from dask_simjoin.planning.plan import Plan, make_plan
from dask_simjoin.planning.plan_nearest import make_nearest_plan
from dask_simjoin.planning.plan_two import TwoPlan, make_two_plan
from dask_simjoin.planning.statistics.partition import RIGHT, summarise
from dask_simjoin.planning.statistics.sample_pairs import PROBE
from dask_simjoin.planning.statistics.unique_ids import check_summaries
from dask_simjoin.tasks.chunks import Chunk, make_chunk


def whole_chunk(frame: Frame, spec: JoinSpec, named: bool, sampled: bool = False) -> tuple[Chunk, Plan]:
    """One chunk of the whole frame, and its plan; `sampled`: with an estimate of its pairs."""
    plan = plan_whole(frame, spec, named, sampled)
    if named:
        own = plan.rows if spec.include_self else 0
        rows = plan.estimate.total_low * directions(spec) + own
        check_room(rows, plan.pair_bytes, eps_of(spec), True, frames_of_library(spec.library).memory())
    return make_chunk(frame, (0, plan.sources[0]), replace(spec, dims=plan.dims), plan.layout), plan


def whole_searched(frame: Frame, spec: JoinSpec, neighbors: int, named: bool = False) -> tuple[Chunk, Plan]:
    """The same for a search for nearest neighbours."""
    summary = summarise(frame, 0, spec, named, 1)
    check_rows(summary.source_rows, 0)
    whole = replace(spec, partitioning="entity", blocksize=MAX_BYTES)
    plan = make_nearest_plan([summary], whole, neighbors)
    if summary.ids is not None:
        check_summaries([summary.ids], spec.id)
    raise_doubts(plan.doubts, None)
    return make_chunk(frame, (0, plan.sources[0]), replace(spec, dims=plan.dims), plan.layout), plan


def plan_whole(frame: Frame, spec: JoinSpec, named: bool, sampled: bool = False) -> Plan:
    """The plan of one chunk of the whole frame; `sampled`: with an estimate of its pairs."""
    probed = sampled or len(frame) >= LEAST_ROWS
    summary = summarise(frame, 0, spec, named, int(probed), None if sampled else PROBE)
    check_rows(summary.source_rows, 0)
    # it comes out as one frame, whatever size partitions of a result are set to have
    settings = replace(spec.settings, output=None)
    whole = replace(spec, partitioning="entity", blocksize=MAX_BYTES, settings=settings)
    plan = make_plan([summary], whole, counting=not named)
    if summary.ids is not None:
        check_summaries([summary.ids], spec.id)
    raise_doubts(plan.doubts, None)
    return plan


def eps_of(spec: JoinSpec) -> str:
    """What a join's result is of, for messages."""
    return f"{spec.bound}={spec.eps if spec.radius is None else spec.radius!r}"


def _of(spec: JoinSpec) -> JoinSpec:
    assert spec.other is not None
    return spec.other


def whole_chunks(frame: Frame, other: Frame, spec: JoinSpec, named: bool,
                 neighbors: int | None = None,
                 sampled: bool = False) -> tuple[tuple[Chunk, Chunk], TwoPlan]:  # fmt: skip
    """One chunk of each of two plain frames, and their plan; `neighbors`: how many are sought of each row."""
    sides = [(frame, spec), (other, _of(spec))]
    probed = sampled or neighbors is not None or min(map(len, (frame, other))) >= LEAST_ROWS
    most = None if sampled or neighbors is not None else PROBE
    summaries = [
        summarise(side, number, own, named, int(probed), most)
        for number, (side, own) in zip((0, RIGHT), sides, strict=True)
    ]
    for summary in summaries:
        check_rows(summary.source_rows, 0)
    settings = replace(spec.settings, output=None)
    whole = replace(spec, partitioning="entity", blocksize=MAX_BYTES, settings=settings)
    if neighbors is None:
        plan = make_two_plan(summaries[:1], summaries[1:], whole, counting=not named)
    else:
        plan = make_nearest_plan(summaries[:1], whole, neighbors, others=summaries[1:])
    for which, summary, (_, own) in zip(TABLES, summaries, sides, strict=True):
        if summary.ids is not None:
            with in_table(which):
                check_summaries([summary.ids], own.id)
    raise_doubts(plan.doubts, None)
    if named and most is not None:
        device = frames_of_library(spec.library).memory()
        check_room(plan.estimate.total_low, plan.pair_bytes, eps_of(spec), True, device)
    known = plan.sources[0], plan.others[0]
    q, d = (
        make_chunk(side, (0, source), replace(own, dims=plan.dims), plan.layout)
        for (side, own), source in zip(sides, known, strict=True)
    )
    return (q, d), plan
