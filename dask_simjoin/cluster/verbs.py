"""Define the verbs that cluster rows: lazy for Dask DataFrames, immediate for plain
frames.
"""

from __future__ import annotations

import functools
import shutil
import warnings
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.catalog import AUTO
from dask_simjoin.cluster.algorithms.condensed_tree import empty_result
from dask_simjoin.cluster.algorithms.dbscan import (
    cores_of_chunk,
    dbscan_by_cells,
    dbscan_of_chunk,
    layout_of_cells,
)
from dask_simjoin.cluster.algorithms.edges import SpillLimits, order_of
from dask_simjoin.cluster.algorithms.optics import (
    COLUMNS,
    FOREST,
    IN_MEMORY,
    forest_of_chunk,
    is_dense,
    optics_of_chunk,
    optics_of_dense_chunk,
    order_of_all_rows,
)
from dask_simjoin.cluster.algorithms.scratch import (
    free_at,
    new_folder,
    scratch_directory,
    this_process,
)
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from dask_simjoin.graph.inputs import as_frame
from dask_simjoin.graph.verb import (
    frame_verb,
    in_library_of,
    series_example,
    series_verb,
)
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.planning.checks import check_edges
from dask_simjoin.planning.data_warnings import count_copies, raise_if_none
from dask_simjoin.planning.outputs import CLUSTERS, COUNTS, LISTS
from dask_simjoin.planning.resources import plain_threads
from dask_simjoin.request.clusters import DbscanRequest, HdbscanRequest, OpticsRequest
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.messages import listed, shown
from dask_simjoin.request.options import MAX_BYTES
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import whole_chunk
from dask_simjoin.tasks.counts import (
    components_of_ids,
    count_block_pairs,
    forest_of_ids,
    no_components,
)
from dask_simjoin.tasks.left_out import for_all_rows, kept_rows
from dask_simjoin.tasks.matches import BlockPair, whole_block_pair

SUM_BITS = 62
"""Weights are converted to integers whose sums have at most this many bits, so that
int64 does not overflow.
"""


def checked_weights(weights: Any, rows: int) -> np.ndarray | None:
    """Return weights as an array (rows,), float64; raise an error if a value is not
    allowed.
    """
    if weights is None:
        return None
    if np.ma.is_masked(weights):
        raise OptionError(
            "sample_weight= has masked numbers, which are missing; use one number for "
            "each row."
        )
    try:
        given = np.asarray(weights)
        real = given.dtype.kind in "biufO"
        found = given.astype(np.float64) if real else given
    except (TypeError, ValueError):
        real = False
    if not real:
        raise OptionTypeError(
            f"sample_weight={shown(weights)} has values that are not real numbers; use "
            "real numbers."
        )
    if found.shape != (rows,):
        raise OptionError(
            f"sample_weight= has shape {found.shape}, and there are {rows:,} rows; use "
            "one number for "
            "each row."
        )
    if not np.isfinite(found).all():
        raise OptionError(
            "sample_weight= has NaN or infinite numbers; use finite numbers."
        )
    with np.errstate(over="ignore"):
        fits = bool(np.isfinite(np.abs(found).sum()))
    if not fits:
        raise OptionError(
            "sample_weight= has a sum beyond the largest float64; use smaller numbers."
        )
    if rows and not found.any():
        raise OptionError(
            "sample_weight= has only zeros, so no row has a weight; use other numbers."
        )
    return found


def weighted_cores(block_pair: BlockPair, weights: Array, min_samples: int) -> Array:
    """Return a mask of the core rows of a chunk (n,), if rows have weights. `weights`
    (n,): the weight of each row.

    Weights are rounded to multiples of a power of two, so that sums do not depend on
    the order. The power is the smallest one that keeps all sums from overflowing.
    """
    xp = block_pair.xp
    total = float(np.abs(weights).sum()) or 1.0
    bits = SUM_BITS - int(np.frexp(total)[1]) - 1
    whole = xp.asarray(np.rint(np.ldexp(weights, bits)).astype(np.int64))
    sums = whole.copy()

    def visitor(left: Array, right: Array, totals: Array) -> None:
        xp.add.at(sums, left, whole[right])
        xp.add.at(sums, right, whole[left])

    block_pair.joiner.visit(*block_pair.operands, visitor, is_self_join=True)
    enough = np.ldexp(float(min_samples), bits)
    if enough >= 2.0**63:
        return xp.zeros(len(sums), bool)
    return sums >= int(np.ceil(enough))


