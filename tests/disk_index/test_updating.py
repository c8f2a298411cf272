"""What an update does: no pair depends on how rows came, and no more is read and written than must be."""

import pickle

import dask
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import blocks, changes, maintenance
from dask_simjoin.disk_index import rows as read_rows
from dask_simjoin.disk_index.checking import OPENED
from dask_simjoin.disk_index.files import read_groups
from dask_simjoin.disk_index.maintenance import COMMIT, REWRITE
from dask_simjoin.disk_index.rows import read_part
from dask_simjoin.disk_index.snapshots import last_version
from tests.support.frames import lay
from tests.support.oracle import as_set

EPS = 1.0
HOW = {"on": ["x", "y"], "id": "key"}


@pytest.fixture(autouse=True)
def _in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


def rows(x, first=0):
    """Rows at some places, numbered from `first`."""
    return pd.DataFrame({"key": np.arange(first, first + len(x)), "x": x[:, 0], "y": x[:, 1]})


def test_one_batch_or_many_of_the_same_rows_give_equal_pairs(tmp_path):
    random = np.random.default_rng(0)
    every = rows(random.integers(0, 60, (1500, 2)) / 2)
    old, new = every[:500], every[500:]
    expected = as_set(every.simjoin.self_join(EPS, **HOW))
    known = as_set(old.simjoin.self_join(EPS, **HOW))
    for number, how in ((1, "dask-3"), (1, "pandas"), (20, "pandas"), (7, "dask-1")):
        folder = tmp_path / f"{number} {how}"
        index = old.simjoin.index(EPS, folder, row_group=128, **HOW)
        told = set(known)
        for part in np.array_split(np.arange(len(new)), number):
            added = as_set(index.update(lay(new.iloc[part], how)).added.compute())
            assert not added & told
            told |= added
        assert told == expected == as_set(index.pairs().compute())
        changes = index.changes(1).compute()
        assert as_set(changes) == expected - known


