"""Pairs that an index stores are those that it finds, and are read: no row is compared
again.
"""

import dask
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import changes, pair_files, writing
from dask_simjoin.disk_index import pair_files as pair_frames
from tests.support.growing import CASES, FEW, made, table
from tests.support.profiles import chosen

NEARER = {
    "2-D": 0.5,
    "20-D": 6.0,
    "cosine": 0.005,
    "constant": 0.0,
    "lists of texts": 1.5,
}


@pytest.fixture(autouse=True)
def at_once():
    with dask.config.set(scheduler="sync"):
        yield


def in_order(pairs):
    return pairs.compute().sort_values(["left", "right"], ignore_index=True)


@pytest.mark.parametrize("case", chosen(list(CASES), FEW[:1]))
def test_they_are_those_that_are_found(case, tmp_path, monkeypatch):
    """With their dtypes, distances and what is kept; after rows came, went and were put
    in order, too.
    """
    monkeypatch.setattr(writing, "PARTITION", 128)
    stored, other = (
        made(case, tmp_path / name, store_pairs=name == "stored")
        for name in ("stored", "other")
    )
    if case != "lists of texts":
        stored.persist()
    new, gone = (
        pd.concat([table(case, 600, 150), table(case, 800, 40, scale=1.3)]),
        table(case, 7, 30)["key"],
    )
    told = [index.update(new, delete=gone.tolist()) for index in (stored, other)]
    before = in_order(other.pairs()), in_order(other.pairs(NEARER[case]))
    groups = other.components().compute().sort_values("id", ignore_index=True)
    changed = [in_order(getattr(told[1], side)) for side in ("added", "removed")]
    assert all(map(len, [*before, *changed]))
    removed = in_order(told[0].removed)
    monkeypatch.setattr(changes, "lazy_pairs", None)
    # what is compared from here on fails
    monkeypatch.setattr(pair_frames, "lazy_pairs", None)
    pd.testing.assert_frame_equal(removed, changed[1])
    pd.testing.assert_frame_equal(in_order(told[0].added), changed[0])
    for how in (None, "small", "all"):
        if how is not None:
            stored.optimize(how)
        opened = dask_simjoin.open_index(tmp_path / "stored")
        pd.testing.assert_frame_equal(in_order(opened.pairs()), before[0])
        pd.testing.assert_frame_equal(in_order(opened.pairs(NEARER[case])), before[1])
        assert opened.pairs()["right"].compute().sort_values().tolist() == sorted(
            before[0]["right"]
        )
        if how is None:
            found = opened.components().compute().sort_values("id", ignore_index=True)
            pd.testing.assert_frame_equal(found, groups)
    # pairs that are gone have left the files
    assert not stored._now().manifest.pairs.marks


def test_smaller_distances_are_decided_as_by_any_join(tmp_path):
    """The total of the pair is just above the threshold of 1.0."""
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0], "y": [0.0, 2.0**-26, 5.0]})
    index = frame.simjoin.index(2.0, tmp_path, return_distance=True, store_pairs=True)
    assert index.pairs()["distance"].compute().tolist() == [np.nextafter(1.0, 2)]
    assert not len(index.pairs(1.0)) and not len(frame.simjoin.self_join(1.0))
    assert len(index.pairs(np.nextafter(1.0, 2))) == 1 == len(index.pairs(3.0))


def test_many_files_become_few_and_old_ones_are_removed(tmp_path, monkeypatch):
    """As rows are put in order; a file that holds as many pairs as it had is not
    written again.
    """
    monkeypatch.setattr(pair_files, "MIN_PART", 8)
    monkeypatch.setattr(pair_files, "PARTITION", 64)
    rows = pd.DataFrame({"key": np.arange(120), "x": np.arange(120) / 2})
    index = rows[:20].simjoin.index(
        1.0,
        tmp_path,
        on="x",
        id="key",
        row_group=4,
        store_pairs=True,
        recluster="never",
    )
    for start in range(20, 120, 10):
        index.update(rows[start : start + 10], delete=[start - 1])
    many = index._now().manifest.pairs
    assert len(many.files) > 10 and len(many.marks) == 10
    index.optimize("small")
    few = index._now().manifest.pairs
    assert len(few.files) < len(many.files) / 2
    index.optimize("all")
    last, expected = index._now().manifest.pairs, in_order(index.pairs())
    assert not last.marks and sum(one.rows for one in last.files) == len(expected)
    assert index.vacuum(keep=1) > 0
    assert {path.name for path in (tmp_path / "pairs").iterdir()} == {
        one.name for one in last.files
    }
    index.optimize("all")
    assert {one.name for one in index._now().manifest.pairs.files if one.rows > 60} <= {
        one.name for one in last.files
    }
    there = rows[~rows["key"].isin(range(19, 119, 10))]
    pd.testing.assert_frame_equal(
        in_order(index.pairs()),
        in_order(there.simjoin.index(1.0, tmp_path / "anew", on="x", id="key").pairs()),
    )