def kept_points(
    frame: Frame,
    request: DbscanRequest | HdbscanRequest,
    columns: list[Hashable] | None = None,
) -> Frame:
    """Return the rows that `dropna` keeps, with some columns; None: the coordinates."""
    spec = request.spec(example_of(frame))
    kept = kept_rows(frame, spec)
    rows = frame if kept is None else frame[kept]
    return rows[list(spec.on) if columns is None else columns]


def kept_positions(
    frame: Frame, request: DbscanRequest | HdbscanRequest, some: np.ndarray
) -> np.ndarray:
    """Return the positions in the frame of some of the rows that `dropna` keeps.
    `some`: positions among these rows.
    """
    kept = kept_rows(frame, request.spec(example_of(frame)))
    return some if kept is None else np.flatnonzero(to_host(kept))[some]


LABELS = "label"

SORTED_EDGES = 1 << 22
"""Maximum number of edges of a plain frame that are sorted at a time."""


@series_verb(DbscanRequest)
def dbscan(frame: Frame, request: DbscanRequest) -> Series:
    """Cluster rows by density: DBSCAN.

    Labels are the same as by ``sklearn.cluster.DBSCAN(eps, min_samples=...,
    algorithm="kd_tree")``, for any number of partitions. There is one exception:
    scikit-learn compares whole nodes of its tree with the rounded `eps`. So pairs whose
    squared distance is between the rounded and the exact ``eps*eps`` may be neighbors
    in scikit-learn, but not in this package. Lists of neighbors are not stored. A task
    holds its chunks, a few numbers per row, and the components of the chunks.

    Parameters
    ----------
    eps : float
        Largest distance of neighbors, as in `self_join`.
    min_samples : int
        A row is a core row if at least this many rows are within `eps`, counting the
        row itself.
    on, by, id, metric, p, dropna, method, partitioning, blocksize
        As in `self_join`. `id` has one effect only: its column is not a coordinate.

    Returns
    -------
    Series
        int64, named "label", with the frame's index and partitions: the number of each
        row's cluster, or -1 for noise. Clusters are numbered by their first core row,
        from 0. A border row near several clusters is in the cluster with the lowest
        number. Rows that `dropna` leaves out are noise, and have the label -1.

    Notes
    -----
    Ester, Kriegel, Sander & Xu (1996), "A density-based algorithm for discovering
    clusters in large spatial databases with noise". Core rows are first connected to
    components within each chunk. Pairs across chunks then connect these components.
    Spatial chunks are compared with their neighbors, so they need no halos. If the
    workers of a cluster hold the rows, they instead send these rows to regions with
    halos of twice `eps`. Each region is clustered separately. One task then joins the
    clusters that share core rows.

    Dense rows of a plain frame are put into cells whose diagonal is `eps`, as in Wang,
    Gu & Shun (2020), "Theoretically-efficient and practical parallel DBSCAN". A plain
    frame uses the threads of Dask's threaded scheduler (``num_workers`` in Dask's
    configuration, or all cores). A call uses a single thread if the scheduler has only
    one, or if the call does not come from the main thread.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0, 20.0, 21.0, 22.0]})
    >>> df.simjoin.dbscan(1.0, min_samples=3).tolist()
    [0, 0, 0, -1, 1, 1, 1]
    """
    meta = example_of(frame)
    samples = request.samples()
    spec = request.spec(meta)
    example = series_example(meta, LABELS)
    if is_dask_collection(frame):
        from dask_simjoin.cluster.expressions.components import Labels
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze

        source = freeze(frame, spec.columns)
        return new_collection(Labels(source.inner, source, spec, samples, example))
    return labels_and_cores(frame, request)[0]


