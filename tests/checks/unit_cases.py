"""Random requests with units of distances, plain and lazy, against brute force.

``python -m tests.checks.unit_cases --cases 2000 --seed 0`` compares the verbs, the
estimators of neighbors and the index with pairs by definition, and their distances with
the formulas, divided by the unit. ``--start 500`` begins at another case, and ``--case
17`` runs a single one. Each case has rows at equal distances of a row.
"""

from __future__ import annotations

import collections
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import OptionError
from dask_simjoin.metrics import make_metric
from dask_simjoin.neighbors import NearestNeighbors
from tests.checks.neighbor_cases import (
    Case,
    by_definition,
    frames_of,
    has_ties,
    partitions,
    run_all,
    tied_rows,
)
from tests.support.exact import threshold, threshold_of_angle, totals
from tests.support.frames import computed

RADIUS = 6_371_008.8
ANGLES = {
    "rad": 1.0,
    "deg": math.pi / 180,
    "arcmin": math.pi / 10_800,
    "arcsec": math.pi / 648_000,
    "mas": math.pi / 648_000_000,
}
LENGTHS = {
    "mm": 1e-3,
    "cm": 1e-2,
    "m": 1.0,
    "km": 1e3,
    "ft": 0.3048,
    "mi": 1609.344,
    "nmi": 1852.0,
}
NAMES = {
    "km": "Kilometers",
    "deg": "°",
    "arcsec": '"',
    "mi": "miles",
    "arcmin": "arcminutes",
    "m": "metres",
}
"""Other names of some units."""

VERBS = (
    "self_join",
    "join",
    "knn_join",
    "closest_pairs",
    "k_distances",
    "neighbor_graph",
    "kneighbors",
    "radius_neighbors",
    "index",
    "refused",
)
PLAIN = ("euclidean", "sqeuclidean", "manhattan", "chebyshev", "minkowski")


class Tables:
    """Two tables, or one, with their distances in the unit of the metric and as angles."""

    def __init__(self, metric: str, two: bool, rng: np.random.Generator) -> None:
        self.metric, self.rng = metric, rng
        self.total = np.zeros((0, 0))
        while not has_ties(self.total):
            x = tied_rows(
                metric, int(rng.integers(3, 50)), int(rng.integers(1, 7)), rng
            )
            cut = int(rng.integers(1, len(x))) if two else len(x)
            self.total = totals(x[:cut], x[cut:] if two else x, metric)
        none = np.zeros(len(x), int)
        given = x, none, none
        self.left = frames_of(*(one[:cut] for one in given), 0, rng)
        right = [one[cut:] for one in given]
        self.right = frames_of(*right, 1000, rng) if two else None
        self.on = self.left.columns[:-2].tolist()
        self.two = two

    def lazy(self, number: int) -> list[Any]:
        """Return both tables as Dask DataFrames."""
        return [
            one if one is None else partitions(one, number, self.rng)
            for one in (self.left, self.right)
        ]

    def away(self, unit: str | None) -> np.ndarray:
        """Return the distances in a unit; None: the metric's."""
        metric = make_metric(self.metric)
        if unit is None:
            return metric.distance(self.total.copy(), np)
        return metric.in_unit(self.total.copy(), self.size(unit), np)

    def size(self, unit: str) -> float:
        """Return the size of a unit, as `Metric.from_unit` takes it."""
        if unit in LENGTHS:
            return LENGTHS[unit]
        return ANGLES[unit] * (RADIUS if self.metric == "haversine" else 1.0)

    def threshold(self, number: float, unit: str | None) -> float:
        """Return the largest total of pairs within a distance."""
        if unit is None:
            return threshold(self.metric, 2, number)
        if self.metric == "haversine":
            return threshold(self.metric, 2, number * self.size(unit))
        return threshold_of_angle(number * self.size(unit))

    def allowed(self) -> np.ndarray:
        """Return which pairs of rows may be pairs."""
        return (
            np.ones(self.total.shape, bool)
            if self.two
            else ~np.eye(len(self.left), dtype=bool)
        )


