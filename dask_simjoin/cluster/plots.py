"""Plot what helps to choose the distances of clusterings; this needs matplotlib."""

from __future__ import annotations

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.cluster.condensed_plot import plot_condensed_tree
from dask_simjoin.cluster.optics_labels import cluster_optics_dbscan, example_of_order
from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.types import Frame, Series
from dask_simjoin.options.optional import Axes, new_axes

__all__ = ["plot_condensed_tree", "plot_k_distances", "plot_reachability"]

MAX_DRAWN = 100_000
"""Points of a curve, and bars: a picture shows no more of them."""


def plot_k_distances(distances: Series, ax: Axes = None) -> Axes:
    """The distances of rows to their k-th neighbours, sorted: the knee is where clusters end.

    Parameters
    ----------
    distances : Series
        As `SimJoinAccessor.k_distances` gives it; a lazy one is computed.
    ax : matplotlib.axes.Axes, optional
        Where to draw; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The share of the rows (%) from left to right, from the largest distance on, and the distance, in the
        units of the columns.

    Notes
    -----
    Ester, Kriegel, Sander & Xu (1996), "A density-based algorithm for discovering clusters in large spatial
    databases with noise", section 4.2: the sorted k-dist graph.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask_simjoin.cluster.plots import plot_k_distances
    >>> distances = pd.Series([0.1, 0.2, 0.1, 5.0], name="k_distance")
    >>> plot_k_distances(distances).get_ylabel()  # doctest: +SKIP
    'k_distance'
    """
    name = str(distances.name or "distance")
    away = np.sort(_values(distances))[::-1]
    away = away[np.isfinite(away)]
    shown = np.unique(np.linspace(0, len(away) - 1, min(len(away), MAX_DRAWN)).astype(int))
    ax = new_axes(ax)
    ax.plot(100 * shown / max(1, len(away) - 1), away[shown])
    ax.set(xlabel="rows (%)", ylabel=name, title="Sorted distances to the k-th neighbour", ylim=(0, None))
    return ax


def plot_reachability(optics: Frame, eps: float | None = None, ax: Axes = None) -> Axes:
    """The reachability of rows in the order of OPTICS: clusters are valleys.

    Parameters
    ----------
    optics : DataFrame
        As `SimJoinAccessor.optics` gives it; a lazy one is computed.
    eps : float, optional
        A distance at which to cut: it is drawn, and rows are coloured by their clusters there.
    ax : matplotlib.axes.Axes, optional
        Where to draw; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        Places in the order from left to right, and reachability, in the units of the columns. Rows that
        are reached from none have no bar.

    Notes
    -----
    Ankerst, Breunig, Kriegel & Sander (1999), "OPTICS: ordering points to identify the clustering
    structure", section 4.1: the reachability plot.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> from dask_simjoin.cluster.plots import plot_reachability
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 6.0]})
    >>> plot_reachability(df.simjoin.optics(5.0, min_samples=2)).get_ylabel()  # doctest: +SKIP
    'reachability'
    """
    example_of_order(optics, ("ordering", "reachability"))
    if is_dask_collection(optics):
        optics = optics.compute()
    place, reach = _values(optics["ordering"]), _values(optics["reachability"])
    order = np.argsort(place)
    number = len(order)
    reach = reach[order]
    labels = np.zeros(number, np.int64)
    if eps is not None:
        labels = _values(cluster_optics_dbscan(optics, eps))[order]
    # of neighbours in the order that are drawn at one place, the one that is reached from furthest
    step = max(1, number // MAX_DRAWN)
    starts = np.arange(0, number, step)
    finite = np.where(np.isfinite(reach), reach, -1.0)
    most = np.maximum.reduceat(finite, starts) if number else finite
    group = np.repeat(most, np.diff(np.append(starts, number)))
    where = np.flatnonzero((finite == group) & (finite >= 0))
    where = where[np.unique(where // step, return_index=True)[1]]
    colours = np.where(labels[where] < 0, -1, labels[where] % 9)
    ax = new_axes(ax)
    for colour in np.unique(colours):
        some = where[colours == colour]
        ax.vlines(some, 0, reach[some], colors="silver" if colour < 0 else f"C{colour}", linewidth=0.5)
    if eps is not None:
        ax.axhline(eps, color="black", linewidth=0.8, linestyle="--", label=f"eps={eps:g}")
        ax.legend()
    ax.set(xlabel="place in the order", ylabel="reachability", title="Reachability", ylim=(0, None))
    return ax


def _values(column: Series) -> np.ndarray:
    if is_dask_collection(column):
        column = column.compute()
    values: np.ndarray = to_host(column.values)
    return values
