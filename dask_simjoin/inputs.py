"""What verbs make of their arguments: a frame's example, checked options, one chunk of a plain frame."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dask.base import is_dask_collection

from dask_simjoin.backends.base import backend_for, backend_named, library
from dask_simjoin.budget import MOST_BYTES, current_settings
from dask_simjoin.checks import check_dims, check_rows
from dask_simjoin.chunks import Chunk, make_chunk
from dask_simjoin.doubts import LEAST_ROWS, raise_doubts
from dask_simjoin.errors import ColumnError, OptionError, UnsupportedFrameError
from dask_simjoin.graph.cluster import on_cluster
from dask_simjoin.ids import check_summaries, row_ids
from dask_simjoin.outputs import directions
from dask_simjoin.partition import summarise
from dask_simjoin.plan import Plan, make_plan
from dask_simjoin.room import check_room
from dask_simjoin.sampled import PROBE
from dask_simjoin.searches import make_nearest_plan
from dask_simjoin.spec import JoinSpec, make_spec


def is_frame(frame: Any) -> bool:
    """Whether it is a data frame, of whatever library."""
    meta = getattr(frame, "_meta", frame) if is_dask_collection(frame) else frame
    return getattr(meta, "ndim", 0) == 2 and hasattr(meta, "columns")


def example_of(frame: Any) -> Any:
    """The empty example of a frame; refuses what is no frame."""
    meta = frame._meta if is_dask_collection(frame) and hasattr(frame, "_meta") else frame
    if not is_frame(frame):
        raise UnsupportedFrameError(
            f"{type(frame).__module__}.{type(frame).__name__} is not a data frame; use a Dask "
            "DataFrame or a pandas DataFrame, or cuDF's (of an array x: pd.DataFrame(x))."
        )
    backend_for(meta)
    return meta.iloc[:0]


def checked_spec(meta: Any, eps: Any, **options: Any) -> JoinSpec:
    """The options of a verb, checked, with what is configured now."""
    name = library(meta)
    spec = make_spec(meta, eps, settings=current_settings(on_cluster()), library=name, **options)
    backend = backend_named(name)
    methods = backend.methods
    if spec.method not in methods:
        raise OptionError(
            f"method={spec.method!r} does not serve frames of {name!r}; use one of "
            f"{', '.join(map(repr, methods))}, or ddf.to_backend('pandas')."
        )
    check_dims(spec)
    return spec


def example_ids(meta: Any, spec: JoinSpec) -> Any:
    """An empty index of the ids that name rows in a result; refuses labels that cannot."""
    ids = row_ids(meta[spec.columns], spec.id)[:0]
    if ids.nlevels > 1:
        raise ColumnError(
            "The index is a MultiIndex, whose labels cannot name rows in a result; use id= a column "
            "of unique values, or add one with frame.simjoin.with_row_id()."
        )
    return ids


def unnamed(spec: JoinSpec) -> JoinSpec:
    """The options of a verb whose result names no rows: ids are not read, so they may repeat."""
    return replace(spec, id=None, id_dtype=None)


def whole_chunk(frame: Any, spec: JoinSpec, named: bool, sampled: bool = False) -> tuple[Chunk, Plan]:
    """One chunk of the whole frame, and its plan; `sampled`: with an estimate of its pairs."""
    plan = plan_whole(frame, spec, named, sampled)
    if named:
        own = plan.rows if spec.include_self else 0
        rows = plan.estimate.total_low * directions(spec) + own
        check_room(rows, plan.pair_bytes, eps_of(spec), True, backend_named(spec.library).memory())
    return make_chunk(frame, (0, plan.sources[0]), replace(spec, dims=plan.dims), plan.layout), plan


def whole_searched(frame: Any, spec: JoinSpec, neighbors: int, named: bool = False) -> tuple[Chunk, Plan]:
    """The same for a search for nearest neighbours."""
    summary = summarise(frame, 0, spec, named, 1)
    check_rows(summary.source_rows, 0)
    whole = replace(spec, partitioning="entity", blocksize=MOST_BYTES)
    plan = make_nearest_plan([summary], whole, neighbors)
    if summary.ids is not None:
        check_summaries([summary.ids], spec.id)
    raise_doubts(plan.doubts, None)
    return make_chunk(frame, (0, plan.sources[0]), replace(spec, dims=plan.dims), plan.layout), plan


def plan_whole(frame: Any, spec: JoinSpec, named: bool, sampled: bool = False) -> Plan:
    """The plan of one chunk of the whole frame; `sampled`: with an estimate of its pairs."""
    probed = sampled or len(frame) >= LEAST_ROWS
    summary = summarise(frame, 0, spec, named, int(probed), None if sampled else PROBE)
    check_rows(summary.source_rows, 0)
    # it comes out as one frame, whatever size partitions of a result are set to have
    settings = replace(spec.settings, output=None)
    whole = replace(spec, partitioning="entity", blocksize=MOST_BYTES, settings=settings)
    plan = make_plan([summary], whole, counting=not named)
    if summary.ids is not None:
        check_summaries([summary.ids], spec.id)
    raise_doubts(plan.doubts, None)
    return plan


def eps_of(spec: JoinSpec) -> str:
    """What a join's result is of, for messages."""
    return f"{spec.bound}={spec.eps if spec.radius is None else spec.radius!r}"
