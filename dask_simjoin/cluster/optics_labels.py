"""Label the clusters of rows that OPTICS put in order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dask.base import is_dask_collection

from dask_simjoin.cluster.algorithms.extract import columns_for, steep_clusters, whole_labels
from dask_simjoin.cluster.algorithms.optics import COLUMNS
from dask_simjoin.cluster.expressions.extract import Extracted
from dask_simjoin.cluster.verbs import LABELS
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.expressions.dask_private import new_collection
from dask_simjoin.expressions.examples import series_example
from dask_simjoin.expressions.source import freeze
from dask_simjoin.metrics.types import Frame, Series
from dask_simjoin.options.frames import example_of
from dask_simjoin.options.messages import shown
from dask_simjoin.options.resolve import check_flag
from dask_simjoin.options.validate import as_number, check_whole


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
