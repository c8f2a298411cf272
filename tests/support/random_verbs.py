"""Verbs with random options on random frames, and their results by the definition."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import dask_simjoin
from dask_simjoin.cluster import choose_clusters, condensed_tree
from dask_simjoin.metrics import make_metric
from tests.support.density import labels_of_neighbours as labels_of
from tests.support.duplicates import marked, order_of
from tests.support.hierarchy import tree_by_definition
from tests.support.oracle import distances, totals
from tests.support.random_conditions import NO_CONDITIONS, Conditions
from tests.support.random_frames import WORDS, Draw
from tests.support.random_optics import sklearn_optics
from tests.support.random_sets import (
    SET_VERBS,
    AskedSets,
    best_pairs,
    frame_of,
    greedy_pairs,
    wanted_counts,
)

METRICS = ["euclidean"] * 6 + [
    "sqeuclidean",
    "manhattan",
    "chebyshev",
    "minkowski",
    "cosine",
    "haversine",
]

GROUPED = (
    "self_join",
    "join",
    "knn_join",
    "neighbor_counts",
    "count_pairs",
    "dbscan",
    "near_duplicated",
    "neighbor_graph",
    "connected_components",
    "optics",
    "closest_pairs",
)
"""Verbs that take `by`."""

GROUPINGS = ["greedy", "connected"]

INEXACT = ("minkowski", "haversine")
"""Metrics with exact pairs, whose distances may differ by a few units in the last
place.
"""


class Skipped(Exception):
    """Raised for a case without anything to compare with."""


class Side(NamedTuple):
    """A table: the frame that a verb meets, its rows, those that take part, their names
    and their groups.
    """

    lazy: Any
    frame: pd.DataFrame
    x: np.ndarray
    used: np.ndarray
    ids: list[Any]
    groups: list[Any]


class Want(NamedTuple):
    """A verb's result, and the expected one; `kind` says how to compare them."""

    kind: str
    lazy: Any
    value: Any


def grouping_columns(draw: Draw, on: list[Any], dropna: bool) -> Any:
    """Draw the columns that must be equal in both rows; columns of words have missing
    values.
    """
    some = [None] * 6 + ["g", "s", ["s", "r"], on[0]]
    return draw.one("by", [*some, WORDS] if dropna else some)


def side_of(
    lazy: Any,
    frame: pd.DataFrame,
    on: list[Any],
    id: Any,
    metric: str,
    dropna: bool,
    by: Any = None,
    tolerances: tuple[Any, ...] = (),
) -> Side:
    """Return the coordinates of a table."""
    columns = [frame[name].to_numpy(dtype=float, na_value=math.nan) for name in on]
    x = np.stack(columns, 1) if len(frame) else np.zeros((0, len(on)))
    used = np.isfinite(x).all(1)
    if metric == "cosine":
        used &= (x != 0).any(1)
    within = [] if by is None else by if isinstance(by, list) else [by]
    used &= frame[[*within, *tolerances]].notna().to_numpy().all(1)
    groups = list(zip(*(frame[name][used].tolist() for name in within), strict=True))
    names = (frame.index if id is None else frame[id]).tolist()
    if not used.all() and not dropna:
        raise ValueError("holes must be left out")
    ids = [name for name, use in zip(names, used, strict=True) if use]
    return Side(lazy, frame, x[used], used, ids, groups)


def an_eps(draw: Draw, metric: str, p: Any, one: Side, other: Side) -> float:
    """Draw a distance of two rows, or one next to it, or another."""
    away = distances(one.x, other.x, metric, p).ravel()
    away = away[away < 1e150]
    some = ["a distance", "a distance", "a little less", "a little more"]
    kind = draw.one("eps is", [*some, "zero", "one", "two"])
    if kind == "zero":
        return 0.0
    if kind in ("one", "two") or not len(away):
        return {"two": 2.0}.get(kind, 1.0)
    rank = draw.one("rank", [0.01, 0.05, 0.1, 0.1, 0.4])
    eps = float(
        np.partition(away, int(rank * (len(away) - 1)))[int(rank * (len(away) - 1))]
    )
    steps = {"a little less": 0.0, "a little more": math.inf}
    return math.nextafter(eps, steps[kind]) if kind in steps else eps


