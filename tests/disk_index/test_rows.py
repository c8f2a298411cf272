"""Rows and deletions that are read: no more than are needed."""

import pickle

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.disk_index import blocks, changes
from dask_simjoin.disk_index import rows as read_rows
from dask_simjoin.disk_index.files import read_groups
from dask_simjoin.disk_index.rows import read_part
from dask_simjoin.disk_index.snapshots import last_version
from tests.disk_index.test_updates import EPS, HOW, rows
from tests.support.oracle import as_set

pytestmark = pytest.mark.usefixtures("in_this_thread")


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
    assert [bool(last.part([group]).deleted) for group in range(10)] == [
        True,
        *[False] * 8,
        True,
    ]


@pytest.mark.parametrize("way", ["few", "lists", "many", "rewritten"])
def test_rows_that_went_are_read_with_those_beside_them(way, tmp_path, monkeypatch):
    """Each row group once, where they are few and lie where they lay; else those that
    went are read first.
    """
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
        monkeypatch.setattr(
            changes, "sizes", lambda *about: blocks.sizes(*about)._replace(hold_bytes=0)
        )
    read = []

    def counted(file, groups, *columns):
        read.extend(groups)
        return read_groups(file, groups, *columns)

    monkeypatch.setattr(read_rows, "read_groups", counted)
    told = index._changed(version - 1, index.version)
    found = as_set(told.removed.compute())
    before, after = (
        as_set(some.simjoin.self_join(EPS, **how))
        for some in (known[20:], known[20:].drop(gone))
    )
    assert before - after and found == before - after
    assert len(read) == 24 if way in ("few", "lists") else len(read) > 24
    assert told.report.row_groups_read == len(known) // 128 + (way != "rewritten")
    assert told.report.deleted == 60
