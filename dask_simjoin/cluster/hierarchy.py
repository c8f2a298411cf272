"""Cluster by density without a fixed distance: HDBSCAN, spanning trees, and labels from
OPTICS.
"""

from __future__ import annotations

import math
from typing import Any

from dask_simjoin.calls.decorators import frame_verb
from dask_simjoin.calls.examples import series_example
from dask_simjoin.cluster.algorithms.condensed_tree import (
    CLUSTERS,
    EDGES,
    empty_result,
    example_of_result,
)
from dask_simjoin.cluster.algorithms.optics import (
    COLUMNS,
    Extraction,
    steep_clusters,
)
from dask_simjoin.cluster.distances import DISTANCES, EXTRACTION
from dask_simjoin.cluster.verbs import LABELS
from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.clusters import Choice, HdbscanRequest, SpanningTreeRequest
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.messages import shown
from dask_simjoin.request.options import check_whole
from dask_simjoin.request.resolve import check_flag
from dask_simjoin.request.units import as_number


@frame_verb(HdbscanRequest)
def hdbscan(frame: Frame, request: HdbscanRequest) -> Frame:
    """Cluster rows by density, without a fixed distance: HDBSCAN.

    Clusters are the same as by ``sklearn.cluster.HDBSCAN(min_cluster_size,
    min_samples)``. The minimum spanning tree is exact. Outlier scores are the GLOSH
    scores of the package hdbscan. The order of rows breaks ties between minimum
    spanning trees, so results do not depend on partitions.

    Parameters
    ----------
    min_cluster_size : int
        Smallest number of rows in a cluster; at least 2.
    min_samples : int, optional
        The core distance of a row is the distance to its `min_samples`-th nearest row.
        The row itself counts as the first, as in scikit-learn and `dbscan`. The package
        hdbscan does not count the row itself, so ``min_samples=4`` there corresponds to
        5 in this package. Default: `min_cluster_size`; if the frame has fewer rows than
        this default, all rows are noise. If you pass a value above the number of rows,
        an error is raised.
    cluster_selection_method : {"eom", "leaf"}
        "eom" (excess of mass) chooses the clusters with the largest total stability,
        "leaf" the leaves of the tree of clusters.
    cluster_selection_epsilon : float
        Clusters are not split at distances below this one. It is in the units of the
        metric, or has a unit: "2 km".
    max_cluster_size : int, optional
        With "eom", clusters with more rows are split.
    allow_single_cluster : bool
        Whether all rows may be one cluster.
    on, metric, id, dropna, p, threads, blocksize, partitioning
        As in `self_join`. `id` has one effect only: its column is not a coordinate.

    Returns
    -------
    DataFrame
        One row per row of the frame, with its index and partitions. ``label`` (int64)
        is the cluster, or -1 for noise; clusters are numbered from 0 by their first
        rows. ``probability`` (float64) is the strength of membership, from 0 to 1.
        ``outlier_score`` (float64) is from 0 to 1. Rows that `dropna` leaves out have
        the label -1, the probability 0 and the outlier score NaN.

    Raises
    ------
    OptionError, BudgetError
        During planning: there are fewer rows than `min_samples`, or the tree does not
        fit in the memory of one worker.

    Notes
    -----
    Campello, Moulavi & Sander (2013), "Density-based clustering based on hierarchical
    density estimates"; Campello, Moulavi, Zimek & Sander (2015), "Hierarchical density
    estimates for data clustering, visualization, and outlier detection". One worker
    receives the tree, but not the rows.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.5, 40.0, 41.0, 42.5, 90.0]})
    >>> df.simjoin.hdbscan(3, min_samples=2)["label"].tolist()
    [0, 0, 0, 1, 1, 1, -1]
    """
    driver, options = hierarchy_driver(frame, request)
    return driver.hierarchy(*options)


def hierarchy_driver(
    frame: Frame, request: HdbscanRequest
) -> tuple[Any, tuple[int, int, Choice, int | None, Frame]]:
    """Return the driver of HDBSCAN, and the options of its method `hierarchy`."""
    meta = example_of(frame)
    min_rows, samples, choice = request.min_rows(), request.samples(), request.choice()
    spec, named = request.spec(meta), None if request.min_samples is None else samples
    example = empty_result(meta, CLUSTERS)
    example.index = meta.index[:0]
    return DISTANCES.of([frame], spec), (min_rows, samples, choice, named, example)