def a_request(
    tables: Tables, rng: np.random.Generator
) -> tuple[Any, float, str | None, str | None, str]:
    """Draw a distance: what is passed, its number and unit, the unit of the result, and
    the kind.
    """
    units = [*ANGLES] if tables.metric == "cosine" else [*LENGTHS, *ANGLES]
    chosen, unit = (str(one) for one in rng.choice(units, 2))
    kind = str(rng.choice(["text", "number and unit", "text and unit", "number"]))
    given = unit if kind.startswith("text") else None
    far = float(rng.choice(tables.away(given).ravel())) if rng.random() < 0.9 else 0.0
    far = max(
        0.0,
        float(
            rng.choice(
                [far, math.nextafter(far, 0), math.nextafter(far, math.inf), far * 1.5]
            )
        ),
    )
    called = NAMES.get(given, given) if rng.random() < 0.3 else given
    passed = far if given is None else f"{far!r}{rng.choice(['', ' '])}{called}"
    result = chosen if kind.endswith("unit") else given
    return passed, far, given, result, kind


def option(kind: str, unit: str | None) -> dict[str, Any]:
    """Return the option for the unit of the result, if the request has one."""
    return {"distance_unit": unit} if kind.endswith("unit") else {}


def close(found: Any, want: Any) -> None:
    """Compare distances: a few units in the last place may differ, as roots and arcs
    are not exact.
    """
    np.testing.assert_allclose(
        np.asarray(found, float), np.asarray(want, float), rtol=1e-13, atol=0
    )


def compare(
    found: pd.DataFrame,
    pairs: list[tuple[int, int]],
    tables: Tables,
    unit: str | None,
    ordered: bool = False,
) -> None:
    """Compare a result with pairs of row numbers; `ordered`: in their order."""
    left, right = tables.left.index, (tables.right if tables.two else tables.left).index
    away = tables.away(unit)
    want = {(left[i], right[j]): away[i, j] for i, j in pairs}
    got = list(zip(found["left"].tolist(), found["right"].tolist(), strict=True))
    assert (got if ordered else sorted(got)) == (
        list(want) if ordered else sorted(want)
    )
    close(found["distance"], [want[pair] for pair in got])


def run_case(rng: np.random.Generator) -> Case:
    """Compare one random request with its definition; return what it covers."""
    verb, metric = (
        str(rng.choice(VERBS)),
        str(rng.choice(["haversine", "haversine", "cosine"])),
    )
    if verb == "refused":
        return refused(rng)
    two = {
        "join": True,
        "self_join": False,
        "k_distances": False,
        "neighbor_graph": False,
        "index": False,
    }
    tables = Tables(metric, two.get(verb, bool(rng.integers(2))), rng)
    number = int(rng.integers(1, 6))
    passed, far, given, result, kind = a_request(tables, rng)
    near = tables.allowed() & (tables.total <= tables.threshold(far, given))
    how = {"on": tables.on, "metric": metric, **option(kind, result)}
    pairs = [tuple(pair) for pair in np.argwhere(near).tolist()]
    unique = [(i, j) for i, j in pairs if tables.two or i < j]
    if verb in ("kneighbors", "radius_neighbors"):
        estimators(verb, tables, near, passed, kind, result, rng)
    elif verb == "index":
        on_disk(tables, unique, passed, how, result, bool(rng.integers(2)))
    else:
        k, n = int(rng.choice([1, 2, 5])), int(rng.choice([1, 3, 20, 10_000]))
        for left, right in ((tables.left, tables.right), tables.lazy(number)):
            if verb == "self_join":
                found = left.simjoin.self_join(passed, return_distance=True, **how)
                compare(computed(found), unique, tables, result)
            elif verb == "join":
                found = left.simjoin.join(right, passed, return_distance=True, **how)
                compare(computed(found), pairs, tables, result)
            elif verb == "knn_join":
                found = left.simjoin.knn_join(right, k, max_distance=passed, **how)
                nearest = by_definition(tables.total, near, k)
                compare(computed(found), [pair[:2] for pair in nearest], tables, result)
            elif verb == "closest_pairs":
                found = left.simjoin.closest_pairs(n, right, max_distance=passed, **how)
                first = sorted(unique, key=lambda pair: (tables.total[pair], pair))[:n]
                compare(computed(found), first, tables, result, ordered=True)
            elif verb == "k_distances":
                unit = result if kind.endswith("unit") else None
                away = np.sort(
                    np.where(tables.allowed(), tables.away(unit), math.inf), 1
                )
                found = computed(left.simjoin.k_distances(k, **how))
                want = away[:, k - 1] if k < len(away) else np.full(len(away), math.inf)
                close(found, want)
            else:
                matrix = computed(left.simjoin.neighbor_graph(passed, **how))
                assert sorted(zip(*matrix.nonzero(), strict=True)) == [
                    pair for pair in pairs if tables.total[pair] > 0
                ]
                rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
                assert (
                    sorted(zip(rows.tolist(), matrix.indices.tolist(), strict=True))
                    == pairs
                )
                close(matrix.data, tables.away(result)[rows, matrix.indices])
    covered = collections.Counter([verb, f"metric={metric}", f"request: {kind}"])
    covered[f"unit {result}"] = 1
    covered["pairs"] = len(pairs)
    return covered


