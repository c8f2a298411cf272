"""Verbs that give sparse matrices, as functions of a frame: lazy on Dask DataFrames, eager on plain ones."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions.neighbor_graph import LazyGraph, NeighborGraph, fitting_for
from dask_simjoin.expressions.source import freeze
from dask_simjoin.options.frames import checked_spec, example_of, unnamed
from dask_simjoin.options.validate import check_choice, known_options
from dask_simjoin.planning.budget import Resources
from dask_simjoin.tasks import csr
from dask_simjoin.tasks.whole import whole_chunk


@known_options
def neighbor_graph(frame: Any, eps: float, *, on: Any = None, id: Hashable | None = None,
                   metric: str = "euclidean", p: float = 2, mode: str = csr.DISTANCE,
                   include_self: bool = False, dropna: bool = False, method: str = "auto",
                   partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
    """Neighbours of rows as a sparse matrix; see `SimJoinAccessor.neighbor_graph`."""
    meta = example_of(frame)
    check_choice("mode", mode, csr.MODES)
    spec = checked_spec(
        meta, eps, on=on, id=id, metric=metric, p=p, include_self=include_self, dropna=dropna, method=method,
        partitioning=partitioning, blocksize=blocksize,
    )  # fmt: skip
    spec = unnamed(spec)
    frames = frames_for(meta)
    csr.sparse(frames.xp)  # it is missing now, and not when a lazy result is computed
    # rows are called by their numbers in their partitions: some may be left out
    if is_dask_collection(frame):
        numbered = frame[spec.columns].map_partitions(
            _numbered, meta=_numbered(meta[spec.columns]), enforce_metadata=False, clear_divisions=True
        )
        return LazyGraph(NeighborGraph(freeze(numbered, spec.columns), spec, mode, meta[spec.columns]))
    chunk, plan = whole_chunk(_numbered(frame[spec.columns]), spec, named=False)
    own = frames.memory()
    have = Resources(memory=own, gpu=own is not None)
    fitting = fitting_for(spec, len(frame), meta, have, pieces=False)
    fitting.check(2 * plan.estimate.total_low + plan.rows * spec.include_self, sampled=True)
    return csr.graph_of_chunk(chunk, spec, plan.layout, mode, fitting)


def _numbered(part: Any) -> Any:
    return part.reset_index(drop=True)
