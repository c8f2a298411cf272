"""Near duplicates by their definition."""

import numpy as np

from tests.support.density import labels_of_neighbours


def order_of(keep, rows, values=None):
    """Return the rows in the order of visits; `values` are of the kept column, or NaN."""
    if keep in ("first", "last"):
        return np.arange(rows)[:: 1 if keep == "first" else -1]
    values = np.asarray(values, float)
    return np.lexsort(
        (np.arange(rows), np.where(np.isnan(values), np.inf, -values), np.isnan(values))
    )


def marked(near, order, grouping="greedy"):
    """Return which rows are duplicates; `near` (n, n) marks rows near each other,
    themselves included.
    """
    gone = np.ones(len(near), bool)
    if grouping == "greedy":
        for i in order:
            gone[i] = near[i, ~gone].any()
        return gone.tolist()
    groups = np.array(labels_of_neighbours(near, 1), int)[order]
    gone[order[np.unique(groups, return_index=True)[1]]] = False
    return gone.tolist()