def estimators(
    verb: str,
    tables: Tables,
    near: np.ndarray,
    passed: Any,
    kind: str,
    unit: str | None,
    rng: np.random.Generator,
) -> None:
    """Compare `NearestNeighbors` with the definition."""
    data = (tables.right if tables.two else tables.left)[tables.on].to_numpy()
    queries = tables.left[tables.on].to_numpy() if tables.two else None
    fitted = NearestNeighbors(
        radius=passed, metric=tables.metric, **option(kind, unit)
    ).fit(data)
    if verb == "kneighbors":
        k = int(rng.integers(1, max(2, tables.total.shape[1] - (not tables.two))))
        unit = unit if kind.endswith("unit") else None
        far, rows = fitted.kneighbors(queries, k)
        want = by_definition(tables.total, tables.allowed(), k)
        assert rows.ravel().tolist() == [j for _, j, _ in want]
        close(far.ravel(), [tables.away(unit)[i, j] for i, j, _ in want])
        return
    far, rows = fitted.radius_neighbors(queries)
    for i, some in enumerate(rows):
        assert some.tolist() == np.flatnonzero(near[i]).tolist()
        close(far[i], tables.away(unit)[i, near[i]])


def on_disk(
    tables: Tables,
    pairs: list[tuple[int, int]],
    passed: Any,
    how: dict[str, Any],
    unit: str | None,
    stored: bool,
) -> None:
    """Compare an index and its changes with the definition."""
    frame = tables.left
    cut = int(tables.rng.integers(1, len(frame) + 1))
    with tempfile.TemporaryDirectory() as folder:
        index = frame.iloc[:cut].simjoin.index(
            passed,
            Path(folder) / "index",
            return_distance=True,
            store_pairs=stored,
            **how,
        )
        first = [pair for pair in pairs if max(pair) < cut]
        compare(index.pairs().compute(), first, tables, unit)
        if cut < len(frame):
            changes = index.update(frame.iloc[cut:])
            added = [pair for pair in pairs if max(pair) >= cut]
            compare(changes.added.compute(), added, tables, unit)
            compare(index.pairs().compute(), pairs, tables, unit)


def refused(rng: np.random.Generator) -> Case:
    """Check that plain metrics refuse units everywhere."""
    metric, unit = str(rng.choice(PLAIN)), str(rng.choice([*LENGTHS, *ANGLES]))
    frame = pd.DataFrame(rng.normal(size=(9, 2)), columns=["x", "y"])
    table = (
        partitions(frame, int(rng.integers(1, 6)), rng) if rng.integers(2) else frame
    )
    how, given = {"metric": metric}, ({"distance_unit": unit}, f"1 {unit}")
    calls = [
        lambda option, far: table.simjoin.self_join(
            far, return_distance=True, **option, **how
        ),
        lambda option, far: table.simjoin.join(
            frame, far, return_distance=True, **option, **how
        ),
        lambda option, far: table.simjoin.knn_join(
            k=1, max_distance=far, **option, **how
        ),
        lambda option, far: table.simjoin.closest_pairs(
            1, max_distance=far, **option, **how
        ),
        lambda option, far: table.simjoin.neighbor_graph(far, **option, **how),
        lambda option, far: NearestNeighbors(radius=far, **option, **how).fit(frame),
        lambda option, far: frame.simjoin.index(
            far, "index", return_distance=True, **option, **how
        ),
    ]
    call = calls[rng.integers(len(calls))]
    for option_given, far in ((given[0], 1.0), ({}, given[1])):
        with pytest.raises(
            OptionError, match=r"has a unit, but|is not allowed with metric"
        ):
            call(option_given, far)
    return collections.Counter(["refused"])


if __name__ == "__main__":
    raise SystemExit(run_all(__doc__, run_case))
