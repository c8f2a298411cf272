"""Plots of condensed trees, and plots that help to choose a distance; they need
matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dask_simjoin.calls.tables import table_of
from dask_simjoin.cluster.algorithms.condensed_tree import (
    Condensed,
    chosen_clusters,
    condensed_of,
    example_of_result,
)
from dask_simjoin.cluster.hierarchy import cluster_optics_dbscan
from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.clusters import HdbscanRequest
from dask_simjoin.request.columns import Axes, new_axes, optional
from dask_simjoin.sizes import BATCH


def plot_condensed_tree(
    condensed: Frame,
    ax: Axes = None,
    *,
    select_clusters: bool = True,
    log_size: bool = False,
    **choice: Any,
) -> Axes:
    """Plot the tree of clusters from sparse to dense: splits, sizes, and chosen
    clusters.

    Parameters
    ----------
    condensed : DataFrame
        A complete result of `condensed_tree`; a lazy frame is computed.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on; default: a new figure.
    select_clusters : bool
        Whether an ellipse marks each chosen cluster.
    log_size : bool
        Whether the widths of bars are logarithms of numbers of rows.
    **choice
        Options of `choose_clusters`, which chooses the clusters to mark.

    Returns
    -------
    matplotlib.axes.Axes
        Lambda (1 / distance) grows from top to bottom. The width and the brightness of
        a bar show the number of rows of a cluster.

    Notes
    -----
    The plot is like ``condensed_tree_.plot()`` of the package hdbscan. For icicle plots
    see Kruskal & Landwehr (1983), "Icicle plots: better displays for hierarchical
    clustering", The American Statistician 37.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> from dask_simjoin.cluster import condensed_tree
    >>> from dask_simjoin.cluster.plots import plot_condensed_tree
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 10.0, 12.0]})
    >>> plot_condensed_tree(condensed_tree(df.simjoin.spanning_tree(), 2)).get_ylabel()  # doctest: +SKIP
    'lambda (1 / distance)'
    """
    selection = HdbscanRequest(min_cluster_size=2, **choice).choice()
    tree = condensed_of(table_of(condensed).computed())
    finite = tree.row_lambda[np.isfinite(tree.row_lambda)]
    most = 1.1 * float(max(finite.max(initial=0.0), tree.birth.max(initial=0.0))) or 1.0
    tree = tree._replace(
        row_lambda=np.minimum(tree.row_lambda, most), birth=np.minimum(tree.birth, most)
    )
    centre, leaves = _centres(tree)
    ax = new_axes(ax)
    bars = list(_bars(tree))
    cluster, bottom, top, rows = (
        np.array(column) for column in zip(*bars, strict=True)
    )
    width, most_wide = (
        np.log(1 + some) if log_size else some for some in (rows, tree.rows)
    )
    colours = optional("matplotlib", "matplotlib", "Plots").colormaps["viridis"](
        width / most_wide[0]
    )
    # spread the positions, so that not even the widest bars overlap
    at = centre * float((most_wide / leaves).max())
    ax.bar(
        at[cluster],
        top - bottom,
        width,
        bottom,
        color=colours,
        align="center",
        linewidth=0,
    )
    for c, p in enumerate(tree.parent.tolist()):
        if p >= 0:
            ax.plot([at[p], at[c]], [tree.birth[c]] * 2, color="black", linewidth=1)
    if select_clusters:
        measured = chosen_clusters(tree, selection)
        chosen, death = measured.chosen, measured.death
        ellipse = optional("matplotlib.patches", "matplotlib", "Plots").Ellipse
        for c in np.flatnonzero(chosen).tolist():
            own = width[cluster == c].max(initial=0.0)
            height = death[c] - tree.birth[c]
            centre_of = (at[c], (death[c] + tree.birth[c]) / 2)
            ax.add_patch(
                ellipse(
                    centre_of,
                    1.2 * own,
                    1.2 * height,
                    fill=False,
                    edgecolor="red",
                    linewidth=1.5,
                )
            )
    ax.set(
        xticks=[],
        ylabel="lambda (1 / distance)",
        title="Condensed tree",
        ylim=(most, 0),
    )
    return ax


def _centres(tree: Condensed) -> tuple[np.ndarray, np.ndarray]:
    """Return the x position of each cluster, and the number of leaves in the tree below
    it.

    Clusters that do not split are placed side by side. A cluster that splits is
    centered above its children, weighted by their numbers of leaves.
    """
    number = len(tree.parent)
    children: list[list[int]] = [[] for _ in range(number)]
    for c in range(1, number):
        children[tree.parent[c]].append(c)
    centre, below, leaves, todo = np.zeros(number), np.ones(number), 0, [0]
    while todo:
        c = todo.pop()
        todo += children[c][::-1]
        if not children[c]:
            centre[c] = leaves
            leaves += 1
    for c in range(number - 1, -1, -1):
        if children[c]:
            below[c] = sum(below[child] for child in children[c])
            centre[c] = (
                sum(below[child] * centre[child] for child in children[c]) / below[c]
            )
    return centre, below


def _bars(tree: Condensed) -> Iterator[tuple[int, float, float, int]]:
    """Yield the bars as (cluster, lower and upper end in 1 / distance, number of rows)."""
    order = np.lexsort((tree.row_lambda, tree.row_parent))
    ends = np.searchsorted(tree.row_parent[order], np.arange(len(tree.parent) + 1))
    splits = np.full(len(tree.parent), np.nan)
    splits[tree.parent[1:]] = tree.birth[1:]
    for c, (begin, end) in enumerate(
        zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ):
        fallen = tree.row_lambda[order[begin:end]]
        last = fallen[-1] if np.isnan(splits[c]) else splits[c]
        height, rows = float(tree.birth[c]), int(tree.rows[c])
        # draw each cluster as at most 30 bars
        cuts = np.unique(np.linspace(0, len(fallen), 30 + 1).astype(int))[:-1].tolist()
        for cut in cuts:
            to = float(fallen[cut])
            if to > height:
                yield c, height, to, rows - cut
                height = to
        if last > height:
            yield (
                c,
                height,
                float(last),
                rows - len(fallen) if not np.isnan(splits[c]) else 1,
            )


__all__ = ["plot_condensed_tree", "plot_k_distances", "plot_reachability"]


def plot_k_distances(distances: Series, ax: Axes = None) -> Axes:
    """Plot the sorted distances of rows to their k-th neighbors. The knee is where
    clusters end.

    Parameters
    ----------
    distances : Series
        A result of `SimJoinAccessor.k_distances`; a lazy Series is computed.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The x axis is the share of rows (%), beginning with the largest distance. The y
        axis is the distance, in the units of the columns.

    Notes
    -----
    Ester, Kriegel, Sander & Xu (1996), "A density-based algorithm for discovering
    clusters in large spatial databases with noise", section 4.2: the sorted k-dist
    graph.

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
    shown = np.unique(np.linspace(0, len(away) - 1, min(len(away), BATCH)).astype(int))
    ax = new_axes(ax)
    ax.plot(100 * shown / max(1, len(away) - 1), away[shown])
    ax.set(
        xlabel="rows (%)",
        ylabel=name,
        title="Sorted distances to the k-th neighbor",
        ylim=(0, None),
    )
    return ax


