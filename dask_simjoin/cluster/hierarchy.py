"""Cluster by density without a fixed distance: HDBSCAN, spanning trees, and labels from OPTICS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.cluster.algorithms.condense import condense, tell_some, told_of_all
from dask_simjoin.cluster.algorithms.forest import Edges
from dask_simjoin.cluster.algorithms.optics import COLUMNS, columns_for, steep_clusters, whole_labels
from dask_simjoin.cluster.algorithms.spanning import (
    distances_of,
    in_order,
    known_of_whole,
    neighbors_needed,
    tree_of_chunk,
)
from dask_simjoin.cluster.expressions.optics import Extracted
from dask_simjoin.cluster.expressions.spanning import Hierarchy, Tree, edges_frame
from dask_simjoin.cluster.verbs import LABELS
from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.graph.base import series_example
from dask_simjoin.graph.dask_private import new_collection
from dask_simjoin.graph.source import freeze
from dask_simjoin.graph.verb import frame_verb
from dask_simjoin.metrics.norms import Frame, Ids, Series
from dask_simjoin.planning.checks import check_samples
from dask_simjoin.planning.outputs import tree_output
from dask_simjoin.request.clusters import HdbscanRequest, SpanningTreeRequest
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.messages import shown
from dask_simjoin.request.resolve import check_flag
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.request.units import as_number, check_whole
from dask_simjoin.tasks.chunks import whole_chunk

CLUSTERS: dict[str, Any] = {"label": np.int64, "probability": np.float64, "outlier_score": np.float64}
"""The columns of clusters."""

EDGES: dict[str, Any] = {"left": np.int64, "right": np.int64, "distance": np.float64}
"""The columns of a spanning tree."""


@frame_verb(HdbscanRequest)
def hdbscan(frame: Frame, asked: HdbscanRequest) -> Frame:
    """Clusters of rows by density, each at distances of its own: HDBSCAN.

    The clusters of ``sklearn.cluster.HDBSCAN(min_cluster_size, min_samples)``, found by an exact minimum
    spanning tree, and the outlier scores of the package hdbscan (GLOSH). Where several trees are least, as
    ties allow, one is chosen by the rows' order, and so results do not depend on partitions.

    Parameters
    ----------
    min_cluster_size : int
        How many rows a cluster has at least; at least 2.
    min_samples : int, optional
        A row's core distance is that of the nearest so many rows, itself included, as scikit-learn counts
        them and `dbscan` does; the package hdbscan counts others only, so that its 4 is 5 here. By default
        `min_cluster_size`. More than there are rows are refused; by default all rows are noise then.
    cluster_selection_method : {"eom", "leaf"}
        Whether clusters are those of the largest total stability ("excess of mass"), or the smallest ones.
    cluster_selection_epsilon : float
        Clusters are not split at distances below this, in the units of the metric, or with one: "2 km".
    max_cluster_size : int, optional
        Larger clusters are not chosen by "eom", but what they split into.
    allow_single_cluster : bool
        Whether all rows may be one cluster.
    on, id, metric, p, dropna, partitioning, blocksize
        As in `self_join`; `id` only says which column is no coordinate.

    Returns
    -------
    DataFrame
        With the frame's index and partitions, and a row for each of its rows (but for those that `dropna`
        leaves out): ``label`` (int64), the cluster, numbered by their first rows from 0, or -1 for noise;
        ``probability`` (float64), how well the row belongs to it, from 0 to 1; ``outlier_score`` (float64),
        from 0 to 1.

    Raises
    ------
    OptionError, BudgetError
        When planned: there are fewer rows than `min_samples`; the tree does not fit one worker.

    Notes
    -----
    Campello, Moulavi & Sander (2013), "Density-based clustering based on hierarchical density estimates";
    Campello, Moulavi, Zimek & Sander (2015), "Hierarchical density estimates for data clustering,
    visualization, and outlier detection". What comes to one worker is the tree, not the rows.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.5, 40.0, 41.0, 42.5, 90.0]})
    >>> df.simjoin.hdbscan(3, min_samples=2)["label"].tolist()
    [0, 0, 0, 1, 1, 1, -1]
    """
    meta = example_of(frame)
    least, samples, choice = asked.min_rows(), asked.samples(), asked.choice()
    spec, named = asked.spec(meta), None if asked.min_samples is None else samples
    none = frames_for(meta).result({name: np.zeros(0, kind) for name, kind in CLUSTERS.items()}, 0)
    example = none.copy()
    example.index = meta.index[:0]
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        return new_collection(Hierarchy(source.inner, source, spec, least, samples, choice, example, named))
    tree, ids = _whole_tree(frame, spec, samples, named, tell_some)
    if tree is None:
        return example
    weight, start, end = tree
    # what was needed before is let go of, step by step: the peak of memory is that of the largest step
    del tree
    away = distances_of(weight, spec.measure)
    del weight
    condensed = condense(*in_order(start, end, away), least, meta)
    del start, end, away
    told = told_of_all(condensed, choice)
    found = frames_for(meta).result(dict(zip(CLUSTERS, told, strict=True)), len(ids))
    found.index = ids
    return found


@frame_verb(SpanningTreeRequest)
def spanning_tree(frame: Frame, asked: SpanningTreeRequest) -> Frame:
    """The minimum spanning tree of all rows: single linkage, and friends of friends at every distance.

    With `min_samples` it is that of mutual reachability, from which `hdbscan` finds its clusters:
    `dask_simjoin.cluster.condensed_tree` makes them of it.

    Parameters
    ----------
    min_samples : int
        An edge is no shorter than either row's distance to the nearest so many rows, itself included; with
        1, the default, it is the distance of both. More than there are rows are refused.
    on, id, metric, p, dropna, partitioning, blocksize
        As in `self_join`; `id` only says which column is no coordinate.

    Returns
    -------
    DataFrame
        An edge a row, the shortest first, one less than there are rows: ``left`` and ``right`` (int64), the
        rows' numbers, counted from 0 without those that `dropna` leaves out, the smaller one first;
        ``distance`` (float64). Of a Dask DataFrame it is lazy and has one partition. Edges are in the order
        of (distance, left, right). Of several trees that are least the one is taken whose edges come first
        by what is compared, such as squares of distances, then by left and right: so there is one tree.

    Raises
    ------
    OptionError, BudgetError
        When planned: there are fewer rows than `min_samples`; the tree does not fit one worker.

    Notes
    -----
    March, Ram & Gray (2010), "Fast Euclidean minimum spanning tree: algorithm, analysis, and applications":
    Boruvka's rounds, in which each component finds its nearest row outside by trees of boxes.

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
    samples = asked.samples()
    spec = asked.spec(meta)
    example = frames_for(meta).result({name: np.zeros(0, kind) for name, kind in EDGES.items()}, 0)
    if is_dask_collection(frame):
        return new_collection(Tree(freeze(frame, spec.columns), spec, samples, example))
    tree, _ = _whole_tree(frame, spec, samples, samples)
    return example if tree is None else edges_frame(tree, spec.measure, example)


