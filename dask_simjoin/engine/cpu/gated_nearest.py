"""Nearest rows among those that gates allow: see `dask_simjoin.metrics.gates`.

The rows of a chunk are in the order of a kd tree, which cuts the coordinates and also
the values of tolerances. So its boxes are narrow in both, and a search skips boxes that
are too far away, or whose rows no gate allows. If rows have few pairs within their
largest distance, searches visit these pairs instead.
"""

from __future__ import annotations

import math

import numpy as np

from dask_simjoin.engine.cpu.gated import (
    method_of,
    rules_of,
    terms_of,
    values_in,
)
from dask_simjoin.engine.cpu.kernels import gated_nearest as kernels
from dask_simjoin.engine.cpu.kernels.gates import Values
from dask_simjoin.engine.cpu.kernels.nearest import Best, empty_heap
from dask_simjoin.engine.cpu.kernels.nearest_scan import Range
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.order import kd_order
from dask_simjoin.engine.gated import (
    GatedSearch,
    PairsSearch,
    columns_of_index,
    decided_by,
)
from dask_simjoin.engine.index.cpu_tiles import CUTS
from dask_simjoin.engine.index.kdtree import dims_to_cut
from dask_simjoin.metrics.gates import (
    RELATIVE,
    TIMES,
    UNLIKE,
    Gate,
    Gates,
    log_tolerance,
    logarithms,
)
from dask_simjoin.metrics.norms import Index
from dask_simjoin.sizes import SAMPLED

FAN_OUT = kernels.FAN_OUT

EVEN = math.sqrt(12)
"""Width of evenly spread values, in standard deviations."""


def build(x: np.ndarray, layout: GatedSearch | PairsSearch, threads: int = 1) -> Index:
    """Index the points of a chunk. The index serves as queries and as data.

    With `PairsSearch`, the index of the join is in "joined", and its positions are
    places of this index. With `GatedSearch`, rows are in kd order. "y" (n, columns) has
    the columns that the metric compares, and "values" (n, gates) has the values of
    gates. "low ..." and "high ..." are their bounds in the nodes of the tree. "least"
    has the smallest row ids, and "nodes" the first node of each level.
    """
    if isinstance(layout, PairsSearch):
        joined = method_of(layout.layout).build(x, layout.layout, threads)
        order = joined["order"][: len(x)].astype(np.int64)
        joined["order"] = np.arange(len(joined["order"]), dtype=np.int32)
        return {"names": order, "order": order, "points": x[order], "joined": joined}
    _, measured = columns_of_index(layout, x.shape[1])
    found = decided_by(x, x, np.arange(len(x)), layout)
    y = found.get("numbers", x[:, :measured])
    values = found["values"][:, : len(layout.gates.rules)]
    order = _order(y, values, layout.gates, threads)
    index: Index = {"names": order, "order": order}
    index |= {"y": np.ascontiguousarray(y[order]), "values": values[order]}
    rows = values_in(index["y"], index["values"])
    for name, some in zip(rows._fields, rows, strict=True):
        index[f"low {name}"] = _by_node(some, np.minimum)
        index[f"high {name}"] = _by_node(some, np.maximum)
    levels = _levels(order, np.minimum)
    index["nodes"] = np.cumsum([0, *map(len, levels)])
    return index | {"least": np.concatenate(levels or [order])}


def smallest_names(names: np.ndarray) -> np.ndarray:
    """Return the smallest row id in each node of the tree, of row ids in kd order."""
    return _by_node(names, np.minimum)


def _by_node(rows: np.ndarray, smallest: np.ufunc) -> np.ndarray:
    return np.concatenate(_levels(rows, smallest) or [rows])


def _levels(rows: np.ndarray, smallest: np.ufunc) -> list[np.ndarray]:
    """Return the smallest or largest values of the nodes of each level, from the leaves
    to the root; no level if there are no rows.
    """
    found: list[np.ndarray] = []
    while len(rows) and (len(rows) > 1 or not found):
        # times as floats may be NaN, and are not used
        with np.errstate(invalid="ignore"):
            rows = smallest.reduceat(rows, np.arange(0, len(rows), FAN_OUT))
        found.append(rows)
    return found