def picked(frame: pd.DataFrame, used: np.ndarray, rows: Any, name: Any) -> list[Any]:
    """Return the values of a kept column."""
    return frame[name][used].iloc[rows].tolist()


def kept_names(keep: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the kept columns of left rows and of right rows: name in the result ->
    column.
    """
    sides = keep if isinstance(keep, dict) else {"left": keep, "right": keep}
    left, right = (
        [] if names is None else [names] if isinstance(names, str) else names
        for names in (sides.get("left"), sides.get("right"))
    )
    return (
        {f"{name}_left" if name in right else name: name for name in left},
        {f"{name}_right" if name in left else name: name for name in right},
    )


NO_CLUSTER = {"label": -1, "probability": 0.0, "outlier_score": math.nan}
NO_ORDER = {
    "ordering": -1,
    "reachability": math.inf,
    "core_distance": math.inf,
    "predecessor": -1,
}
"""The results of clusterings for rows without coordinates."""


def of_all_rows(values: np.ndarray, used: np.ndarray, fill: Any) -> np.ndarray:
    """Return the values of all rows, given those of the rows with coordinates."""
    found = np.full(len(used), fill, values.dtype)
    found[used] = values
    return found


def frame_of_all_rows(values: pd.DataFrame, side: Side, fill: Any) -> pd.DataFrame:
    """Do the same for several columns."""
    columns = {
        name: of_all_rows(values[name].to_numpy(), side.used, fill[name])
        for name in values.columns
    }
    return pd.DataFrame(columns, side.frame.index)


class Verbs:
    """The verbs.  Each draws its options, and returns its result with the expected one."""

    def __init__(
        self,
        draw: Draw,
        one: Side,
        other: Side,
        on: list[Any],
        id: Any,
        metric: str,
        p: Any,
        how: dict[str, Any],
        eps: float,
        ordered: bool,
        conditions: Conditions = NO_CONDITIONS,
    ) -> None:
        self.draw, self.one, self.other, self.on, self.id = draw, one, other, on, id
        self.metric, self.p, self.eps, self.ordered = metric, p, eps, ordered
        self.how = {"on": on, "metric": metric, "p": p} | how | conditions.options
        self.conditions = conditions
        self.kind = make_metric(metric, p)

    def near(self, one: Side, other: Side, eps: Any = None) -> np.ndarray:
        """Return which rows of two tables are within eps (n, m)."""
        limit = self.kind.threshold(self.eps if eps is None else eps)
        limit = limit[:, None] if np.ndim(limit) else limit
        found = totals(one.x, other.x, self.metric, self.p) <= limit
        found &= self.alike(one, other)
        if one is other:  # whatever must differ, a row is near itself
            np.fill_diagonal(found, True)
        return found

    def alike(self, one: Side, other: Side) -> np.ndarray:
        """Return which rows of two tables share a group (n, m), if there are groups, and
        meet the conditions.
        """
        allowed = self.conditions.allowed(
            *(side.frame[side.used] for side in (one, other))
        )
        if "by" not in self.how:
            return allowed
        numbers: dict[Any, int] = {}
        first, second = (
            [numbers.setdefault(group, len(numbers)) for group in side.groups]
            for side in (one, other)
        )
        same = np.array(first, int)[:, None] == np.array(second, int)
        return allowed & same

    def away(self, one: Side, other: Side) -> np.ndarray:
        return distances(one.x, other.x, self.metric, self.p)

    def engine(self) -> dict[str, Any]:
        """Draw a method that serves the metric and the columns."""
        dims = (3 if self.metric == "haversine" else len(self.on)) + ("by" in self.how)
        dims += len(self.conditions.within) + (self.metric == "braycurtis")
        names = ["auto", "tiles", "grid", "nested_loop", "zorder", "kmeans"] + [
            "sweep"
        ] * (dims <= 4)
        return {"method": self.draw.one("method", names)}

    def searcher(self) -> dict[str, Any]:
        """Draw a method that searches neighbors."""
        return {"method": self.draw.one("method", ["auto", "auto", "tiles", "zorder"])}

    def radius(self) -> tuple[Any, Any]:
        """Draw the argument `eps`, and its values."""
        served = self.metric in ("euclidean", "manhattan") and "by" not in self.how
        if served and self.draw.chance("radius", 0.15):
            return "r", self.one.frame["r"].to_numpy(float)[self.one.used]
        return self.eps, None

    def keeping(self, two: bool) -> dict[str, Any]:
        """Draw the kept columns."""
        keep = self.draw.one(
            "keep",
            [
                *(None, None, ["s"], ["g", "s"], "key", ["r", "key"]),
                {"left": ["s", "g"], "right": "g"},
                {"right": ["r", "key"]},
            ],
        )
        return {"keep": keep} if keep is not None else {}

    def pairs(
        self,
        one: Side,
        other: Side,
        near: np.ndarray,
        how: dict[str, Any],
        distance: bool,
    ) -> Any:
        """Return a frame of pairs, from a matrix."""
        i, j = np.nonzero(near)
        columns: dict[Any, Any] = {
            "left": [one.ids[k] for k in i.tolist()],
            "right": [other.ids[k] for k in j.tolist()],
        }
        if distance:
            columns["distance"] = self.away(one, other)[i, j]
        sides = (one, i), (other, j)
        for names, (side, rows) in zip(kept_names(how.get("keep")), sides, strict=True):
            columns |= {
                called: picked(side.frame, side.used, rows, name)
                for called, name in names.items()
            }
        return pd.DataFrame(columns)

    def self_join(self) -> Want:
        draw, one = self.draw, self.one
        eps, radii = self.radius()
        both = radii is not None or not self.ordered or draw.chance("both", 0.4)
        both = both or self.conditions.one_sided
        how = {
            "pairs": "both" if both else "unique",
            "include_self": draw.chance("include_self", 0.3),
            "return_distance": draw.chance("return_distance", 0.6),
        } | self.keeping(False)
        near = self.near(one, one, radii)
        near &= ~np.eye(len(near), dtype=bool)
        near = near if both else np.triu(near, 1)
        if how["include_self"]:
            near |= np.eye(len(near), dtype=bool)
        lazy = one.lazy.simjoin.self_join(
            eps, id=self.id, **how, **self.how, **self.engine()
        )
        return Want(
            "pairs", lazy, self.pairs(one, one, near, how, how["return_distance"])
        )

    def join(self) -> Want:
        draw, one, other = self.draw, self.one, self.other
        eps, radii = self.radius()
        ways = ["inner", "left", "leftsemi", "leftanti"]
        way = draw.one("how", ways if radii is not None else [*ways, "right", "outer"])
        how: dict[str, Any] = {"how": way}
        if way not in ("leftsemi", "leftanti"):
            how |= {
                "return_distance": draw.chance("return_distance", 0.6)
            } | self.keeping(True)
        near = self.near(one, other, radii)
        if way not in ("leftsemi", "leftanti") and draw.chance("matching", 0.25):
            how["matching"] = "greedy"
            self.check_unique(one, other)
            near = self.matched(one, other, near)
        lazy = one.lazy.simjoin.join(
            other.lazy, eps, id=self.id, **how, **self.how, **self.engine()
        )
        if way in ("leftsemi", "leftanti"):
            hit = of_all_rows(near.any(1), one.used, False)
            return Want("rows", lazy, one.frame[hit if way == "leftsemi" else ~hit])
        want = self.pairs(one, other, near, how, how["return_distance"])
        if way in ("left", "outer"):
            want = self.with_alone(want, near.any(1), how.get("keep"))
        if way in ("right", "outer"):
            want = self.with_alone(want, near.any(0), how.get("keep"), "right")
        return Want("pairs", lazy, want)

    def check_unique(self, *sides: Side) -> None:
        if not all(pd.Index(self.every_name(side)).is_unique for side in sides):
            raise Skipped("of a lazy frame only some ids are compared")

    def matched(self, one: Side, other: Side, near: np.ndarray) -> np.ndarray:
        """Return which rows of two tables are matched one to one (n, m)."""
        if self.metric in INEXACT:
            raise Skipped("totals may differ by an ulp, and so their order")
        total = totals(one.x, other.x, self.metric, self.p)
        i, j = np.nonzero(near)
        found = np.zeros_like(near)
        for n in np.lexsort((j, i, total[i, j])).tolist():
            if not (found[i[n]].any() or found[:, j[n]].any()):
                found[i[n], j[n]] = True
        return found

    def with_alone(
        self, pairs: pd.DataFrame, hit: np.ndarray, keep: Any, which: str = "left"
    ) -> Any:
        """Add the rows of a table without a match, and those without coordinates.
        `hit`: the rows with coordinates that have a match, or all rows that have one.
        """
        side = self.one if which == "left" else self.other
        every = len(hit) == len(side.frame)
        alone = np.flatnonzero(~(hit if every else of_all_rows(hit, side.used, False)))
        ids = self.every_name(side)
        own = {which: [ids[k] for k in alone.tolist()]}
        names = kept_names(keep)[which == "right"]
        own |= {
            called: side.frame[name].iloc[alone].tolist()
            for called, name in names.items()
        }
        if not len(alone):
            return pairs
        more = pd.DataFrame(own).reindex(columns=pairs.columns).astype(object)
        return pd.concat([pairs.astype(object), more]) if len(pairs) else more

    def knn_join(self) -> Want:
        draw, one = self.draw, self.one
        two, k = draw.chance("two tables", 0.5), draw.one("k", [1, 2, 3, 7])
        other = self.other if two else one
        bound = draw.one(
            "max_distance",
            [None, None, self.eps] if "by" not in self.how else [self.eps],
        )
        how = self.keeping(two)
        alike = self.alike(one, other)
        total = totals(one.x, other.x, self.metric, self.p)
        limit = math.inf if bound is None else self.kind.threshold(bound)
        found = np.zeros((0, 3), int).tolist()
        for i in range(len(one.x)):
            order = np.argsort(total[i], kind="stable").tolist()
            order = [
                j
                for j in order
                if (two or i != j) and total[i, j] <= limit and alike[i, j]
            ][:k]
            found += [(i, j, rank + 1) for rank, j in enumerate(order)]
        i, j, rank = np.array(found, int).reshape(-1, 3).T
        columns: dict[Any, Any] = {
            "left": [one.ids[n] for n in i.tolist()],
            "right": [other.ids[n] for n in j.tolist()],
            "rank": rank,
            "distance": self.away(one, other)[i, j],
        }
        sides = (one, i), (other, j)
        for names, (side, rows) in zip(kept_names(how.get("keep")), sides, strict=True):
            columns |= {
                called: picked(side.frame, side.used, rows, name)
                for called, name in names.items()
            }
        way = draw.one("how", ["inner", "inner", "left", "leftanti"])
        if way == "leftanti":
            how = {}
        lazy = one.lazy.simjoin.knn_join(
            other.lazy if two else None,
            k,
            how=way,
            max_distance=bound,
            id=self.id,
            **how,
            **self.how,
            **self.searcher(),
        )
        hit = np.isin(np.arange(len(one.x)), i)
        if way == "leftanti":
            return Want("rows", lazy, one.frame[~of_all_rows(hit, one.used, False)])
        want = pd.DataFrame(columns)
        if way == "left":
            want = self.with_alone(want, hit, how.get("keep"))
        return Want("pairs", lazy, want)

    def closest_pairs(self) -> Want:
        draw, one = self.draw, self.one
        two, n = draw.chance("two tables", 0.5), draw.one("n", [1, 3, 20, 10_000])
        other = self.other if two else one
        self.check_unique(one, other)
        bound = draw.one(
            "max_distance",
            [None, None, self.eps] if "by" not in self.how else [self.eps],
        )
        total = totals(one.x, other.x, self.metric, self.p)
        near = self.alike(one, other) & (
            total <= (math.inf if bound is None else self.kind.threshold(bound))
        )
        i, j = np.nonzero(near if two else np.triu(near, 1))
        order = np.lexsort((j, i, total[i, j]))[:n]
        near[:] = False
        near[i[order], j[order]] = True
        how = self.keeping(two)
        lazy = one.lazy.simjoin.closest_pairs(
            n,
            other.lazy if two else None,
            max_distance=bound,
            id=self.id,
            **how,
            **self.how,
            **self.searcher(),
        )
        return Want("pairs", lazy, self.pairs(one, other, near, how, True))

    def series(self, values: Any, name: str | None, fill: Any) -> pd.Series:
        """Return the values of the rows with coordinates, and `fill` for the others."""
        one = self.one
        found = of_all_rows(np.asarray(values), one.used, fill)
        return pd.Series(found, one.frame.index, name=name)

    def neighbor_counts(self) -> Want:
        eps, radii = self.radius()
        if radii is None and self.draw.chance("several", 0.3):
            return self.several_counts()
        other, more = self.counted()
        lazy = self.one.lazy.simjoin.neighbor_counts(
            eps, **more, **self.how, **self.engine()
        )
        counts = self.near(self.one, other, radii).sum(1) - (not more)
        return Want("aligned", lazy, self.series(counts, "neighbors", 0))

    def counted(self) -> tuple[Side, dict[str, Any]]:
        """Draw the table whose rows are counted, and the option that names it."""
        if self.draw.chance("other", 0.35):
            return self.other, {"other": self.other.lazy}
        return self.one, {}

    def several(self) -> list[float]:
        """Draw some distances in no order."""
        near = [self.eps, math.nextafter(self.eps, 0.0), self.eps / 2, 0.0]
        return list(
            dict.fromkeys(near[self.draw.one("of the list", [0, 1, 2]) :] + near[:1])
        )

    def several_counts(self) -> Want:
        eps, one = self.several(), self.one
        other, more = self.counted()
        lazy = one.lazy.simjoin.neighbor_counts(
            eps, **more, **self.how, **self.engine()
        )
        values = {
            each: of_all_rows(
                self.near(one, other, each).sum(1) - (not more), one.used, 0
            )
            for each in eps
        }
        return Want("aligned", lazy, pd.DataFrame(values, one.frame.index))

    def count_pairs(self) -> Want:
        draw = self.draw
        both, own = draw.chance("both", 0.5), draw.chance("include_self", 0.5)
        both = both or self.conditions.one_sided
        several = self.several() if draw.chance("several", 0.3) else None
        lazy = self.one.lazy.simjoin.count_pairs(
            several or self.eps,
            pairs="both" if both else "unique",
            include_self=own,
            **self.how,
            **self.engine(),
        )
        numbers = []
        for eps in several or [self.eps]:
            near = self.near(self.one, self.one, eps)
            pairs = int(near.sum()) - len(near)
            numbers.append((pairs if both else pairs // 2) + own * len(near))
        return Want("number", lazy, numbers if several else numbers[0])

    def dbscan(self) -> Want:
        most = self.draw.one("min_samples", [1, 2, 3, 5])
        lazy = self.one.lazy.simjoin.dbscan(self.eps, most, **self.how, **self.engine())
        labels = labels_of(self.near(self.one, self.one), most)
        return Want("aligned", lazy, self.series(np.array(labels, int), "label", -1))

    def near_duplicated(self) -> Want:
        one, draw = self.one, self.draw
        keep, grouping = (
            draw.one("keep", ["first", "last", "r", False]),
            draw.one("grouping", GROUPINGS),
        )
        lazy = one.lazy.simjoin.near_duplicated(
            self.eps, keep=keep, grouping=grouping, **self.how, **self.engine()
        )
        near = self.near(one, one)
        if keep is False:
            return Want("aligned", lazy, self.series(near.sum(1) > 1, None, False))
        values = one.frame["r"].to_numpy(float, na_value=math.nan)[one.used]
        near |= np.eye(len(near), dtype=bool)
        gone = np.array(marked(near, order_of(keep, len(near), values), grouping), bool)
        return Want("aligned", lazy, self.series(gone, None, False))

    def k_distances(self) -> Want:
        k, rows = self.draw.one("k", [1, 2, 4]), len(self.one.x)
        away = self.away(self.one, self.one)
        away[np.arange(rows), np.arange(rows)] = -1.0
        away = np.sort(away, 1)
        values = away[:, k] if k < rows else np.full(rows, math.inf)
        lazy = self.one.lazy.simjoin.k_distances(k, **self.how)
        return Want("aligned", lazy, self.series(values, "k_distance", math.nan))

    def hdbscan(self) -> Want:
        """Compare with the clusters of the tree that all pairs make."""
        least, samples = (
            self.draw.one("min_cluster_size", [2, 3, 6]),
            self.draw.one("min_samples", [1, 2, 5]),
        )
        one, how = self.one, self.how
        samples = max(1, min(samples, len(one.x)))
        if how["metric"] in INEXACT:
            raise Skipped("distances may differ by an ulp, and so probabilities")
        value = pd.DataFrame(
            {"label": -1, "probability": 0.0, "outlier_score": 0.0}, range(len(one.x))
        )
        if len(one.x) > 1:
            edges, far = tree_by_definition(one.x, samples, how["metric"])
            ends = np.array(edges, np.int64).reshape(-1, 2)
            tree = pd.DataFrame(
                {"left": ends[:, 0], "right": ends[:, 1], "distance": far}
            )
            value = choose_clusters(condensed_tree(tree, least))
        value = frame_of_all_rows(value, one, NO_CLUSTER)
        return Want(
            "aligned",
            one.lazy.simjoin.hdbscan(least, min_samples=samples, **how),
            value,
        )

    def neighbor_graph(self) -> Want:
        draw, one = self.draw, self.one
        mode, own = (
            draw.one("mode", ["distance", "connectivity"]),
            draw.chance("include_self", 0.4),
        )
        near, rows = self.near(one, one), len(one.frame)
        near |= np.eye(len(near), dtype=bool)
        near &= ~np.eye(len(near), dtype=bool) | own
        away = np.ones(near.shape) if mode == "connectivity" else self.away(one, one)
        places = np.flatnonzero(one.used)
        want = []
        for i, j in zip(*np.nonzero(near), strict=True):
            want.append((int(places[i]), float(away[i, j]), int(places[j])))
        lazy = one.lazy.simjoin.neighbor_graph(
            self.eps, mode=mode, include_self=own, **self.how, **self.engine()
        )
        return Want("matrix", lazy, (rows, sorted(want)))

    def set_self_join(self) -> Want:
        draw, one = self.draw, self.one
        asked = AskedSets(draw, self.how)
        scored = not asked.missing and draw.chance("return_similarity", 0.6)
        keep = draw.one("keep", [None, "s", "key"])
        how = {"id": self.id, "return_similarity": scored, "keep": keep}
        pairs = asked.pairs(one.frame, one.frame, True)
        if scored and draw.chance("best", 0.4):
            how["best"] = draw.one("number", [True, 2, 3, 10])
            how["ties"] = draw.one("ties", ["first", "all"])
            both = pairs | {(j, i): value for (i, j), value in pairs.items()}
            pairs = best_pairs(both, how["ties"], int(how["best"]))
        lazy = one.lazy.simjoin.set_self_join(**how, **asked.options)
        own = one.frame, self.every_name(one)
        return Want("pairs", lazy, frame_of(pairs, own, own, scored, keep))

    def set_join(self) -> Want:
        draw, one, other = self.draw, self.one, self.other
        asked = AskedSets(draw, self.how)
        way = draw.one(
            "how", ["inner", "inner", "left", "outer", "right", "leftsemi", "leftanti"]
        )
        pairs = asked.pairs(one.frame, other.frame, False)
        if way in ("leftsemi", "leftanti"):
            lazy = one.lazy.simjoin.set_join(other.lazy, how=way, **asked.options)
            hit = np.isin(np.arange(len(one.frame)), [i for i, _ in pairs])
            return Want("rows", lazy, one.frame[hit if way == "leftsemi" else ~hit])
        scored = not asked.missing and draw.chance("return_similarity", 0.6)
        keep = draw.one("keep", [None, "s", "key"])
        how = {"how": way, "id": self.id, "return_similarity": scored, "keep": keep}
        if way in ("inner", "left") and scored and draw.chance("best", 0.4):
            how["best"], how["ties"] = True, draw.one("ties", ["first", "all"])
            if draw.chance("best rows", 0.5):
                how["best"] = draw.one("number", [2, 3, 10])
            pairs = best_pairs(pairs, how["ties"], int(how["best"]))
        elif not asked.missing and draw.chance("matching", 0.3):
            how["matching"] = "greedy"
            self.check_unique(one, other)
            pairs = greedy_pairs(pairs)
        lazy = one.lazy.simjoin.set_join(other.lazy, **how, **asked.options)
        sides = [(side.frame, self.every_name(side)) for side in (one, other)]
        want = frame_of(pairs, *sides, scored, keep)
        for k, which in enumerate(("left", "right")):
            if way in (which, "outer"):
                side = (one, other)[k]
                hit = np.isin(np.arange(len(side.frame)), [pair[k] for pair in pairs])
                want = self.with_alone(want, hit, keep, which)
        return Want("pairs", lazy, want)

    def set_neighbor_counts(self) -> Want:
        asked, one = AskedSets(self.draw, self.how), self.one
        other, more = self.counted()
        lazy = one.lazy.simjoin.set_neighbor_counts(**asked.options, **more)
        pairs, rows = asked.pairs(one.frame, other.frame, not more), len(one.frame)
        if more:
            counts = np.bincount([i for i, _ in pairs], minlength=rows).tolist()
        else:
            counts = wanted_counts(pairs, rows)
        return Want(
            "aligned",
            lazy,
            pd.Series(counts, one.frame.index, name="neighbors", dtype="int64"),
        )

    def set_near_duplicated(self) -> Want:
        asked, one, draw = AskedSets(self.draw, self.how), self.one, self.draw
        keep, grouping = (
            draw.one("keep", ["first", "last", "r", False]),
            draw.one("grouping", GROUPINGS),
        )
        lazy = one.lazy.simjoin.set_near_duplicated(
            keep=keep, grouping=grouping, **asked.options
        )
        near = np.eye(len(one.frame), dtype=bool)
        for i, j in asked.pairs(one.frame, one.frame, True):
            near[i, j] = near[j, i] = True
        if keep is False:
            gone = near.sum(1) > 1
        else:
            values = one.frame["r"].to_numpy(float, na_value=math.nan)
            order = order_of(keep, len(near), values)
            gone = np.array(marked(near, order, grouping), bool)
        return Want("aligned", lazy, pd.Series(gone, one.frame.index))

    def count_set_pairs(self) -> Want:
        asked, one = AskedSets(self.draw, self.how), self.one
        lazy = one.lazy.simjoin.count_set_pairs(**asked.options)
        return Want("number", lazy, len(asked.pairs(one.frame, one.frame, True)))

    def every_name(self, side: Side) -> list[Any]:
        """Return the names of all rows, also of rows with missing coordinates."""
        names: list[Any] = (
            side.frame.index if self.id is None else side.frame[self.id]
        ).tolist()
        return names

    def connected_components(self) -> Want:
        one = self.one
        near = np.triu(self.near(one, one), 1)
        lazy = one.lazy.simjoin.self_join(
            self.eps, id=self.id, **self.how, **self.engine()
        )
        found = dask_simjoin.connected_components(lazy)
        near |= near.T
        in_pairs = near.any(1)
        labels = np.array(labels_of(near | np.eye(len(near), dtype=bool), 1), int)
        groups: dict[int, list[Any]] = {}
        for k in np.flatnonzero(in_pairs).tolist():
            groups.setdefault(int(labels[k]), []).append(one.ids[k])
        ordered = sorted(groups.values(), key=min)
        rows = sorted(
            (name, number) for number, group in enumerate(ordered) for name in group
        )
        return Want("pairs", found, pd.DataFrame(rows, columns=["id", "component"]))

    def optics(self) -> Want:
        most = self.draw.one("min_samples", [2, 3, 5])
        # scikit-learn knows no conditions
        plain = not self.conditions.options
        usual = plain and self.how.get("metric", "euclidean") == "euclidean"
        mode = (
            self.draw.one("mode", ["edges", "edges", "forest"]) if usual else "forest"
        )
        lazy = self.one.lazy.simjoin.optics(
            self.eps, most, mode=mode, **self.how, **self.engine()
        )
        near = self.near(self.one, self.one)
        if mode == "forest":
            core = (near.sum(1) >= most).tolist()
            return Want(
                "forest", lazy, (self.eps, core, labels_of(near, most), self.one)
            )
        if len(near) < most:
            raise Skipped("scikit-learn takes no fewer rows than min_samples")
        if not self.eps:
            raise Skipped("scikit-learn takes no max_eps of 0")
        total = np.where(
            self.alike(self.one, self.one), totals(self.one.x, self.one.x), math.inf
        )
        beyond = total[
            (total > self.eps * self.eps) & (total <= self.eps * self.eps * (1 + 1e-14))
        ]
        if any(Fraction(float(t)) <= Fraction(self.eps) ** 2 for t in beyond) or (
            len(beyond) and (np.sqrt(beyond) <= self.eps).any()
        ):
            raise Skipped(
                "scikit-learn takes in squared distances between eps*eps as rounded "
                "and as it is"
            )
        apart = max(4 * self.eps, 1e-100)  # the square of a smaller distance would be 0
        numbers = self.alike(self.one, self.one).argmax(1) * apart
        want = sklearn_optics(np.column_stack([self.one.x, numbers]), self.eps, most)
        places = np.flatnonzero(self.one.used)
        before = want["predecessor"].to_numpy()
        want["predecessor"] = np.where(before < 0, before, places[before])
        return Want("aligned", lazy, frame_of_all_rows(want, self.one, NO_ORDER))


VERBS = [
    "self_join",
    "self_join",
    "self_join",
    "join",
    "join",
    "join",
    "knn_join",
    "knn_join",
    "neighbor_counts",
    "neighbor_counts",
    "count_pairs",
    "dbscan",
    "dbscan",
    "near_duplicated",
    "k_distances",
    "neighbor_graph",
    "hdbscan",
    "connected_components",
    "optics",
    "closest_pairs",
    *SET_VERBS,
]