def labels_and_cores(
    frame: Frame, request: DbscanRequest, weights: np.ndarray | None = None
) -> tuple[Series, Array, Array]:
    """Label the rows of a plain frame by DBSCAN. `weights`: weight of each row; None:
    every row has weight 1.

    Also return a mask of the places with core rows (n,), and for each place its row
    (n,), int32, among the rows that `dropna` keeps.
    """
    meta, samples = example_of(frame), request.samples()
    spec = request.spec(meta)
    by_cells = weights is None and spec.method == AUTO
    refine = functools.partial(layout_of_cells, samples) if by_cells else None
    threads = plain_threads()
    chunk, plan = whole_chunk(frame, spec, CLUSTERS, refine=refine, threads=threads)
    frames = frames_for(meta)

    def of_rows(found: Array) -> Series:
        return frames.series(*for_all_rows(found, frame, spec, -1), LABELS)

    if not plan.meets:
        xp = frames.xp
        none = xp.zeros(0, bool), xp.zeros(0, np.int32)
        return of_rows(xp.zeros(0, np.int64)), *none
    order = order_of(chunk)
    if plan.layout.method == "cells":
        labels, core = dbscan_by_cells(chunk, plan.layout, samples, threads)
        raise_if_none(plan.tables.warnings, lambda: _unequal_pairs(frame, spec))
        return of_rows(labels), core, order
    block_pair = whole_block_pair(chunk, spec, plan.layout)
    if weights is None:
        core = cores_of_chunk(block_pair, samples, threads)
    else:
        kept = kept_rows(frame, spec)
        given = weights if kept is None else weights[block_pair.xp.asarray(kept)]
        core = weighted_cores(block_pair, given, samples)[order]
    labels = dbscan_of_chunk(block_pair, core, threads)
    raise_if_none(plan.tables.warnings, lambda: _unequal_pairs(frame, spec))
    return of_rows(labels), core, order


def _unequal_pairs(frame: Frame, spec: JoinSpec) -> int:
    """Count the pairs of a plain frame, without pairs of equal rows."""
    with warnings.catch_warnings(action="ignore"):  # they have been issued
        chunk, plan = whole_chunk(frame, spec, COUNTS)
    return int(
        count_block_pairs(whole_block_pair(chunk, spec, plan.layout))
    ) - count_copies([frame], spec)


