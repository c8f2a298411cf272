"""Nearest neighbours by joins: each of growing eps, for the rows that have too few neighbours yet.

Written once for NumPy and CuPy, on what a backend's joins offer.  Where a backend has a search of its own,
as the CPU has, that is faster.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.backends.base import Backend
from dask_simjoin.norms import Norm, add, power

Index = dict[str, Any]

SAMPLE_QUERIES, SAMPLE_POINTS = 256, 4096
"""Rows from whose distances the first eps is guessed."""

GROWTH = 4.0
"""How many times as many neighbours a larger eps should give."""

CROWDED = 64
"""Times so many pairs as are sought: then eps was too large."""

FEW = 8
"""Neighbours that are sought at least, when pairs are counted."""

SLOW = 0.9
"""Share of the rows that may be left after a join; else eps grows faster."""

LEAST = 1e-300
"""The total within which neighbours are sought first where none can be guessed."""

BRUTE = 1 << 24
"""Pairs of rows up to which all are compared rather than guessing on."""

WORN = 64
"""Joins after which the rest is compared with everything."""


@dataclass(frozen=True)
class JoinedLayout:
    """Moments of all points and the norm: each join makes a layout for its eps from them."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    mean: tuple[float, ...]
    variance: tuple[float, ...]
    norm: Norm = 2

    @property
    def method(self) -> str:
        """The engine's name."""
        return "tiles"

    def arrays(self) -> tuple[np.ndarray, ...]:
        """The moments as a backend's `layout` takes them."""
        return tuple(np.array(some) for some in (self.lower, self.upper, self.mean, self.variance))


def plain_index(x: Any, xp: Any) -> Index:
    """Index of a chunk: its points as they are, since each join has another eps."""
    return {"order": xp.arange(len(x), dtype=np.int32), "y": xp.ascontiguousarray(x)}


