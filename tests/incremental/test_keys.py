"""Look-ups of ids: which row groups of keys they read, and ids whose keys are the same."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dask_simjoin.incremental import keys
from tests.support.oracle import as_set


def frame(ids, x=0.0):
    return pd.DataFrame({"key": ids, "x": np.arange(len(ids)) + x})


@pytest.fixture
def reads(monkeypatch):
    """How many row groups of keys were read, and of how many."""
    monkeypatch.setattr(keys, "GROUP", 64)
    seen, plain = [], pq.ParquetFile.read_row_groups

    def read_row_groups(self, groups, columns=None, **more):
        if columns == [keys.KEY]:
            seen.extend(groups)
        return plain(self, groups, columns=columns, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", read_row_groups)
    return seen


def test_ids_that_follow_each_other_read_few_groups(reads, tmp_path):
    """New ones above all others none, and 100 deleted ones those that hold them."""
    index = frame(np.arange(8192)).simjoin.index(0.5, tmp_path / "index", on="x", id="key", row_group=1024)
    assert pq.read_metadata(next((tmp_path / "index" / "keys").iterdir())).num_row_groups == 128
    index.update(frame(np.arange(10_000, 10_100), 20_000.0))
    assert reads == []
    index.delete(np.arange(1000, 1100))
    assert 2 <= len(reads) <= 3
    assert sorted(index.rows().compute()["key"]) == [*range(1000), *range(1100, 8192), *range(10_000, 10_100)]


@pytest.mark.parametrize(("kind", "most"), [("numbers", keys.JOINED), ("texts", 12)])
def test_small_files_become_few(kind, most, tmp_path, monkeypatch):
    """After more than eight updates, without those of rows that were written anew; look-ups stay the same."""
    monkeypatch.setattr(keys, "JOINED", most)
    monkeypatch.setattr(keys, "MOST_SMALL", 4)
    names = np.arange(40) if kind == "numbers" else np.array([f"row {k}" for k in range(40)], object)
    rows = frame(names)
    index = rows.iloc[:4].simjoin.index(
        1.0, tmp_path / "index", on="x", id="key", row_group=4, recluster="never"
    )
    for start in range(4, 40, 4):
        index.update(rows.iloc[start : start + 4])
        if start == 8:
            index.optimize("all")
    manifest = index._now().manifest
    assert 1 < len(manifest.keys) < 8 and sum(one.rows for one in manifest.keys) == 40  # none is there twice
    assert max(one.rows for one in manifest.keys) <= most
    index.update(rows.iloc[::3].assign(x=100.0), delete=names[1::3], if_exists="replace")
    left = index.rows().compute().set_index("key")["x"]
    assert left.to_dict() == {
        name: 100.0 if k % 3 == 0 else float(k) for k, name in enumerate(names) if k % 3 != 1
    }


def test_ids_whose_keys_are_the_same(tmp_path, monkeypatch):
    """Keys are hashes: ids themselves are compared, in look-ups of new, replaced and deleted rows."""
    monkeypatch.setattr(keys, "id_keys", lambda ids: np.array([len(name) % 2 for name in ids], np.uint64))
    names = [f"row {'x' * k}" for k in range(12)]
    index = frame(names[:8]).simjoin.index(1.0, tmp_path / "index", on="x", id="key", row_group=4)
    changes = index.update(frame(names[6:], 6.0), delete=[names[0]], if_exists="replace")
    assert (changes.report.inserted, changes.report.replaced, changes.report.deleted) == (4, 2, 1)
    assert as_set(index.pairs().compute()) == {(names[k], names[k + 1]) for k in range(1, 11)}