def test_tasks_look_up_which_rows_went_and_are_not_told(tmp_path):
    known = rows(np.random.default_rng(2).uniform(0, 30, (4000, 2)))
    index = known.simjoin.index(EPS, tmp_path, row_group=32, recluster="never", **HOW)
    before = len(pickle.dumps(index.pairs()))
    index.delete(known["key"][:2000:2])
    index.delete(known["key"][1:2000:2])
    assert len(pickle.dumps(index.pairs())) < before + 1000
    last = last_version(index.path, "pandas").rows
    went = [set(last.places[0] // 32) & {group} for group in range(len(last.groups))]
    there = np.flatnonzero(went).tolist()
    part = last.part(there[::-2])
    assert part.pieces[0][1] == tuple(sorted(there[::-2])) and len(part.deleted) == 2
    assert part.deleted is last.part(there).deleted
    left = read_part(part)["key"]
    assert len(left) < 32 * len(there[::-2]) and left.min() >= 2000


def test_tasks_of_row_groups_of_which_no_row_went_read_no_deletions(tmp_path):
    known = pd.DataFrame({"key": np.arange(320), "x": np.arange(320.0), "y": 0.0})
    index = known.simjoin.index(EPS, tmp_path, row_group=32, recluster="never", **HOW)
    index.delete([0, 1, 300])
    last = last_version(index.path, "pandas").rows
    assert [bool(last.part([group]).deleted) for group in range(10)] == [True, *[False] * 8, True]


def test_few_row_groups_are_read_for_rows_that_lie_together(tmp_path):
    """The numbers of 10 million rows in 610 row groups, with 32 rows a group."""
    random = np.random.default_rng(1)
    side = 610**0.5
    known = rows(random.uniform(0, side, (32 * 610, 2)))
    index = known.simjoin.index(0.01 * side / 32, tmp_path, row_group=32, recluster="never", **HOW)
    corner = rows(random.uniform(5, 5 + side * 1e-3**0.5, (200, 2)), 10**6)
    together = index.update(corner)
    assert together.work.row_groups in range(610, 700)
    assert together.work.row_groups_read < 0.03 * together.work.row_groups
    assert together.report.files == 1
    scattered = index.update(rows(random.uniform(0, side, (100, 2)), 2 * 10**6))
    assert scattered.work.row_groups_read < 0.4 * scattered.work.row_groups
    assert scattered.report.files == 1
    many = index.update(rows(random.uniform(0, side, (6000, 2)), 3 * 10**6))
    assert many.work.row_groups_read > 0.99 * many.work.row_groups  # more rows than groups
    gone = index.delete(range(10**6, 10**6 + 200))
    assert gone.work.deleted == 200
    assert gone.work.row_groups_read < 0.05 * gone.work.row_groups


def stream(kind, updates, random):
    """Batches of new places: centres that wander, regions one after the other, or anywhere."""
    for number in range(updates):
        if kind == "drifting":
            yield random.normal(5 + 20 * number / updates, 1.5, (40, 2))
        elif kind == "regions":
            yield random.uniform(0, 5, (40, 2)) + 5 * np.array([number * 5 // updates, 2.0])
        else:
            yield random.uniform(0, 30, (40, 2))


def cost(folder, kind, policy, updates):
    """What updates read and write, in the time in which a row is read, as measured."""
    random = np.random.default_rng(2)
    index = rows(random.uniform(0, 30, (2000, 2))).simjoin.index(
        0.2, folder, row_group=32, recluster=policy, **HOW
    )
    total, expected = 0.0, 0
    for number, x in enumerate(stream(kind, updates, random)):
        changes = index.update(rows(x, 10_000 * (number + 1)))
        opened = sum(len(part.pieces) for part in changes._pairs.blocks[0].old)
        total += changes.work.rows_read + OPENED * opened + REWRITE * changes.upkeep.rows
        total += COMMIT * (changes.upkeep.files_dropped > 0)
        expected += len(changes.added)
    assert len(index.changes(1)) == expected
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "updates", "policies"),
    [(kind, 100, ["always", "never", 1.2, 1.5, 2.0, 4.0]) for kind in ("drifting", "regions", "uniform")],
)
def test_rent_or_buy_costs_little_more_than_the_best_policy_does(kind, updates, policies, tmp_path):
    found = {policy: cost(tmp_path / str(policy), kind, policy, updates) for policy in policies}
    own = cost(tmp_path / "auto", kind, "auto", updates)
    print(kind, {name: round(value / own, 2) for name, value in found.items()})
    assert own <= 1.3 * min(found.values())
    assert own < max(found.values())


def test_an_update_of_nothing_near_anything_reads_nothing(tmp_path):
    known = rows(np.random.default_rng(3).uniform(0, 10, (500, 2)))
    index = known.simjoin.index(EPS, tmp_path, row_group=32, **HOW)
    changes = index.update(rows(np.full((3, 2), 1e6), 1000))
    assert (changes.work.row_groups_read, changes.work.bytes_read, changes.work.rows_read) == (0, 0, 0)
    assert len(changes.added) == 3  # which lie at one place
    assert maintenance.to_rewrite(last_version(tmp_path, "pandas"), 1 << 20) == frozenset()


def test_on_a_cluster(tmp_path, client, monkeypatch):
    """Few new rows travel with the graph; many are read again by workers."""
    random = np.random.default_rng(4)
    every = rows(random.integers(0, 60, (900, 2)) / 2)
    expected = as_set(every.simjoin.self_join(EPS, **HOW))
    with dask.config.set(scheduler=client.get):
        index = every[:600].simjoin.index(EPS, tmp_path, row_group=64, recluster="always", **HOW)
        known = as_set(index.pairs().compute())
        for part in (every[600:800], every[800:]):
            known |= as_set(index.update(part).added.compute())
            monkeypatch.setattr(blocks, "SENT", 0)
        assert known == expected == as_set(index.pairs().compute())
        groups = index.components().compute()
    joined = dask_simjoin.connected_components(every.simjoin.self_join(EPS, **HOW))
    sizes = groups["component"].value_counts()
    assert sorted(sizes[sizes > 1]) == sorted(joined["component"].value_counts())


@pytest.mark.parametrize("way", ["few", "lists", "many", "rewritten"])
def test_rows_that_went_are_read_with_those_beside_them(way, tmp_path, monkeypatch):
    """Each row group once, where they are few and lie where they lay; else those that went are read first."""
    random = np.random.default_rng(8)
    x = random.uniform(0, 30, (3000, 2))
    known, how = rows(x), HOW
    if way == "lists":
        known, how = known[["key"]].assign(v=list(x)), {"on": "v", "id": "key"}
    index = known.simjoin.index(EPS, tmp_path, row_group=128, recluster="never", **how)
    index.delete(known["key"][:20])  # those that went before are among neither
    gone = random.permutation(np.arange(20, 3000))[:60]
    version = index.delete(known["key"][gone]).version
    if way == "rewritten":
        index.optimize("all")
    if way == "many":
        monkeypatch.setattr(changes, "sizes", lambda *about: blocks.sizes(*about)._replace(held=0))
    read = []

    def counted(file, groups, *columns):
        read.extend(groups)
        return read_groups(file, groups, *columns)

    monkeypatch.setattr(read_rows, "read_groups", counted)
    told = index._changed(version - 1, index.version)
    found = as_set(told.removed.compute())
    before, after = (
        as_set(some.simjoin.self_join(EPS, **how)) for some in (known[20:], known[20:].drop(gone))
    )
    assert before - after and found == before - after
    assert len(read) == 24 if way in ("few", "lists") else len(read) > 24
    assert told.report.row_groups_read == len(known) // 128 + (way != "rewritten")
    assert told.report.deleted == 60