def _whole_tree(frame: Frame, spec: JoinSpec, samples: int, named: int | None,
                *prepared: Callable[[], object]) -> tuple[Edges | None, Ids]:  # fmt: skip
    """Find the tree of a plain frame, by places of its rows, if it has any, and what the rows are called.

    `named`: see `check_samples`.  `prepared`: see `known_of_whole`.
    """
    chunk, plan = whole_chunk(frame, spec, tree_output(neighbors_needed(samples)))
    check_samples(named, len(chunk["ids"]))
    if not len(chunk["ids"]):
        return None, chunk["ids"]
    chunk["id_keys"] = None  # rows are told in their order, and no id is looked up
    ids, known = chunk["ids"], known_of_whole(chunk, plan.layout, samples, prepared=prepared)
    return tree_of_chunk(chunk, 0, plan.layout, known, last=True), ids


def cluster_optics_dbscan(optics: Frame, eps: float) -> Series:
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
    if not 0 <= far < math.inf:
        raise OptionError(f"eps={shown(eps)} is not allowed; use a finite number >= 0, at most max_eps.")
    return _extracted(optics, far, {})


def cluster_optics_xi(optics: Frame, min_samples: int, *, xi: float = 0.05,
                      min_cluster_size: float | None = None,
                      predecessor_correction: bool = True) -> Series:  # fmt: skip
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
    corrected = check_flag("predecessor_correction", predecessor_correction)
    steep_clusters()  # it is missing now, and not when a lazy result is computed
    options = {
        "min_samples": samples, "xi": steepness, "min_cluster_size": size,
        "predecessor_correction": corrected,
    }  # fmt: skip
    return _extracted(optics, None, options)


def example_of_order(optics: Frame, columns: Iterable[str]) -> Frame:
    """Make the empty example of a result of `optics`; refuse what has not these columns of it."""
    meta = example_of(optics)
    for name in columns:
        if name not in meta.columns:
            raise ColumnError(f"The frame has no column {name!r}; give a whole result of optics().")
    return meta


def _extracted(optics: Frame, eps: float | None, options: dict[str, Any]) -> Series:
    meta = example_of_order(optics, COLUMNS)
    if not is_dask_collection(optics):
        return whole_labels(optics, eps, options, LABELS)
    example = series_example(meta, LABELS)
    source = freeze(optics, columns_for(eps))
    return new_collection(Extracted(source.inner, source, eps, options, example))
