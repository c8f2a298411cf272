"""What an update does: no pair depends on how rows came, and no more is read and written than must be."""

import dask
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import blocks
from dask_simjoin.disk_index.checking import OPENED
from dask_simjoin.disk_index.maintenance import COMMIT, REWRITE
from tests.support.frames import lay
from tests.support.oracle import as_set

pytestmark = pytest.mark.usefixtures("in_this_thread")

EPS = 1.0
HOW = {"on": ["x", "y"], "id": "key"}


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
