"""Extract clusters from the order of OPTICS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.columns import numbers_of
from dask_simjoin.cluster.algorithms.optics import COLUMNS
from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.metrics.types import Frame, Series
from dask_simjoin.options.optional import optional
from dask_simjoin.tasks.fingerprints import PREDECESSOR


def at_distance(order: np.ndarray, reach: np.ndarray, core: np.ndarray, eps: float) -> np.ndarray:
    """Label (n,) the clusters at a smaller distance (Ankerst et al. 1999, section 4.3, figure 19).

    `order`: the rows in order, (n,).
    """
    labels = np.empty(len(order), np.int64)
    far, near = reach > eps, core <= eps
    labels[order] = np.cumsum((far & near)[order]) - 1
    labels[far & ~near] = -1
    return labels


def steep_clusters() -> Any:
    """Scikit-learn's function for clusters by steepness."""
    return optional("sklearn.cluster", "scikit-learn", "Clusters by steepness").cluster_optics_xi


def by_steepness(
    order: np.ndarray, reach: np.ndarray, predecessor: np.ndarray, options: dict[str, Any]
) -> np.ndarray:
    """Label (n,) the clusters between steep parts of the plot (section 4.3.2), by scikit-learn."""
    if not len(order):
        return order
    for name in ("min_samples", "min_cluster_size"):
        number = options.get(name)
        if number is not None and number > len(order):
            raise OptionError(
                f"{name}={number} is not allowed of {len(order)} rows; use at most as many as there are, or "
                "eps= and cluster_optics_dbscan()."
            )
    known = {"reachability": reach, "predecessor": predecessor, "ordering": order}
    found: np.ndarray = steep_clusters()(**known, **options)[0]
    return found.astype(np.int64)


def columns_for(eps: float | None) -> list[str]:
    """List the columns of a result that labels depend on, at a distance or (None) by steepness."""
    return [name for name in COLUMNS if eps is None or name != PREDECESSOR]


def labels_of(parts: Sequence[Frame], eps: float | None, options: dict[str, Any]) -> np.ndarray:
    """Label the rows of a result of OPTICS in parts, at a distance or (None) by steepness."""
    place, reach, core, *predecessor = (
        np.concatenate([numbers_of(part, name, COLUMNS[name], "optics()") for part in parts])
        for name in columns_for(eps)
    )
    number = len(place)
    if place.min(initial=0) < 0 or (np.bincount(place, minlength=number) != 1).any():
        raise ColumnError(
            f"The column 'ordering' of {number:,} rows is no order of them; give all rows of one result of "
            "optics()."
        )
    order = np.empty(number, np.int64)
    order[place] = np.arange(number)
    if eps is not None:
        return at_distance(order, reach, core, eps)
    return by_steepness(order, reach, predecessor[0], options)


def whole_labels(frame: Frame, eps: float | None, options: dict[str, Any], name: str) -> Series:
    """Label the rows of a whole result of OPTICS, as a Series."""
    frames = frames_for(frame)
    return frames.series(frames.xp.asarray(labels_of([frame], eps, options)), frame.index, name)