@frame_verb(OpticsRequest)
def optics(frame: Frame, request: OpticsRequest) -> Frame:
    """Order rows so that the order shows clusters at all distances up to `max_eps`:
    OPTICS.

    `cluster_optics_dbscan` and `cluster_optics_xi` in `dask_simjoin.cluster` extract
    clusters from the order.

    Parameters
    ----------
    max_eps : float
        Largest distance of neighbors, as `eps` in `self_join`.
    min_samples : int
        At least 2. A row is a core row if at least this many rows are within `max_eps`,
        counting the row itself.
    mode : {"auto", "edges", "forest"}
        The default, "auto", is "edges" for the metric "euclidean", and "forest" for
        others. "edges": the result of ``sklearn.cluster.OPTICS(max_eps=...,
        algorithm="kd_tree")``, including ties, with the exception that `dbscan`
        explains. It stores all edges, which take up to 32 bytes for each pair in each
        direction, in files if there are many. One task visits all rows. "forest": for
        larger data. It stores only a minimum spanning forest, so memory grows with the
        rows, not with the pairs. For every ``eps <= max_eps``, core rows and their
        clusters equal ``dbscan(eps, min_samples)``.
    on, by, id, dropna, method, partitioning, blocksize
        As in `self_join`. `id` has one effect only: its column is not a coordinate.
    metric, p
        As in `self_join`. Mode "edges" takes only "euclidean", or the equivalent
        "minkowski" with ``p=2``.

    Returns
    -------
    DataFrame
        One row per row of the frame, with its index and partitions. ``ordering``
        (int64) is the row's position in the ordering, or -1 for a row that `dropna`
        leaves out.
        ``reachability`` and ``core_distance`` (float64) are in the units of the metric.
        They are inf if they would exceed `max_eps`. ``predecessor`` (int64) is the
        number of the row from which this row was reached, or -1. In mode "forest", the
        core distance is the smallest `eps` that makes the row a core row, and the
        reachability is the smallest `eps` that joins it to earlier rows.

    Raises
    ------
    BudgetError
        During planning: the edges do not fit on the disk, or the rows do not fit in the
        memory of one worker.
    ScratchError
        A file of edges cannot be written. This error is also an OSError.

    Notes
    -----
    Ankerst, Breunig, Kriegel & Sander (1999), "OPTICS: ordering points to identify the
    clustering structure". Block pairs yield edges, also on GPUs. One task on one core
    of the host visits all rows. If edges are written to files, workers on several
    machines need a shared folder: Dask's configuration ``temporary-directory`` of the
    client. The client removes the files once the run is over, also if it is canceled or
    a worker is lost.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 9.0, 1.0, 3.0]})
    >>> df.simjoin.optics(5.0, min_samples=2)
       ordering  reachability  core_distance  predecessor
    0         0           inf            1.0           -1
    1         3           inf            inf           -1
    2         1           1.0            1.0            0
    3         2           2.0            2.0            2
    """
    meta = example_of(frame)
    samples, spec = request.samples(), request.spec(meta)
    mode = request.order(spec)
    max_eps = spec.eps
    if mode != FOREST:
        # a slightly larger eps also finds pairs whose core distances are later rounded
        # down to max_eps
        spec = replace(spec, eps=float(np.nextafter(max_eps, np.inf)))
    example = empty_result(meta, COLUMNS)
    example.index = meta.index[:0]
    if is_dask_collection(frame):
        from dask_simjoin.cluster.expressions.optics import Order
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze

        source = freeze(frame, spec.columns)
        return new_collection(
            Order(source.inner, source, spec, max_eps, samples, mode, example)
        )
    # the option that limits the bytes of a result applies to the ordered rows, not to
    # the pairs
    spec = replace(spec, settings=replace(spec.settings, result=MAX_BYTES))
    chunk, plan = whole_chunk(frame, spec, LISTS, sampled=mode != FOREST)
    frames = frames_for(meta)
    if not plan.meets:
        none = frames.xp.zeros((0, len(COLUMNS)), np.int64)
        return frames.rows(*order_of_all_rows(none, frame, spec), example)
    block_pair = whole_block_pair(chunk, spec, plan.layout)
    if mode == FOREST:
        found = forest_of_chunk(block_pair, samples, spec.measure)
    elif is_dense(block_pair, plan.result.estimate.total):
        found = optics_of_dense_chunk(block_pair, max_eps, samples)
    else:
        folder = new_folder(scratch_directory(), "whole", this_process())
        check_edges(
            plan.result.estimate.total_low, max_eps, IN_MEMORY, folder.path, free_at
        )
        limits = SpillLimits(folder.path, IN_MEMORY // 4, SORTED_EDGES)
        try:
            found = optics_of_chunk(block_pair, max_eps, samples, limits)
        finally:
            shutil.rmtree(folder.path, ignore_errors=True)
    return frames.rows(*order_of_all_rows(found, frame, spec), example)


def connected_components(pairs: Frame) -> Frame:
    """Group rows that are connected by pairs: the last step of de-duplication.

    Parameters
    ----------
    pairs : DataFrame
        A pandas, cuDF or Dask frame with columns ``left`` and ``right``, such as a
        result of `self_join`. A missing value (None, NaN, NaT, NA) is not an id. So a
        row without a match, as from ``how="left"``, is a group of its own.

    Returns
    -------
    DataFrame
        One row for each id that occurs in either column: ``id``, and ``component``
        (int64), the number of its group. Groups are numbered from 0 by their smallest
        ids. For a Dask DataFrame, the result is lazy and has one partition. The ids
        must fit in memory, but the pairs need not.

    Raises
    ------
    ColumnError, UnsupportedFrameError
        There is no column ``left`` or ``right``, or the type of the frame is not
        supported.

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
    given, pairs = pairs, as_frame(pairs, "pairs")
    meta = example_of(pairs)
    for name in ("left", "right"):
        if name not in meta.columns:
            raise ColumnError(
                f"The frame has no column {name!r}; pairs need the columns 'left' and "
                "'right', as in the "
                "result of self_join(). Pass such pairs, or rename the columns; the "
                "frame has "
                f"{listed(meta.columns)}."
            )
    pairs = pairs[["left", "right"]]
    if not is_dask_collection(pairs):
        return in_library_of(given, components_of_ids(pairs))
    return pairs.reduction(
        forest_of_ids,
        aggregate=components_of_ids,
        combine=forest_of_ids,
        meta=no_components(pairs._meta),
        split_every=16,
    )
