"""The verbs of clusterings, as functions of a frame: lazy on Dask DataFrames, eager on plain ones."""

from __future__ import annotations

import shutil
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.cluster.algorithms.components import components_of_ids, forest_of_ids, no_components
from dask_simjoin.cluster.algorithms.dbscan import dbscan_of_chunk
from dask_simjoin.cluster.algorithms.edges import SpillLimits
from dask_simjoin.cluster.algorithms.extract import steep_clusters, whole_labels
from dask_simjoin.cluster.algorithms.forest import forest_of_chunk
from dask_simjoin.cluster.algorithms.optics import COLUMNS, optics_of_chunk
from dask_simjoin.cluster.algorithms.scratch import free_at, new_folder, this_process
from dask_simjoin.cluster.expressions.dbscan import Labels
from dask_simjoin.cluster.expressions.extract import Extracted
from dask_simjoin.cluster.expressions.optics import FOREST, IN_MEMORY, MODES, Order
from dask_simjoin.cluster.expressions.scratch_space import scratch_directory
from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from dask_simjoin.expressions.dask_private import new_collection
from dask_simjoin.expressions.source import freeze
from dask_simjoin.options.frames import checked_spec, example_of, unnamed
from dask_simjoin.options.messages import shown
from dask_simjoin.options.settings import MAX_BYTES
from dask_simjoin.options.validate import as_number, check_choice, check_whole, known_options
from dask_simjoin.planning.checks import check_edges
from dask_simjoin.tasks.whole import whole_chunk

LABELS = "label"
"""Name of the Series of clusters."""


ROOTED = "euclidean"
"""The metric of OPTICS."""

SORTED = 1 << 22
"""Edges of a plain frame that are sorted at a time."""


