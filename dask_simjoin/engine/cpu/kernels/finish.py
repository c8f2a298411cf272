"""Turns pairs of places in two indexes into labels of rows and distances."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.types import Array


@kernel
def label(q_order: Array, q_labels: Array, d_order: Array, d_labels: Array, same: bool, q_places: Array,
          d_places: Array, left: Array, right: Array) -> None:  # fmt: skip
    """Fill `left` and `right` with labels; with `same`, the smaller position comes first.

    `q_order`, `d_order`: positions, `q_labels`, `d_labels`: labels, both by place in an index.
    """
    for n in range(q_places.size):
        i, j = q_places[n], d_places[n]
        a, b = q_labels[i], d_labels[j]
        swap = same and d_order[j] < q_order[i]
        left[n] = b if swap else a
        right[n] = a if swap else b


@kernel
def orient(q_order: Array, d_order: Array, same: bool, q_places: Array, d_places: Array, q_first: int,
           d_first: int, left: Array, right: Array) -> None:  # fmt: skip
    """Fill `left` and `right` with places in a whole index, of whose parts those are that begin there.

    With `same`, the smaller position comes first.
    """
    for n in range(q_places.size):
        i, j = q_places[n], d_places[n]
        swap = same and d_order[j] < q_order[i]
        left[n] = d_first + j if swap else q_first + i
        right[n] = q_first + i if swap else d_first + j


@kernel
def gather(values: Array, places: Array, out: Array) -> None:
    """Fill `out` with the values at some places."""
    for n in range(places.size):
        out[n] = values[places[n]]


@kernel
def measure(q_y: Array, d_y: Array, q_places: Array, d_places: Array, norm: Kind, totals: Array) -> None:
    """Fill `totals`, by the norm's formula; `q_y`, `d_y` (n, d): coordinates by place.

    `norm`: see `totals.kind_of`.
    """
    dims = q_y.shape[1]
    for n in range(q_places.size):
        i, j = q_places[n], d_places[n]
        total = 0.0
        for k in range(dims):
            total = add_term(total, q_y[i, k] - d_y[j, k], norm)
        totals[n] = total


@kernel
def tally(left: Array, right: Array, totals: Array, limits: Array, by_row: bool, q_found: Array,
          d_found: Array) -> None:  # fmt: skip
    """Add pairs up by the first of some ascending limits that their totals are not above.

    `by_row`: to the numbers (n, limits) of both their rows, `left` and `right`; else to one row of them.
    """
    for n in range(totals.size):
        first, size = 0, limits.size
        while size > 1:  # no branch in it depends on a total, as such could not be guessed
            half = size >> 1
            first += half * (limits[first + half - 1] < totals[n])
            size -= half
        if by_row:
            q_found[left[n], first] += 1
            d_found[right[n], first] += 1
        else:
            q_found[0, first] += 1


@kernel
def scatter(order: Array, values: Array, out: Array) -> None:
    """Put values of some places of an index, which `order` begins with, into the order of all rows."""
    for i in range(values.size):
        out[order[i]] = values[i]
