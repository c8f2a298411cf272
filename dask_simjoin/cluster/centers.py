"""Describe the clusters of HDBSCAN: their persistence, exemplars, centroids and medoids."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from dask_simjoin.cluster.algorithms.condensed_tree import (
    ChosenClusters,
    Condensed,
)
from dask_simjoin.metrics.norms import add
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.matches import measured

BLOCK = 1 << 20
"""Number of distances that are in memory at the same time."""


def persistence(
    tree: Condensed, stability: np.ndarray, chosen: ChosenClusters, labels: np.ndarray
) -> np.ndarray:
    """Return the stability of each chosen cluster (clusters,), divided by the largest
    that its labeled rows can have: 0 to 1. `stability`: of each cluster of the tree.
    """
    places = _places(chosen)
    most = float(max(tree.row_lambda.max(initial=0.0), tree.birth.max(initial=0.0)))
    rows = np.bincount(labels[labels >= 0], minlength=len(places))
    if most in (0.0, np.inf):
        return np.ones(len(places))
    return np.divide(
        stability[places], rows * most, out=np.ones(len(places)), where=rows > 0
    )


def exemplars(tree: Condensed, chosen: ChosenClusters) -> list[np.ndarray]:
    """Return the rows of each chosen cluster that stay longest in one of its leaves.

    A leaf is a cluster of the tree that does not split. See the package hdbscan.
    """
    is_leaf = np.ones(len(tree.parent), bool)
    is_leaf[tree.parent[1:]] = False
    own = tree.row_parent
    within = chosen.of[own]
    is_last = is_leaf[own] & (within >= 0) & (tree.row_lambda == chosen.death[own])
    rows = np.flatnonzero(is_last)
    names = chosen.names[within[rows]]
    return [rows[names == name] for name in range(len(_places(chosen)))]


def _places(chosen: ChosenClusters) -> np.ndarray:
    """Return the numbers of the chosen clusters in the tree, in the order of labels."""
    places = np.flatnonzero(chosen.names >= 0)
    return places[np.argsort(chosen.names[places])]


def centroids(x: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean of each cluster (clusters, columns), weighted by `weights` (n,).
    `x`: columns of coordinates (n, columns).
    """
    found = [
        np.average(x[rows], axis=0, weights=weights[rows])
        for rows in _rows_of_clusters(labels)
    ]
    return np.array(found).reshape(-1, x.shape[1])


def medoids(
    x: np.ndarray, labels: np.ndarray, weights: np.ndarray, spec: JoinSpec
) -> np.ndarray:
    """Return the row of each cluster (clusters,) whose weighted sum of distances to the
    other rows of the cluster is least; of several, the first one.

    `x`: columns of coordinates (n, columns); `spec`: has the metric.
    """
    points = spec.measure.embed(x, np)
    return np.array(
        [
            rows[np.argmin(_sums(points[rows], weights[rows], spec))]
            for rows in _rows_of_clusters(labels)
        ],
        np.int64,
    )


def _sums(points: np.ndarray, weights: np.ndarray, spec: JoinSpec) -> np.ndarray:
    """Return the weighted sum of the distances from each point to all points."""
    norm, convert, found = spec.measure.norm, measured(spec, np), []
    step = max(1, BLOCK // len(points))
    for start in range(0, len(points), step):
        some = points[start : start + step]
        total = np.zeros((len(some), len(points)))
        for k in range(points.shape[1]):
            total = add(total, np.abs(some[:, None, k] - points[:, k]), norm)
        found.append((convert(total) * weights).sum(axis=1))
    return np.concatenate(found)


def _rows_of_clusters(labels: np.ndarray) -> Iterator[np.ndarray]:
    order = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[order], np.arange(labels.max(initial=-1) + 2))
    for start, stop in itertools.pairwise(bounds):
        yield order[start:stop]