@known_options
def dbscan(frame: Any, eps: float, min_samples: int = 5, *, on: Any = None, id: Hashable | None = None,
           metric: str = "euclidean", p: float = 2, dropna: bool = False, method: str = "auto",
           partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
    """Labels of the clusters of DBSCAN; see `SimJoinAccessor.dbscan`."""
    meta = example_of(frame)
    samples = check_whole("min_samples", min_samples, 1)
    spec = checked_spec(
        meta, eps, on=on, id=id, metric=metric, p=p, dropna=dropna, method=method,
        partitioning=partitioning, blocksize=blocksize,
    )  # fmt: skip
    spec = unnamed(spec)
    example = frames_for(meta).series(np.zeros(0, np.int64), meta.index[:0], LABELS)
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        return new_collection(Labels(source.inner, source, spec, samples, example))
    chunk, plan = whole_chunk(frame, spec, named=False)
    if not len(plan):
        return example
    labels = dbscan_of_chunk(chunk, plan.layout, samples)
    return frames_for(meta).series(labels, chunk["ids"], LABELS)


@known_options
def optics(frame: Any, max_eps: float, min_samples: int = 5, *, mode: str = "edges", on: Any = None,
           id: Hashable | None = None, metric: str = "euclidean", p: float = 2, dropna: bool = False,
           method: str = "auto", partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
    """Rows in the order of OPTICS; see `SimJoinAccessor.optics`."""
    meta = example_of(frame)
    samples = check_whole("min_samples", min_samples, 2)
    check_choice("mode", mode, MODES)
    spec = checked_spec(
        meta, max_eps, on=on, id=id, metric=metric, p=p, dropna=dropna, method=method,
        partitioning=partitioning, blocksize=blocksize, eps_name="max_eps",
    )  # fmt: skip
    if spec.measure.name != ROOTED:
        raise OptionError(
            f"metric={metric!r} is not allowed in optics(), whose distances are roots of sums of squares; "
            f"use metric={ROOTED!r}, or dbscan(), which takes every metric."
        )
    max_eps, spec = spec.eps, unnamed(spec)
    if mode != FOREST:
        # a core distance may be max_eps where its square is just beyond that of max_eps
        spec = replace(spec, eps=float(np.nextafter(max_eps, np.inf)))
    none = frames_for(meta).result({name: np.zeros(0, kind) for name, kind in COLUMNS.items()}, 0)
    example = none.copy()
    example.index = meta.index[:0]
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        return new_collection(Order(source.inner, source, spec, max_eps, samples, mode, example))
    # its pairs are no result that could be too large
    spec = replace(spec, settings=replace(spec.settings, result=MAX_BYTES))
    chunk, plan = whole_chunk(frame, spec, named=False, sampled=mode != FOREST)
    if not len(plan):
        return example
    if mode == FOREST:
        found = forest_of_chunk(chunk, plan.layout, samples)
    else:
        folder = new_folder(scratch_directory(), "whole", this_process())
        check_edges(plan.estimate.total_low, max_eps, IN_MEMORY, folder.path, free_at)
        room = SpillLimits(folder.path, IN_MEMORY // 4, SORTED)
        try:
            found = optics_of_chunk(chunk, plan.layout, max_eps, samples, room)
        finally:
            shutil.rmtree(folder.path, ignore_errors=True)
    return frames_for(meta).rows(found, chunk["ids"], example)


def cluster_optics_dbscan(optics: Any, eps: float) -> Any:
    """Clusters at a smaller distance, from a result of `optics`.

    Parameters
    ----------
    optics : DataFrame
        As `SimJoinAccessor.optics` gives it: all of its columns and rows.
    eps : float
        At most the `max_eps` of that.

    Returns
    -------
    Series
        int64, named "label", aligned with `optics`, lazy if that is: as
        ``sklearn.cluster.cluster_optics_dbscan``. With ``mode="forest"`` the core rows' clusters are those of
        ``dbscan(eps)`` but for their numbers; with ``mode="edges"``, as in scikit-learn, nearly.

    Notes
    -----
    Ankerst et al. (1999), "OPTICS: ordering points to identify the clustering structure", section 4.3. One
    task has the columns of all rows.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> from dask_simjoin.cluster import cluster_optics_dbscan
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 6.0, 7.0, 30.0]})
    >>> order = df.simjoin.optics(5.0, min_samples=2)
    >>> cluster_optics_dbscan(order, 5.0).tolist(), cluster_optics_dbscan(order, 1.0).tolist()
    ([0, 0, 0, 0, 0, -1], [0, 0, 0, 1, 1, -1])
    """
    far = as_number(eps)
    if not far >= 0:
        raise OptionError(f"eps={shown(eps)} is not allowed; use a number >= 0, at most max_eps.")
    return _extracted(optics, far, {})


def cluster_optics_xi(optics: Any, min_samples: int, *, xi: float = 0.05, min_cluster_size: Any = None,
                      predecessor_correction: bool = True) -> Any:  # fmt: skip
    """Clusters between steep parts of the reachability plot, from a result of `optics`.

    Parameters
    ----------
    optics : DataFrame
        As `SimJoinAccessor.optics` gives it: all of its columns and rows.
    min_samples, xi, min_cluster_size, predecessor_correction
        As in ``sklearn.cluster.cluster_optics_xi``, which does it: scikit-learn must be installed.

    Returns
    -------
    Series
        int64, named "label", aligned with `optics`, lazy if that is.

    Notes
    -----
    Ankerst et al. (1999), "OPTICS: ordering points to identify the clustering structure", section 4.3.2. One
    task has the columns of all rows.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> from dask_simjoin.cluster import cluster_optics_xi
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 16.0, 17.0, 18.0]})
    >>> cluster_optics_xi(df.simjoin.optics(20.0, min_samples=2), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    steepness = as_number(xi)
    if not 0 <= steepness < 1:  # scikit-learn divides by 1 - xi
        raise OptionError(f"xi={shown(xi)} is not allowed; use a number from 0 to 1, and below 1.")
    samples = check_whole("min_samples", min_samples, 2)
    size = min_cluster_size
    if size is not None:
        share = as_number(size)
        size = share if 0 < share <= 1 else check_whole("min_cluster_size", size, 2)
    if not isinstance(predecessor_correction, (bool, np.bool_)):
        raise OptionTypeError(
            f"predecessor_correction={shown(predecessor_correction)} is not allowed; use True or False."
        )
    steep_clusters()  # it is missing now, and not when a lazy result is computed
    options = {
        "min_samples": samples, "xi": steepness, "min_cluster_size": size,
        "predecessor_correction": bool(predecessor_correction),
    }  # fmt: skip
    return _extracted(optics, None, options)


def example_of_order(optics: Any, columns: Iterable[str]) -> Any:
    """The empty example of a result of `optics`; refuses what has not these columns of it."""
    meta = example_of(optics)
    for name in columns:
        if name not in meta.columns:
            raise ColumnError(f"The frame has no column {name!r}; give a whole result of optics().")
    return meta


def _extracted(optics: Any, eps: float | None, options: dict[str, Any]) -> Any:
    meta = example_of_order(optics, COLUMNS)
    if not is_dask_collection(optics):
        return whole_labels(optics, eps, options, LABELS)
    example = frames_for(meta).series(np.zeros(0, np.int64), meta.index[:0], LABELS)
    source = freeze(optics, list(COLUMNS))
    return new_collection(Extracted(source.inner, source, eps, options, example))


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
    meta = example_of(pairs)
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
