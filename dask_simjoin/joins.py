"""The verbs, as functions of a frame: lazy on Dask DataFrames, eager on plain ones."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin import blocks
from dask_simjoin.backends.base import backend_for, backend_named, library
from dask_simjoin.budget import current_settings
from dask_simjoin.checks import check_rows
from dask_simjoin.chunks import Chunk, make_chunk
from dask_simjoin.density.components import components_of_ids, forest_of_ids, no_components
from dask_simjoin.density.dbscan import dbscan_of_chunk
from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError, UnsupportedFrameError
from dask_simjoin.graph.cluster import on_cluster
from dask_simjoin.graph.counts import CountPairs, NeighborCounts
from dask_simjoin.graph.dbscan import Labels
from dask_simjoin.graph.pairs import SelfJoin
from dask_simjoin.graph.planner import plan_for
from dask_simjoin.graph.private import new_collection
from dask_simjoin.graph.source import seal
from dask_simjoin.ids import check_summaries, row_ids
from dask_simjoin.partition import summarise
from dask_simjoin.plan import Plan, make_plan
from dask_simjoin.report import PlanReport
from dask_simjoin.spec import ROW_ID, JoinSpec, check_columns, known_options, make_spec

MOST_BYTES = 2**62
"""Of the one chunk of a frame that is no Dask DataFrame."""

COUNTS = "neighbors"
"""Name of the Series of numbers of neighbours."""

LABELS = "label"
"""Name of the Series of clusters."""


@known_options
def self_join(frame: Any, eps: float, *, on: Any = None, id: Hashable | None = None,
              metric: str = "euclidean", pairs: str = "unique", include_self: bool = False,
              return_distance: bool = False, dropna: bool = False, method: str = "auto",
              partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
    """Every pair of rows within `eps` of each other; see `SimJoinAccessor.self_join`."""
    meta = _example(frame)
    spec = _spec(
        meta, eps, on=on, id=id, metric=metric, pairs=pairs, include_self=include_self,
        return_distance=return_distance, dropna=dropna, method=method, partitioning=partitioning,
        blocksize=blocksize,
    )  # fmt: skip
    ids = _names(meta, spec)
    columns = {"left": ids, "right": ids}
    example = backend_for(meta).result(columns | ({"distance": np.empty(0)} if return_distance else {}), 0)
    if is_dask_collection(frame):
        return _lazy(SelfJoin, frame, spec, example)
    chunk, plan = _eager(frame, spec, named=True)
    if not len(plan):
        return example
    names = list(example.columns)
    return blocks.join_block(chunk, chunk, spec, plan.layout, True, names)


@known_options
def plan(frame: Any, eps: float, *, on: Any = None, id: Hashable | None = None,
         metric: str = "euclidean", pairs: str = "unique", include_self: bool = False,
         return_distance: bool = False, dropna: bool = False, method: str = "auto",
         partitioning: str = "auto", blocksize: Any = None) -> PlanReport:  # fmt: skip
    """What `self_join` with these options would run and give; see `SimJoinAccessor.plan`."""
    meta = _example(frame)
    spec = _spec(
        meta, eps, on=on, id=id, metric=metric, pairs=pairs, include_self=include_self,
        return_distance=return_distance, dropna=dropna, method=method, partitioning=partitioning,
        blocksize=blocksize,
    )  # fmt: skip
    _names(meta, spec)
    if is_dask_collection(frame):
        return PlanReport(plan_for(seal(frame, spec.columns), spec, named=True), spec)
    made = _plan_whole(frame, spec, named=True, sampled=True)
    size = round(made.rows * made.row_bytes)
    budget = replace(made.budget, chunk=size, output=size, origin="the whole frame, as it is in memory")
    return PlanReport(replace(made, budget=budget, slices=np.ones_like(made.slices)), spec)


@known_options
def neighbor_counts(frame: Any, eps: float, *, on: Any = None, id: Hashable | None = None,
                    metric: str = "euclidean", dropna: bool = False,
                    method: str = "auto", partitioning: str = "auto",
                    blocksize: Any = None) -> Any:  # fmt: skip
    """Each row's number of neighbours; see `SimJoinAccessor.neighbor_counts`."""
    meta = _example(frame)
    spec = _spec(
        meta, eps, on=on, id=id, metric=metric, dropna=dropna, method=method, partitioning=partitioning,
        blocksize=blocksize,
    )  # fmt: skip
    spec = _unnamed(spec)
    example = backend_for(meta).series(np.zeros(0, np.int64), meta.index[:0], COUNTS)
    if is_dask_collection(frame):
        source = seal(frame, spec.columns)
        return new_collection(NeighborCounts(source.inner, source, spec, example))
    chunk, plan = _eager(frame, spec, named=False)
    if not len(plan):
        return example
    counts, _ = blocks.count_block(chunk, chunk, plan.layout, True)
    return backend_for(meta).series(counts, chunk["ids"], COUNTS)


