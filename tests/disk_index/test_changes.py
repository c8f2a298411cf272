"""Pairs that came and went are those of both versions, by brute force, less each other."""

import numpy as np
import pytest

from dask_simjoin.disk_index import changes as joins
from dask_simjoin.disk_index.changes import PairChanges
from dask_simjoin.disk_index.graph import spec_of
from dask_simjoin.disk_index.pair_files import found_pairs
from tests.support.oracle import brute_force, distances
from tests.support.profiles import every_nth
from tests.support.stored import KEPT, Stored

pytestmark = pytest.mark.usefixtures("in_this_thread")

ROWS, NEW, GONE, AGAIN = 400, 80, 40, 60


def grid(random, rows, dims):
    """Points that have many ties and duplicates."""
    return random.integers(0, 16, (rows, dims)) / 2


def change(
    folder, points, eps, metric="euclidean", p=2, dims=None, counts=(NEW, GONE, AGAIN)
):
    """Make two versions of rows; returns them, and the numbers and coordinates of each."""
    random = np.random.default_rng(7)
    new, gone, again = counts
    x = points(random, ROWS)
    stored = Stored(folder, x, eps, metric, p, dims)
    lot = random.permutation(ROWS)
    gone, again = lot[:gone], lot[gone : gone + again]
    y = points(random, new + len(again))
    y[: len(again) // 2] = x[again[: len(again) // 2]]  # replaced by the same
    seq = np.concatenate([again, np.arange(ROWS, ROWS + new)])
    stored.change(y, seq, gone)
    stays = np.setdiff1d(np.arange(ROWS), np.concatenate([gone, again]))
    after = np.concatenate([stays, seq]), np.concatenate([x[stays], y])
    return stored, (np.arange(ROWS), x), after


def pairs_of(version, eps, metric, p, distance):
    """The pairs of a version: ids, the lower number left, and distances if asked for."""
    order = np.argsort(version[0])
    seq, x = (values[order] for values in version)
    away, ids = distances(x, x, metric, p), (10**6 - 7 * seq).tolist()
    found = brute_force(x, eps, metric, p)
    return {(ids[i], ids[j], *((away[i, j],) if distance else ())) for i, j in found}


def found_in(frame, distance):
    """The rows of a lazy frame of pairs; those kept are of the rows that ids name."""
    frame = frame.compute()
    for side in ("left", "right"):
        assert frame[f"{KEPT}_{side}"].tolist() == [
            (10**6 - id) // 7 % 5 for id in frame[side].tolist()
        ]
    columns = ["left", "right"] + ["distance"] * distance
    rows = list(zip(*(frame[name].tolist() for name in columns), strict=True))
    assert len({*rows}) == len(rows)
    return {*rows}


CASES = {
    "ties": (lambda random, n: grid(random, n, 2), 1.0, {}),
    "far from 0": (lambda random, n: grid(random, n, 2) + 1e8, 1.0, {}),
    "equal": (lambda random, n: grid(random, n, 2), 0.0, {}),
    "all": (lambda random, n: grid(random, n, 2), 100.0, {}),
    "one column": (lambda random, n: grid(random, n, 1), 0.5, {}),
    "manhattan": (lambda random, n: grid(random, n, 3), 1.5, {"metric": "manhattan"}),
    "chebyshev": (lambda random, n: grid(random, n, 3), 1.0, {"metric": "chebyshev"}),
    "minkowski": (
        lambda random, n: grid(random, n, 3),
        1.0,
        {"metric": "minkowski", "p": 3},
    ),
    "cosine": (lambda random, n: grid(random, n, 3) + 0.5, 0.01, {"metric": "cosine"}),
    "haversine": (
        lambda random, n: grid(random, n, 2) * 20 - 80,
        3e6,
        {"metric": "haversine", "dims": 3},
    ),
    "many columns": (lambda random, n: random.uniform(0, 1, (n, 20)), 1.2, {}),
}


RARE = ("far from 0", "manhattan", "minkowski", "chebyshev", "one column", "all")


@pytest.mark.parametrize(
    "case",
    every_nth(
        4,
        [
            pytest.param(case, marks=pytest.mark.slow if case in RARE else ())
            for case in CASES
        ],
    ),
)
def test_pairs_that_came_and_went(case, tmp_path, small_tasks):
    points, eps, how = CASES[case]
    stored, before, after = change(tmp_path, points, eps, **how)
    metric, p = how.get("metric", "euclidean"), how.get("p", 2)
    for distance in (False, True):
        old, new = (
            pairs_of(version, eps, metric, p, distance) for version in (before, after)
        )
        found = PairChanges(stored.delta(), distance)
        assert found_in(found.added, distance) == new - old
        assert found_in(found.removed, distance) == old - new
    assert old & new
    every = found_pairs(rows := stored.first(), spec_of(rows, eps, True))
    assert found_in(every, True) == old


def test_a_plan_tells_about_how_many_pairs_come(tmp_path):
    random = np.random.default_rng(2)
    x, y = random.uniform(0, 30, (4000, 2)), random.uniform(0, 30, (200, 2))
    stored = Stored(tmp_path, x, 1.0)
    plan = joins.plan_of(y, stored.first())
    true = (distances(y, x) <= 1).sum() + len(brute_force(y, 1.0))
    assert 0.7 < plan.pairs / true < 1.4
    # there are no new rows near the last one
    assert (plan.row_groups, plan.row_groups_read) == (63, 62)
    assert plan.rows == 200
    assert plan.seconds > 0 < plan.seconds_anew
    assert joins.plan_of(np.zeros((0, 2)), stored.first()).pairs == 0
