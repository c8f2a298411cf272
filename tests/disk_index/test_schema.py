"""Look-ups of ids: which row groups of keys they read, and ids whose keys are the same."""

import datetime
from decimal import Decimal

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dask_simjoin
from dask_simjoin.disk_index import schema
from dask_simjoin.disk_index.files import FOLDERS, read_anew
from dask_simjoin.disk_index.publishing import Transaction
from dask_simjoin.errors import ColumnError, DuplicateIdError
from tests.support.oracle import as_set
from tests.support.profiles import every_nth, everything


def frame(ids, x=0.0):
    return pd.DataFrame({"key": ids, "x": np.arange(len(ids)) + x})


@pytest.fixture
def reads(monkeypatch):
    """How many row groups of keys were read, and of how many."""
    monkeypatch.setattr(schema, "GROUP", 64)
    seen, plain = [], pq.ParquetFile.read_row_groups

    def read_row_groups(self, groups, columns=None, **more):
        if columns == [schema.KEY]:
            seen.extend(groups)
        return plain(self, groups, columns=columns, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", read_row_groups)
    return seen


def test_ids_that_follow_each_other_read_few_groups(reads, tmp_path):
    """New ones above all others none, and 100 deleted ones those that hold them."""
    index = frame(np.arange(8192)).simjoin.index(
        0.5, tmp_path / "index", on="x", id="key", row_group=1024
    )
    assert (
        pq.read_metadata(next((tmp_path / "index" / "keys").iterdir())).num_row_groups
        == 128
    )
    index.update(frame(np.arange(10_000, 10_100), 20_000.0))
    assert reads == []
    index.delete(np.arange(1000, 1100))
    assert 2 <= len(reads) <= 3
    assert sorted(index.rows().compute()["key"]) == [
        *range(1000),
        *range(1100, 8192),
        *range(10_000, 10_100),
    ]


@pytest.mark.parametrize(
    ("kind", "most"), [("numbers", schema.PAIRS_AT_ONCE), ("texts", 12)]
)
def test_small_files_become_few(kind, most, tmp_path, monkeypatch):
    """After more than eight updates, without those of rows that were written anew;
    look-ups stay the same.
    """
    monkeypatch.setattr(schema, "PAIRS_AT_ONCE", most)
    monkeypatch.setattr(schema, "FEW", 4)
    names = (
        np.arange(40)
        if kind == "numbers"
        else np.array([f"row {k}" for k in range(40)], object)
    )
    rows = frame(names)
    index = rows.iloc[:4].simjoin.index(
        1.0, tmp_path / "index", on="x", id="key", row_group=4, recluster="never"
    )
    for start in range(4, 40, 4):
        index.update(rows.iloc[start : start + 4])
        if start == 8:
            index.optimize("all")
    manifest = index._now().manifest
    # none is there twice
    assert 1 < len(manifest.keys) < 8 and sum(one.rows for one in manifest.keys) == 40
    assert max(one.rows for one in manifest.keys) <= most
    index.update(
        rows.iloc[::3].assign(x=100.0), delete=names[1::3], if_exists="replace"
    )
    left = index.rows().compute().set_index("key")["x"]
    assert left.to_dict() == {
        name: 100.0 if k % 3 == 0 else float(k)
        for k, name in enumerate(names)
        if k % 3 != 1
    }


def test_ids_whose_keys_are_the_same(tmp_path, monkeypatch):
    """Keys are hashes: ids themselves are compared, in look-ups of new, replaced and
    deleted rows.
    """
    monkeypatch.setattr(
        schema,
        "id_keys",
        lambda ids: np.array([len(name) % 2 for name in ids], np.uint64),
    )
    names = [f"row {'x' * k}" for k in range(12)]
    index = frame(names[:8]).simjoin.index(
        1.0, tmp_path / "index", on="x", id="key", row_group=4
    )
    changes = index.update(
        frame(names[6:], 6.0), delete=[names[0]], if_exists="replace"
    )
    assert (
        changes.report.inserted,
        changes.report.replaced,
        changes.report.deleted,
    ) == (4, 2, 1)
    assert as_set(index.pairs().compute()) == {
        (names[k], names[k + 1]) for k in range(1, 11)
    }


DAYS = [pd.Timestamp(2026, 1, day) for day in range(1, 5)]
DTYPES = {
    "numbers": ([1, 2, 3, 4], ["int64", "Int64", "int64[pyarrow]", "object"]),
    "fractions": ([0.5, -0.0, 3.25, 4.0], ["float32", "Float32", "float[pyarrow]"]),
    "texts": (list("abcd"), ["str", "object", "category", "large_string[pyarrow]"]),
    "bytes": (
        [b"a", b"b", b"c", b"d"],
        ["object", "binary[pyarrow]", "large_binary[pyarrow]"],
    ),
    "times": (DAYS, ["datetime64[us]", "timestamp[us][pyarrow]", "object"]),
    "seconds": (DAYS, ["datetime64[s]", "timestamp[s][pyarrow]", "datetime64[ms]"]),
    "dates": ([day.date() for day in DAYS], ["object", "date32[day][pyarrow]"]),
    "decimals": (
        [Decimal(k) / 4 for k in range(4)],
        ["object", pd.ArrowDtype(pa.decimal128(9, 2))],
    ),
}
"""Ids, and dtypes that they may have."""


OLD = pytest.mark.skipif(
    pd.__version__ < "3", reason="times that are objects become nanoseconds there"
)


@pytest.mark.parametrize(
    "kind",
    every_nth(
        4, [pytest.param(kind, marks=[OLD] * (kind == "times")) for kind in DTYPES]
    ),
)
def test_equal_ids_of_other_dtypes_are_the_same(kind, tmp_path):
    values, dtypes = DTYPES[kind]
    # each dtype is that of old rows or of new ones
    few = range(0, len(dtypes), 1 if everything() else 3)
    with dask.config.set({"dataframe.convert-string": False}):
        for number in few:
            own = dtypes[number]
            for came in [own] * everything() + [dtypes[number - 1]]:
                folder = tmp_path / f"{number} {came}"
                first = frame(pd.Series(values[:3], dtype=object).astype(own))
                new = frame(pd.Series(values[2:], dtype=object).astype(came), 5.0)
                index = first.simjoin.index(1.0, folder, on="x", id="key", row_group=2)
                with pytest.raises(DuplicateIdError, match="contains 1 of the new ids"):
                    index.update(new)
                report = index.update(new, if_exists="replace").report
                assert (report.inserted, report.replaced, len(index)) == (1, 1, 4)
                index.optimize("all")
                assert as_set(index.pairs().compute()) == {
                    (values[0], values[1]),
                    (values[2], values[3]),
                }
                index.delete(new["key"])
                index.update(new, delete=values[:2])
                index = dask_simjoin.open_index(folder)
                assert sorted(index.rows().compute()["key"]) == sorted(values[2:])
                index.delete(np.array(values[2:], object))
                assert len(index) == 0


def test_kept_values_of_types_that_parquet_changes(tmp_path):
    """Seconds become milliseconds there, and decimal numbers have as many digits as
    they need.
    """
    rows = frame(np.arange(6)).assign(
        day=np.array([f"2026-01-0{k}" for k in range(1, 7)], "M8[s]"),
        price=pd.Series(
            [Decimal(text) for text in ("0.5", "1.25", "100", "-3.5", "1000.75", "7")],
            dtype=object,
        ),
        at=[datetime.time(k) for k in range(6)],
    )
    with dask.config.set({"dataframe.convert-string": False}):
        how = {"on": "x", "id": "key", "keep": ["day", "price", "at"]}
        index = rows.iloc[:2].simjoin.index(
            1.0, tmp_path / "index", **how, store_pairs=True
        )
        index.update(rows.iloc[2:])
        index.optimize("all")
        changes = index.update(
            rows.iloc[4:].assign(price=[Decimal("1000.5"), Decimal("7.00")]),
            if_exists="replace",
        )
        assert as_set(changes.added.compute()) == {(3, 4), (4, 5)}
        found = index.rows().compute().set_index("key").sort_index()
        assert (
            found["day"].dtype == "datetime64[s]"
            and found["day"].tolist() == rows["day"].tolist()
        )
        assert found["price"].tolist() == [*rows["price"][:4], Decimal("1000.5"), 7]
        with pytest.raises(
            ColumnError, match=r"Column 'price' of the new rows has values .* Round"
        ):
            index.update(rows.iloc[:1].assign(key=9, price=Decimal("0.125")))


@pytest.fixture
def own(tmp_path):
    """An attempt to make a version, in an empty index."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    made = Transaction(tmp_path)
    made.lease.touch()
    return made


def keys_of(own, **files):
    """Key files of row files of some ids, and of all of them in one file."""
    made = []
    for name, ids in files.items():
        table = pa.table(
            {"key": ids, schema.SEQ: np.arange(len(ids)) + 1000 * len(made)}
        )
        made.append(schema.write_keys(table, "key", name, own)[0])
    joined, size = schema._joined(made, own, set(files))
    assert size == (own.root / "keys" / joined[0].name).stat().st_size
    return made, joined[0]


def read(own, one):
    table = read_anew(own.root / "keys" / one.name)
    return [
        table[name].to_pylist()
        for name in (schema.KEY, schema.SEQ, schema.FILE, schema.POSITION)
    ]


def test_key_files_are_joined_in_the_order_of_keys_without_those_of_files_that_are_gone(
    own,
):
    made, every = keys_of(own, a=np.arange(5), b=np.arange(5, 8), c=np.arange(8, 20))
    keys, seq, files, positions = read(own, every)
    assert keys == sorted(keys) and (every.rows, every.low, every.high) == (
        20,
        keys[0],
        keys[-1],
    )
    assert sorted(seq) == [*range(5), *range(1000, 1003), *range(2000, 2012)]
    (fewer,), _ = schema._joined(made, own, {"a", "c"})
    kept = [
        row for row in zip(keys, seq, files, positions, strict=True) if row[2] != "b"
    ]
    assert list(zip(*read(own, fewer), strict=True)) == kept and fewer.rows == 17
    assert schema._joined(made, own, {"d"}) == ((), 0)


def test_key_files_mostly_of_files_that_are_gone_are_written_anew(own):
    _, every = keys_of(own, a=np.arange(6), b=np.arange(6, 10))
    assert schema.without_stale((every,), own, {"a", "b"}) == ((every,), 0)
    # 60 % of its keys are left
    (fewer,), size = schema.without_stale((every,), own, {"a"})
    assert (
        fewer.name != every.name
        and fewer.rows == 6
        and set(read(own, fewer)[2]) == {"a"}
    )
    assert size == (own.root / "keys" / fewer.name).stat().st_size
    _, mostly = keys_of(own, a=np.arange(8), b=np.arange(8, 10))
    assert schema.without_stale((mostly,), own, {"a"}) == ((mostly,), 0)  # 80 %
    assert schema.without_stale((every,), own, {"c"}) == ((), 0)