class JoinSearcher:
    """See `Searcher`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def layout(self, lower: Any, upper: Any, mean: Any, variance: Any, sample: Any,
               norm: Norm = 2) -> JoinedLayout:  # fmt: skip
        a, b, c, d = (tuple(np.asarray(some).tolist()) for some in (lower, upper, mean, variance))
        return JoinedLayout(a, b, c, d, norm)

    def renamed(self, index: Index, names: Any) -> Index:
        if isinstance(names, int):
            names = self._backend.xp.arange(len(index["y"])) + names
        return index | {"names": names}

    def fresh(self, rows: int, k: int) -> tuple[Any, Any]:
        xp = self._backend.xp
        return xp.full((rows, k), np.inf), xp.full((rows, k), -1, np.int64)

    def nearest(self, q: Index, d: Index, layout: JoinedLayout, best_d2: Any, best_name: Any, *,
                same: bool, bound2: float = math.inf) -> None:  # fmt: skip
        n, m, k = len(q["y"]), len(d["y"]), best_d2.shape[1]
        if not (n and m and k):
            return
        xp = self._backend.xp
        y = d["y"]
        lower, upper = y.min(axis=0), y.max(axis=0)
        # nothing of `d` is nearer to a row than its box, nor further than the box's far end
        near, far = _to_box(q["y"], lower, upper, layout.norm, xp)
        active = xp.flatnonzero((near <= best_d2[:, -1]) & (near <= bound2))
        if not len(active):
            return
        furthest = min(float(far[active].max()), bound2)
        eps, growth = self._guess(q["y"][active], y, k, layout.norm), GROWTH ** (1 / y.shape[1])
        for attempt in itertools.count():
            limit = float(power(eps, layout.norm))
            last = limit >= furthest or len(active) * m <= BRUTE or attempt > WORN
            limit = furthest if last else limit
            some = _Queries(active, q, d, layout, limit, self._backend)
            crowded = CROWDED * max(k, FEW) * len(active)
            if not last and attempt < WORN // 2 and some.pairs() > crowded:
                eps /= growth
                continue
            some.improve(best_d2, best_name, same, bound2)
            if last:
                return
            left = active[best_d2[active, -1] > limit]
            left = left[near[left] <= best_d2[left, -1]]
            if not len(left):
                return
            if len(left) > SLOW * len(active):
                growth *= growth  # those that are far from everything
            active, eps = left, eps * growth

    def _guess(self, queries: Any, y: Any, k: int, norm: Norm) -> float:
        """An eps within which rows have some two times `k` neighbours, about."""
        xp = self._backend.xp
        n, dims = y.shape
        some = queries[:: -(-len(queries) // SAMPLE_QUERIES)]
        points = y[:: -(-n // SAMPLE_POINTS)]
        wanted = 2 * (k + 1) * len(points) / n
        place = min(len(points) - 1, math.ceil(wanted) - 1)
        away = xp.zeros((len(some), len(points)))
        with np.errstate(over="ignore"):
            for column in range(dims):
                away = add(away, xp.abs(some[:, column, None] - points[None, :, column]), norm)
            away.sort(axis=1)
            typical = float(xp.median(away[:, place]))
        root = 1.0 if norm == math.inf else 1 / norm
        shrunk = typical**root * min(1.0, wanted) ** (1 / dims)
        return shrunk if 0 < shrunk < math.inf else LEAST**root


class _Queries:
    """Some rows of a chunk, joined with another chunk."""

    def __init__(self, rows: Any, q: Index, d: Index, layout: JoinedLayout, limit: float,
                 backend: Backend) -> None:  # fmt: skip
        self._rows, self._backend = rows, backend
        self._names, self._d_names = q["names"][rows], d["names"]
        lower, upper, mean, variance = layout.arrays()
        self._layout = backend.layout("auto", lower, upper, mean, variance, limit, layout.norm)
        self._q = backend.build(q["y"][rows], self._layout)
        self._d = backend.build(d["y"], self._layout)

    def pairs(self) -> int:
        """How many pairs there are."""
        return int(self._backend.counts(self._q, self._d, self._layout, same=False)[0].sum())

    def improve(self, best_d2: Any, best_name: Any, same: bool, bound2: float) -> None:
        """Improve what is known of the rows."""

        def visitor(left: Any, right: Any, totals: Any) -> None:
            rows, names = self._rows[left], self._d_names[right]
            kept = totals <= best_d2[rows, -1]
            if same:
                kept &= names != self._names[left]
            if bound2 < math.inf:
                kept &= totals <= bound2
            if bool(kept.any()):
                _merge(rows[kept], totals[kept], names[kept], best_d2, best_name, self._backend.xp)

        self._backend.visit(self._q, self._d, self._layout, visitor, same=False)


def _merge(rows: Any, totals: Any, names: Any, best_d2: Any, best_name: Any, xp: Any) -> None:
    """Put candidates of rows among the nearest that those rows have, by (total, name)."""
    k = best_d2.shape[1]
    touched, place = xp.unique(rows, return_inverse=True)
    known = xp.isfinite(best_d2[touched]) | (best_name[touched] >= 0)
    old = xp.nonzero(known)
    place = xp.concatenate([place.reshape(-1), old[0]])
    totals = xp.concatenate([totals, best_d2[touched][known]])
    names = xp.concatenate([names, best_name[touched][known]])
    # a name met twice, by two joins, is one neighbour
    order = _sorted([names, totals, place], xp)
    place, totals, names = place[order], totals[order], names[order]
    again = xp.zeros(len(place), bool)
    again[1:] = (place[1:] == place[:-1]) & (names[1:] == names[:-1])
    place, totals, names = place[~again], totals[~again], names[~again]
    starts = xp.searchsorted(place, xp.arange(len(touched)))
    at = xp.arange(len(place)) - starts[place]
    first = at < k
    d2, called = xp.full((len(touched), k), np.inf), xp.full((len(touched), k), -1, np.int64)
    d2[place[first], at[first]] = totals[first]
    called[place[first], at[first]] = names[first]
    best_d2[touched], best_name[touched] = d2, called


def _sorted(keys: list[Any], xp: Any) -> Any:
    """The order by the last key, then the one before it, and so on."""
    order = xp.argsort(keys[0], kind="stable")
    for key in keys[1:]:
        order = order[xp.argsort(key[order], kind="stable")]
    return order


def _to_box(x: Any, lower: Any, upper: Any, norm: Norm, xp: Any) -> tuple[Any, Any]:
    """Least and largest totals of points and a box: bounds as computed, as rounding is monotone."""
    near, far = xp.zeros(len(x)), xp.zeros(len(x))
    with np.errstate(over="ignore"):
        for k in range(x.shape[1]):
            below, above = lower[k] - x[:, k], x[:, k] - upper[k]
            near = add(near, xp.maximum(xp.maximum(below, above), 0.0), norm)
            far = add(far, xp.maximum(xp.abs(x[:, k] - lower[k]), xp.abs(x[:, k] - upper[k])), norm)
    return near, far
