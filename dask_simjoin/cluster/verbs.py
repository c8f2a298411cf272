"""Define the verbs that cluster rows: lazy for Dask DataFrames, immediate for plain
frames.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from dask_simjoin.calls.decorators import frame_verb, series_verb
from dask_simjoin.calls.examples import series_example
from dask_simjoin.calls.inputs import as_frame
from dask_simjoin.calls.results import in_library_of
from dask_simjoin.calls.tables import table_of
from dask_simjoin.cluster.algorithms.condensed_tree import empty_result
from dask_simjoin.cluster.algorithms.optics import COLUMNS, FOREST
from dask_simjoin.cluster.distances import DISTANCES
from dask_simjoin.engine.compat import to_host
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.clusters import DbscanRequest, HdbscanRequest, OpticsRequest
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.messages import listed
from dask_simjoin.tasks.counts import (
    components_of_ids,
    forest_of_ids,
    no_components,
)
from dask_simjoin.tasks.left_out import kept_rows


def kept_points(
    frame: Frame,
    request: DbscanRequest | HdbscanRequest,
    columns: list[Hashable] | None = None,
) -> Frame:
    """Return the rows that `dropna` keeps, with some columns; None: the coordinates."""
    spec = request.spec(example_of(frame))
    kept = kept_rows(frame, spec)
    rows = frame if kept is None else frame[kept]
    return rows[list(spec.named) if columns is None else columns]


def kept_positions(
    frame: Frame, request: DbscanRequest | HdbscanRequest, some: np.ndarray
) -> np.ndarray:
    """Return the positions in the frame of some of the rows that `dropna` keeps.
    `some`: positions among these rows.
    """
    kept = kept_rows(frame, request.spec(example_of(frame)))
    return some if kept is None else np.flatnonzero(to_host(kept))[some]


LABELS = "label"


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
    within, different
        As in `self_join`. With a tolerance for times, this is ST-DBSCAN.
    on, metric, id, by, dropna, p, box, threads, blocksize, partitioning, method
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
    Gu & Shun (2020), "Theoretically-efficient and practical parallel DBSCAN".

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
    return DISTANCES.of([frame], spec).labels(samples, example)


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
    within, different
        As in `self_join`: rows are neighbors only if these columns allow it.
    metric, p
        As in `self_join`. Mode "edges" takes only "euclidean", or the equivalent
        "minkowski" with ``p=2``.
    on, id, by, dropna, box, threads, blocksize, partitioning, method
        As in `self_join`. `id` has one effect only: its column is not a coordinate.

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
        During planning: the edges, or the rows, do not fit in the memory of one worker.

    Notes
    -----
    Ankerst, Breunig, Kriegel & Sander (1999), "OPTICS: ordering points to identify the
    clustering structure". Block pairs yield edges, also on GPUs. One task on one core
    of the host visits all rows.

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
        spec = spec.with_eps(float(np.nextafter(max_eps, np.inf)))
    example = empty_result(meta, COLUMNS)
    example.index = meta.index[:0]
    driver = DISTANCES.of([frame], spec)
    return driver.order(max_eps, samples, mode, example)


def _not_pairs(columns: list[Any], missing: list[str]) -> str:
    """Return the message about a frame that does not hold pairs."""
    text = (
        "connected_components() takes pairs, in the columns 'left' and 'right', but "
        f"the columns are {listed(columns)}. "
    )
    free = [name for name in columns if name not in ("left", "right")]
    if len(free) == len(missing):
        new = dict(zip(free, missing, strict=True))
        text += f"If these are pairs, rename them: pairs.rename(columns={new!r}). "
    else:
        text += (
            "If two of these are the ids of pairs, rename them to 'left' and 'right'. "
        )
    return text + (
        "If each row is a point or a text, make pairs first, for example "
        "connected_components(frame.simjoin.self_join(eps)). Or use "
        "frame.simjoin.dbscan(eps, min_samples=1), which returns the group of each row."
    )


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
    if missing := [name for name in ("left", "right") if name not in meta.columns]:
        raise ColumnError(_not_pairs(list(meta.columns), missing))
    found = table_of(pairs[["left", "right"]]).reduced(
        forest_of_ids,
        forest_of_ids,
        components_of_ids,
        meta=lambda: no_components(meta[["left", "right"]]),
        split_every=16,
    )
    return in_library_of(given, found)