def plot_reachability(optics: Frame, eps: float | None = None, ax: Axes = None) -> Axes:
    """Plot the reachability of rows in the order of OPTICS. Clusters are valleys.

    Parameters
    ----------
    optics : DataFrame
        A complete result of `SimJoinAccessor.optics`; a lazy frame is computed.
    eps : float, optional
        A distance to draw as a line; rows get the colors of their clusters at that
        distance.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The x axis is the position in the ordering. The y axis is the reachability, in
        the units of the columns. Rows that were not reached from another row have no
        bar.

    Notes
    -----
    Ankerst, Breunig, Kriegel & Sander (1999), "OPTICS: ordering points to identify the
    clustering structure", section 4.1: the reachability plot.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> from dask_simjoin.cluster.plots import plot_reachability
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 6.0]})
    >>> plot_reachability(df.simjoin.optics(5.0, min_samples=2)).get_ylabel()  # doctest: +SKIP
    'reachability'
    """
    example_of_result(optics, ("ordering", "reachability"), "optics()")
    optics = table_of(optics).computed()
    place, reach = _values(optics["ordering"]), _values(optics["reachability"])
    # rows that `dropna` leaves out have no position in the ordering
    order = np.argsort(place, kind="stable")[np.count_nonzero(place < 0) :]
    number = len(order)
    reach = reach[order]
    labels = np.zeros(number, np.int64)
    if eps is not None:
        labels = _values(cluster_optics_dbscan(optics, eps))[order]
    # several rows share a pixel; draw only the largest reachability among them
    step = max(1, number // BATCH)
    starts = np.arange(0, number, step)
    finite = np.where(np.isfinite(reach), reach, -1.0)
    largest = np.maximum.reduceat(finite, starts) if number else finite
    group = np.repeat(largest, np.diff(np.append(starts, number)))
    where = np.flatnonzero((finite == group) & (finite >= 0))
    where = where[np.unique(where // step, return_index=True)[1]]
    colors = np.where(labels[where] < 0, -1, labels[where] % 9)
    ax = new_axes(ax)
    for color in np.unique(colors):
        some = where[colors == color]
        ax.vlines(
            some,
            0,
            reach[some],
            colors="silver" if color < 0 else f"C{color}",
            linewidth=0.5,
        )
    if eps is not None:
        ax.axhline(
            eps, color="black", linewidth=0.8, linestyle="--", label=f"eps={eps:g}"
        )
        ax.legend()
    ax.set(
        xlabel="position in the ordering",
        ylabel="reachability",
        title="Reachability",
        ylim=(0, None),
    )
    return ax


def _values(column: Series) -> np.ndarray:
    return to_host(table_of(column).computed().values)
