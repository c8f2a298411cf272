"""Pairs that came and went are those of both versions, by brute force, less each other."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.disk_index import blocks, cell_filter, changes, pair_files
from dask_simjoin.disk_index import changes as joins
from dask_simjoin.disk_index.blocks import Sizes, all_blocks
from dask_simjoin.disk_index.changes import Changes
from dask_simjoin.disk_index.graph import spec_of
from dask_simjoin.disk_index.pair_files import found_pairs
from dask_simjoin.disk_index.types import Part
from tests.support.oracle import brute_force, distances
from tests.support.stored import KEPT, Stored

ROWS, NEW, GONE, AGAIN = 400, 80, 40, 60


@pytest.fixture(autouse=True)
def _in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def small_tasks(monkeypatch):
    """Tasks of 100 rows in tiles of 16, none of which are held."""
    monkeypatch.setattr(cell_filter, "AS_THEY_LIE", 16)
    monkeypatch.setattr(changes, "sizes", lambda *_: Sizes(100, 2, 0))
    for module in (joins, pair_files):
        monkeypatch.setattr(module, "sizes", lambda *_: Sizes(100, 2, 0))
    monkeypatch.setattr(blocks, "LEAST_ROWS", 1)


def grid(random, rows, dims):
    """Points that have many ties and duplicates."""
    return random.integers(0, 16, (rows, dims)) / 2


def change(folder, points, eps, metric="euclidean", p=2, dims=None, counts=(NEW, GONE, AGAIN)):
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
        assert frame[f"{KEPT}_{side}"].tolist() == [(10**6 - id) // 7 % 5 for id in frame[side].tolist()]
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
    "minkowski": (lambda random, n: grid(random, n, 3), 1.0, {"metric": "minkowski", "p": 3}),
    "cosine": (lambda random, n: grid(random, n, 3) + 0.5, 0.01, {"metric": "cosine"}),
    "haversine": (lambda random, n: grid(random, n, 2) * 20 - 80, 3e6, {"metric": "haversine", "dims": 3}),
    "many columns": (lambda random, n: random.uniform(0, 1, (n, 20)), 1.2, {}),
}


RARE = ("far from 0", "minkowski", "chebyshev", "one column")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if case in RARE else ()) for case in CASES]
)
def test_pairs_that_came_and_went(case, tmp_path, small_tasks):
    points, eps, how = CASES[case]
    stored, before, after = change(tmp_path, points, eps, **how)
    metric, p = how.get("metric", "euclidean"), how.get("p", 2)
    for distance in (False, True):
        old, new = (pairs_of(version, eps, metric, p, distance) for version in (before, after))
        found = Changes(stored.delta(), distance)
        assert found_in(found.added, distance) == new - old
        assert found_in(found.removed, distance) == old - new
    assert old & new
    every = found_pairs(rows := stored.first(), spec_of(rows, eps, True))
    assert found_in(every, True) == old


@pytest.mark.parametrize(("dims", "apart"), [(2, True), (20, False)])
def test_parts_are_read_where_they_are_compared(dims, apart, tmp_path, small_tasks):
    """Where there are more rows than fit side by side; not where each part is near to most others."""
    x = np.random.default_rng(1).uniform(0, 1, (2000, dims))
    stored, eps = Stored(tmp_path, x, {2: 0.02, 20: 1.0}[dims]), {2: 0.02, 20: 1.0}[dims]
    rows = stored.first()
    pairs = found_pairs(rows, spec_of(rows, eps, True))
    found = pairs.expr.operand("blocks")
    assert bool(found.read_apart) == apart == (not found.moved)
    want = pairs_of((np.arange(2000), x), eps, "euclidean", 2, True)
    assert want
    assert found_in(pairs, True) == want


@pytest.mark.parametrize(
    "counts", [(NEW, 0, 0), (0, GONE, 0), (0, 0, ROWS), (1, 0, 0), (0, ROWS, 0), (0, 0, 1)]
)
def test_few_rows_are_held_and_every_kind_of_change_is_told(counts, tmp_path):
    stored, *versions = change(tmp_path, lambda random, n: grid(random, n, 2), 1.0, counts=counts)
    old, new = (pairs_of(version, 1.0, "euclidean", 2, False) for version in versions)
    found = Changes(stored.delta(), False)
    assert not any(isinstance(rows, Part) for side in found.blocks for rows in side.moved)
    assert found_in(found.added, False) == new - old
    assert found_in(found.removed, False) == old - new
    assert (found.report.inserted, found.report.deleted) == (counts[0] + counts[2], counts[1] + counts[2])


def test_only_row_groups_within_reach_are_read(tmp_path, monkeypatch):
    """Counted where files are read: those with a new row within eps of their box, and no others."""
    random = np.random.default_rng(0)
    stored = Stored(tmp_path, random.uniform(0, 100, (5000, 2)), 1.0)
    new = random.uniform(40, 43, (30, 2))
    stored.change(new, np.arange(5000, 5030), [])
    delta, read = stored.delta(), []
    found = Changes(delta, False)
    assert found.report.row_groups == 79
    lower, upper = (side[:, ::-1] for side in (delta.same.groups.low, delta.same.groups.high))
    gap = np.maximum(np.maximum(lower[:, None] - new, new - upper[:, None]), 0)
    near = ((gap**2).sum(axis=2) <= 1.0).any(axis=1)
    for part in found.blocks[0].old:
        read += [group for _, groups in part.pieces for group in groups]
    assert sorted(read) == delta.same.groups.group[near].tolist()
    assert found.report.row_groups_read == near.sum() < 8
    assert found.report.rows_read == delta.same.groups.rows[near].sum()
    assert 0 < found.report.bytes_read < 79 * 64 * 48
    assert "row groups read" in repr(found.report)
    assert "<td>79</td>" in found.report._repr_html_()


def test_pairs_with_another_frame(tmp_path, small_tasks):
    random = np.random.default_rng(1)
    x, y = grid(random, 300, 2), grid(random, 90, 2)
    stored = Stored(tmp_path, x, 0.5)
    frame = stored.frame(y, np.arange(90), 1)[["c1", "id", "c0"]]
    for eps in (0.5, 1.5):
        pairs = joins.pairs_with(dd.from_pandas(frame, 3), stored.first(), eps, True)
        found = pairs.compute()
        away = distances(y, x)
        expected = {(10**6 - 7 * i, 10**6 - 7 * j) for i, j in np.argwhere(away <= eps).tolist()}
        assert len(found) == len(expected)
        assert {*zip(found["left"], found["right"], strict=True)} == expected
        assert list(found.columns) == ["left", "right", "distance", "kept_right"] == list(pairs.columns)


def test_columns_that_are_not_asked_for_are_not_made(tmp_path):
    stored, *_ = change(tmp_path, lambda random, n: grid(random, n, 2), 1.0)
    added = Changes(stored.delta(), True).added
    assert list(added["distance"].to_frame().optimize().compute().columns) == ["distance"]
    assert added["left"].compute().tolist() == added.compute()["left"].tolist()


def test_a_plan_tells_about_how_many_pairs_come(tmp_path):
    random = np.random.default_rng(2)
    x, y = random.uniform(0, 30, (4000, 2)), random.uniform(0, 30, (200, 2))
    stored = Stored(tmp_path, x, 1.0)
    plan = joins.plan_of(y, stored.first())
    true = (distances(y, x) <= 1).sum() + len(brute_force(y, 1.0))
    assert 0.7 < plan.pairs / true < 1.4
    assert (plan.row_groups, plan.row_groups_read) == (63, 62)  # there are no new rows near the last one
    assert plan.rows == 200
    assert plan.seconds > 0 < plan.seconds_anew
    assert joins.plan_of(np.zeros((0, 2)), stored.first()).pairs == 0


VALUES = {
    "none": ([None] * 4, None),
    "texts": (["a", "b", None, "d"], "e"),
    "numbers": ([0.0, np.nan, 2.0, 3.0], 5.0),
    "lists": ([[1.0], [2.0, np.nan], [3.0], None], [4.0]),
}


@pytest.mark.parametrize("persisted", [False, True])
def test_pairs_of_which_other_values_are_kept_have_changed(persisted, tmp_path):
    """So that a table of pairs, less those that went, with those that came, is that of the new version."""
    rows = pd.DataFrame({"key": range(4), "x": [0.0, 1.0, 2.0, 9.0]} | {k: v for k, (v, _) in VALUES.items()})
    index = rows.simjoin.index(1.0, tmp_path, on="x", id="key", keep=list(VALUES))
    if persisted:
        index.persist()
    changes = index.update(rows, if_exists="replace")
    assert not len(changes.added) and not len(changes.removed)
    for name, (_, new) in VALUES.items():
        before, since = index.pairs().compute(), index.version
        again = rows[2:3].assign(**{name: pd.Series([new], index=[2], dtype=rows[name].dtype)})
        index.update(again, if_exists="replace")
        found = index.changes(since).compute()
        removed, added = (found[found["diff"] == sign].drop(columns="diff") for sign in (-1, 1))
        if new is None:
            assert not len(found)
            continue
        assert [side[["left", "right"]].to_numpy().tolist() for side in (removed, added)] == [[[1, 2]]] * 2
        kept = pd.concat([before[before["right"] != 2], added], ignore_index=True)
        pd.testing.assert_frame_equal(kept, index.pairs().compute())
        assert repr(removed[f"{name}_right"].tolist()) != repr(added[f"{name}_right"].tolist())


def test_rows_are_cut_for_threads_and_for_many_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "LEAST_ROWS", 1)
    rows = Stored(tmp_path, np.random.default_rng(0).uniform(0, 100, (2000, 2)), 1.0).first()

    def parts(eps, threads, most=10**6):
        return len(all_blocks(rows, spec_of(rows, eps, False), Sizes(most, threads, 0)).within)

    assert parts(1.0, 1) == 1
    assert parts(1.0, 2) == 4 and 7 <= parts(1.0, 4) <= 8
    assert parts(1.0, 1, 500) >= 4
    monkeypatch.setattr(blocks, "MOST_PAIRS", 2000 * 64 // 2)
    assert parts(100.0, 1) == 2 and parts(100.0, 2) == 4
    monkeypatch.setattr(blocks, "MOST_PAIRS", 1)
    assert parts(100.0, 1) == 4 and 7 <= parts(100.0, 2) <= 8