def _order(y: np.ndarray, values: np.ndarray, gates: Gates, threads: int) -> np.ndarray:
    """Return the kd order of rows. It cuts their coordinates, and the values of
    tolerances after these are scaled: see `_factors`.
    """
    dims, n = y.shape[1], len(y)
    if n <= FAN_OUT:
        return np.arange(n)
    ranges = [
        (_column(rule, values[:, g]), _range(rule))
        for g, rule in enumerate(gates.rules)
        if rule.kind != UNLIKE
    ]
    x = np.empty((n, dims + len(ranges)))
    x[:, :dims] = y
    for k, (column, _) in enumerate(ranges, dims):
        x[:, k] = column
    some = slice(None, None, max(1, n // SAMPLED))
    with np.errstate(over="ignore", invalid="ignore"):
        factors = _factors(x[some], n, [range_ for _, range_ in ranges])
        x[:, dims:] *= factors
        cut = dims_to_cut(np.var(x[some], axis=0), x[some])
    return kd_order(x, cut.first(n, FAN_OUT, CUTS), FAN_OUT, 2, threads)


def _column(rule: Gate, values: np.ndarray) -> np.ndarray:
    if rule.kind == TIMES:
        return values
    numbers = values.view(np.float64)
    return logarithms(numbers) if rule.kind == RELATIVE else numbers


def _range(rule: Gate) -> float:
    """Return how long the interval of values is that a gate allows a row."""
    if rule.kind == RELATIVE:
        return 2 * log_tolerance(rule.high)
    return float(rule.high) - float(rule.low)


def _factors(sample: np.ndarray, rows: int, ranges: list[float]) -> list[float]:
    """Return what the last columns, whose queries have these ranges, are multiplied by.

    A tree has the fewest boxes in a query if its boxes have the shape of the query. In
    the coordinates, a query is about as wide as the boxes of `FAN_OUT` rows of its
    ranges.
    """
    widths = np.std(sample, axis=0) * EVEN
    dims = sample.shape[1] - len(ranges)
    parts = [
        min(max(range_ / width, 1 / rows), 1.0) if width > 0 else 1.0
        for width, range_ in zip(widths[dims:], ranges, strict=True)
    ]
    wide = np.sort(widths[:dims])
    # not the widest one, which may be the column of groups
    near = float(wide[(dims - 1) // 2]) if dims else 1.0
    near /= max(1.0, rows * math.prod(parts) / FAN_OUT) ** (1 / max(1, dims))
    return [
        near / (part * float(width)) if 0 < width < math.inf and near > 0 else 1.0
        for part, width in zip(parts, widths[dims:], strict=True)
    ]


def nearest(
    q: Index,
    d: Index,
    layout: GatedSearch | PairsSearch,
    best_d2: np.ndarray,
    best_name: np.ndarray,
    *,
    is_self_join: bool,
    least2: float = 0.0,
    bound2: float = math.inf,
) -> None:
    """Update the neighbors of the queries `q` with nearer rows of `d`: see
    `Searcher.nearest`.
    """
    if not (len(q["names"]) and len(d["names"]) and best_d2.shape[1]):
        return
    limits, best = Range(float(least2), float(bound2)), Best(best_d2, best_name)
    if isinstance(layout, PairsSearch):
        _among_pairs(q, d, layout, is_self_join, limits, best)
        return
    asking = kernels.Asking(
        values_in(q["y"], q["values"]), q["order"], q["names"], not is_self_join
    )
    low, high = (
        Values(*(d[f"{end} {name}"] for name in Values._fields))
        for end in ("low", "high")
    )
    kernels.search(
        asking,
        kernels.Searched(
            values_in(d["y"], d["values"]),
            d["names"],
            kernels.Boxes(low, high, d["least"], d["nodes"]),
        ),
        rules_of(layout.gates),
        terms_of(layout.compared, q["y"].shape[1]),
        limits,
        kind_of(layout.norm),
        best,
        empty_heap(len(d["least"]) + 1),
    )


def _among_pairs(
    q: Index,
    d: Index,
    layout: PairsSearch,
    is_self_join: bool,
    limits: Range,
    best: Best,
) -> None:
    method, own = method_of(layout.layout), layout.layout
    queries = q.get("joined")
    if queries is None:  # a part of an index
        queries = method.build(q["points"], own)
    places = queries["order"][: len(q["names"])]
    names, rows = q["names"][places], q["order"][places].astype(np.int64)

    def insert(left: np.ndarray, right: np.ndarray, totals: np.ndarray) -> None:
        kernels.insert_pairs(
            left, right, totals, limits, rows, names, not is_self_join, d["names"], best
        )

    method.show(queries, d["joined"], own, False, insert)