@frame_verb(SpanningTreeRequest)
def spanning_tree(frame: Frame, request: SpanningTreeRequest) -> Frame:
    """Return the minimum spanning tree of all rows. It gives the single-linkage
    clusters at every distance.

    With `min_samples`, edges are mutual reachability distances, as in `hdbscan`.
    `dask_simjoin.cluster.condensed_tree` condenses it to clusters.

    Parameters
    ----------
    min_samples : int
        The core distance of a row is the distance to its `min_samples`-th nearest row,
        counting the row itself. The length of an edge is the largest of the distance of
        its two rows and their core distances. If `min_samples` is 1, the default, the
        length is the distance of the rows. A value above the number of rows raises an
        error.
    on, metric, id, dropna, p, threads, blocksize, partitioning
        As in `self_join`. `id` has one effect only: its column is not a coordinate.

    Returns
    -------
    DataFrame
        One row per edge, sorted by (distance, left, right). ``left`` and ``right``
        (int64) are row numbers, the smaller first, counted from 0 without rows that
        `dropna` leaves out. ``distance`` is float64. For a Dask DataFrame the result is
        lazy and has one partition. If there are several minimum spanning trees, the
        result is always the same one. Edges are chosen by the compared values, such as
        squared distances, then by left and right.

    Raises
    ------
    OptionError, BudgetError
        During planning: there are fewer rows than `min_samples`, or the tree does not
        fit in the memory of one worker.

    Notes
    -----
    March, Ram & Gray (2010), "Fast Euclidean minimum spanning tree: algorithm,
    analysis, and applications". In each round of Boruvka's algorithm, every component
    finds the nearest row outside it. Trees of boxes speed up this search.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 5.0, 1.0, 7.0]})
    >>> df.simjoin.spanning_tree()
       left  right  distance
    0     0      2       1.0
    1     1      3       2.0
    2     1      2       4.0
    """
    meta = example_of(frame)
    samples = request.samples()
    spec = request.spec(meta)
    example = empty_result(meta, EDGES)
    return DISTANCES.of([frame], spec).tree(samples, example)


def cluster_optics_dbscan(optics: Frame, eps: float) -> Series:
    """Label clusters at a smaller distance, from a result of `optics`.

    Parameters
    ----------
    optics : DataFrame
        A complete result of `SimJoinAccessor.optics`.
    eps : float
        The distance to extract clusters for, at most the `max_eps` of the call of
        `optics`.

    Returns
    -------
    Series
        int64, named "label", aligned with `optics`; lazy if `optics` is lazy. Labels
        equal ``sklearn.cluster.cluster_optics_dbscan``. With ``mode="forest"``, core
        rows are in the same clusters as with ``dbscan(eps)``, but clusters have other
        numbers. With ``mode="edges"``, as in scikit-learn, clusters may differ slightly
        from ``dbscan(eps)``.

    Notes
    -----
    Ankerst et al. (1999), "OPTICS: ordering points to identify the clustering
    structure", section 4.3. One task receives the columns of all rows.

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
    if not 0 <= far < math.inf:
        raise OptionError(
            f"eps={shown(eps)} is not allowed; use a finite number >= 0, at most "
            "max_eps."
        )
    return _extracted(optics, far, {})


def cluster_optics_xi(
    optics: Frame,
    min_samples: int,
    *,
    xi: float = 0.05,
    min_cluster_size: float | None = None,
    predecessor_correction: bool = True,
) -> Series:
    """Label clusters between steep parts of the reachability plot, from a result of
    `optics`.

    Parameters
    ----------
    optics : DataFrame
        A complete result of `SimJoinAccessor.optics`.
    min_samples, xi, min_cluster_size, predecessor_correction
        As in ``sklearn.cluster.cluster_optics_xi``, which this calls: scikit-learn must
        be installed.

    Returns
    -------
    Series
        int64, named "label", aligned with `optics`; lazy if `optics` is lazy.

    Notes
    -----
    Ankerst et al. (1999), "OPTICS: ordering points to identify the clustering
    structure", section 4.3.2. One task receives the columns of all rows.

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
    if not 0 <= steepness < 1:  # scikit-learn divides by 1 - xi, so 1 is not allowed
        raise OptionError(
            f"xi={shown(xi)} is not allowed; use a number from 0 to 1, and below 1."
        )
    samples = check_whole("min_samples", min_samples, 2)
    size = min_cluster_size
    if size is not None:
        share = as_number(size)
        size = share if 0 < share <= 1 else check_whole("min_cluster_size", size, 2)
    corrected = check_flag("predecessor_correction", predecessor_correction)
    # if scikit-learn is missing, raise the error here instead of in a task
    steep_clusters()
    options = {"min_samples": samples, "xi": steepness, "min_cluster_size": size}
    options["predecessor_correction"] = corrected
    return _extracted(optics, None, options)


def _extracted(optics: Frame, eps: float | None, options: dict[str, Any]) -> Series:
    meta = example_of_result(optics, COLUMNS, "optics()")
    how = Extraction(eps, options, series_example(meta, LABELS))
    return EXTRACTION.of([optics], how)