@known_options
def count_pairs(frame: Any, eps: float, *, on: Any = None, id: Hashable | None = None,
                metric: str = "euclidean", pairs: str = "unique", include_self: bool = False,
                dropna: bool = False, method: str = "auto", partitioning: str = "auto",
                blocksize: Any = None) -> Any:  # fmt: skip
    """The number of pairs; see `SimJoinAccessor.count_pairs`."""
    meta = _example(frame)
    spec = _spec(
        meta, eps, on=on, id=id, metric=metric, pairs=pairs, include_self=include_self, dropna=dropna,
        method=method, partitioning=partitioning, blocksize=blocksize,
    )  # fmt: skip
    spec = _unnamed(spec)
    if is_dask_collection(frame):
        return _lazy(CountPairs, frame, spec, 0)
    chunk, plan = _eager(frame, spec, named=False)
    if not len(plan):
        return 0
    return blocks.count_block_pairs(chunk, chunk, spec, plan.layout, True)


@known_options
def dbscan(frame: Any, eps: float, min_samples: int = 5, *, on: Any = None, id: Hashable | None = None,
           metric: str = "euclidean", dropna: bool = False, method: str = "auto",
           partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
    """Labels of the clusters of DBSCAN; see `SimJoinAccessor.dbscan`."""
    meta = _example(frame)
    if isinstance(min_samples, bool) or not isinstance(min_samples, (int, np.integer)) or min_samples < 1:
        raise OptionError(f"min_samples={min_samples!r} is not allowed; use a whole number >= 1.")
    spec = _spec(
        meta, eps, on=on, id=id, metric=metric, dropna=dropna, method=method,
        partitioning=partitioning, blocksize=blocksize,
    )  # fmt: skip
    spec = _unnamed(spec)
    example = backend_for(meta).series(np.zeros(0, np.int64), meta.index[:0], LABELS)
    if is_dask_collection(frame):
        source = seal(frame, spec.columns)
        return new_collection(Labels(source.inner, source, spec, int(min_samples), example))
    chunk, plan = _eager(frame, spec, named=False)
    if not len(plan):
        return example
    labels = dbscan_of_chunk(chunk, plan.layout, int(min_samples))
    return backend_for(meta).series(labels, chunk["ids"], LABELS)


def connected_components(pairs: Any) -> Any:
    """Groups of rows that pairs connect: the end of de-duplication.

    Parameters
    ----------
    pairs : DataFrame
        With columns ``left`` and ``right``, of pandas, cuDF or Dask: as `self_join` gives them, or any other.

    Returns
    -------
    DataFrame
        One row for each id that occurs: ``id``, and ``component`` (int64), the number of its group. Groups
        are numbered from 0 by their smallest ids. Of a Dask DataFrame it is lazy and has one partition:
        what must fit memory is the ids that occur in pairs, not the pairs.

    Raises
    ------
    ColumnError, UnsupportedFrameError
        There is no column ``left`` or ``right``; the frame is none of those.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 7.0, 8.0, 20.0]}, index=list("abcdef"))
    >>> dask_simjoin.connected_components(df.simjoin.self_join(1.0))
      id  component
    0  a          0
    1  b          0
    2  c          0
    3  d          1
    4  e          1
    """
    meta = _example(pairs)
    for name in ("left", "right"):
        if name not in meta.columns:
            raise ColumnError(f"The frame has no column {name!r}; pairs are in columns 'left' and 'right'.")
    pairs = pairs[["left", "right"]]
    if not is_dask_collection(pairs):
        return components_of_ids(pairs)
    return pairs.reduction(
        forest_of_ids,
        aggregate=components_of_ids,
        combine=forest_of_ids,
        meta=no_components(pairs._meta),
        split_every=16,
    )


@known_options
def with_row_id(frame: Any, name: str = ROW_ID) -> Any:
    """The frame with a column of row numbers; see `SimJoinAccessor.with_row_id`."""
    meta = _example(frame)
    check_columns(meta)
    if not isinstance(name, str):
        raise OptionTypeError(f"name={name!r} is not a string; name the new column, such as {ROW_ID!r}.")
    if name in meta.columns:
        raise ColumnError(
            f"name={name!r} is a column already; use it with id={name!r}, or choose another name."
        )
    if not is_dask_collection(frame):
        return frame.assign(**{name: np.arange(len(frame), dtype=np.int64)})
    if not len(meta.columns):
        raise ColumnError("The frame has no column, so its rows cannot be numbered.")
    # one column stands for the rows, so that counting them reads no other
    ones = frame[meta.columns[0]].map_partitions(_ones, meta=_ones(meta.iloc[:, 0]))
    return frame.assign(**{name: ones.cumsum() - 1})


def _ones(column: Any) -> Any:
    return backend_for(column).series(np.ones(len(column), np.int64), column.index, ROW_ID)


def _example(frame: Any) -> Any:
    """The empty example of a frame; refuses what is no frame."""
    meta = frame._meta if is_dask_collection(frame) and hasattr(frame, "_meta") else frame
    if getattr(meta, "ndim", 0) != 2 or not hasattr(meta, "columns"):
        raise UnsupportedFrameError(
            f"{type(frame).__module__}.{type(frame).__name__} is not a data frame; use a Dask "
            "DataFrame or a pandas DataFrame, or cuDF's (of an array x: pd.DataFrame(x))."
        )
    backend_for(meta)
    return meta.iloc[:0]


def _spec(meta: Any, eps: Any, **options: Any) -> JoinSpec:
    """The options of a verb, checked, with what is configured now."""
    name = library(meta)
    spec = make_spec(meta, eps, settings=current_settings(on_cluster()), library=name, **options)
    backend = backend_named(name)
    methods, most = backend.methods, backend.most_dims
    if most is not None and len(spec.on) > most:
        raise OptionError(
            f"on= names {len(spec.on):,} columns, and frames of {name!r} are joined on at most {most:,}; "
            "name fewer, or use ddf.to_backend('pandas')."
        )
    if spec.method not in methods:
        raise OptionError(
            f"method={spec.method!r} does not serve frames of {name!r}; use one of "
            f"{', '.join(map(repr, methods))}, or ddf.to_backend('pandas')."
        )
    return spec


def _names(meta: Any, spec: JoinSpec) -> Any:
    """An empty index of the ids that name rows in a result; refuses labels that cannot."""
    ids = row_ids(meta[spec.columns], spec.id)[:0]
    if ids.nlevels > 1:
        raise ColumnError(
            "The index is a MultiIndex, whose labels cannot name rows in a result; use id= a column "
            "of unique values, or add one with frame.simjoin.with_row_id()."
        )
    return ids


def _unnamed(spec: JoinSpec) -> JoinSpec:
    """The options of a verb whose result names no rows: ids are not read, so they may repeat."""
    return replace(spec, id=None, id_dtype=None)


def _lazy(kind: Any, frame: Any, spec: JoinSpec, example: Any) -> Any:
    return new_collection(kind(seal(frame, spec.columns), spec, example))


def _eager(frame: Any, spec: JoinSpec, named: bool) -> tuple[Chunk, Plan]:
    """One chunk of the whole frame, and its plan."""
    plan = _plan_whole(frame, spec, named)
    return make_chunk(frame, (0, plan.sources[0]), spec, plan.layout), plan


def _plan_whole(frame: Any, spec: JoinSpec, named: bool, sampled: bool = False) -> Plan:
    """The plan of one chunk of the whole frame; `sampled`: with an estimate of its pairs."""
    summary = summarise(frame, 0, spec, named, int(sampled))
    check_rows(summary.source_rows, 0)
    # it comes out as one frame, whatever size partitions of a result are set to have
    settings = replace(spec.settings, output=None)
    plan = make_plan([summary], replace(spec, partitioning="entity", blocksize=MOST_BYTES, settings=settings))
    if summary.ids is not None:
        check_summaries([summary.ids], spec.id)
    return plan
