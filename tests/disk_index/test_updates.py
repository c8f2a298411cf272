"""Indexes of every metric, of lists and of every dtype; what they refuse; and what
updates read and write.
"""

import datetime

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dask_simjoin
from dask_simjoin import errors
from dask_simjoin.disk_index import blocks
from dask_simjoin.disk_index.maintenance import COMMIT, OPEN_COST, REWRITE
from tests.disk_index.test_index import GONE, KNOWN, N, points, table
from tests.support.frames import lay
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.profiles import every_nth

METRICS = {
    "euclidean": (2, 2.0),
    "sqeuclidean": (2, 2.0),
    "manhattan": (2, 2.0),
    "chebyshev": (2, 1.0),
    "minkowski": (3, 2.0),
    "cosine": (2, 0.005),
    "haversine": (2, 300_000.0),
}


@pytest.mark.parametrize("metric", every_nth(4, METRICS))
def test_every_metric(metric, tmp_path):
    """Some rows come and others go, and the index tells the pairs and their distances
    before and after.
    """
    p, eps = METRICS[metric]
    frame = table(points(metric))
    how = {"on": ["x0", "x1"], "id": "key", "metric": metric} | (
        {"p": p} if metric == "minkowski" else {}
    )
    told = {"return_distance": True, **how}
    index = frame.iloc[:KNOWN].simjoin.index(
        eps, tmp_path / "index", row_group=8, **told
    )
    gone = frame["key"].iloc[GONE]
    changes = index.update(lay(frame.iloc[KNOWN:], "dask-3"), delete=gone)
    before = frame.iloc[:KNOWN].simjoin.self_join(eps, **told)
    after = frame.drop(GONE).simjoin.self_join(eps, **told)
    assert (
        as_set(before)
        and as_set(after) - as_set(before)
        and as_set(before) - as_set(after)
    )
    assert_same_pairs(as_set(index.pairs().compute()), as_set(after))
    assert_same_pairs(as_set(changes.added.compute()), as_set(after) - as_set(before))
    assert_same_pairs(as_set(changes.removed.compute()), as_set(before) - as_set(after))
    keys = ["left", "right"]
    found = index.pairs().compute().sort_values(keys, ignore_index=True)
    pd.testing.assert_frame_equal(found, after.sort_values(keys, ignore_index=True))
    assert_same_pairs(
        as_set(index.pairs(eps / 2).compute()),
        as_set(frame.drop(GONE).simjoin.self_join(eps / 2, **how)),
    )


@pytest.mark.parametrize("kind", ["objects", "arrow"])
def test_lists(kind, tmp_path):
    """Of 24 numbers, of which boxes tell 16."""
    x = np.random.default_rng(0).normal(size=(N, 24))
    x[KNOWN:] = x[: N - KNOWN] + np.random.default_rng(1).normal(
        scale=0.05, size=(N - KNOWN, 24)
    )
    frame = table(x, lists=True)
    if kind == "arrow":
        frame["v"] = frame["v"].astype(pd.ArrowDtype(pa.list_(pa.float64())))
    index = frame.iloc[:KNOWN].simjoin.index(
        0.01, tmp_path / "index", on="v", id="key", metric="cosine", row_group=8
    )
    assert len(index.options.cut) == 16
    changes = index.update(frame.iloc[KNOWN:], delete=frame["key"].iloc[GONE].tolist())
    names = frame["key"].tolist()
    want = {
        (names[i], names[j])
        for i, j in brute_force(x, 0.01, "cosine")
        if i not in GONE and j not in GONE
    }
    assert len(want) > 20
    assert_same_pairs(as_set(changes.added.compute()), want)
    assert_same_pairs(as_set(index.pairs().compute()), want)
    rows = index.rows().compute().set_index("key")["v"]
    assert np.array_equal(np.stack(rows.loc[names[:3]].map(np.asarray)), x[:3])


def test_lists_of_which_none_is_left(tmp_path):
    """In a row group: no list tells how long it is."""
    frame = table(np.arange(12.0).reshape(4, 3), lists=True)
    index = frame.simjoin.index(
        9.0, tmp_path / "index", on="v", id="key", row_group=2, recluster="never"
    )
    changes = index.delete(frame["key"].iloc[:2])
    assert as_set(changes.removed.compute()) == {(1000, 999), (999, 998)}
    assert as_set(index.pairs().compute()) == {(998, 997)}
    assert index.plan(frame.iloc[:0]).rows == 0


def test_distances_with_units(tmp_path):
    frame = pd.DataFrame(
        {"key": [1, 2, 3], "lat": [0.0, 0.0, 1.0], "lon": [180.0, -179.5, 0.0]}
    )
    index = frame.simjoin.index(
        "60 km", tmp_path / "index", on=["lat", "lon"], id="key", metric="haversine"
    )
    assert (
        as_set(index.pairs().compute())
        == as_set(index.join(frame.iloc[[0]]).compute()) - {(1, 1)}
        == {(1, 2)}
    )
    assert as_set(index.pairs("50 km").compute()) == set()


STARTED = datetime.datetime(2026, 1, 1)


NAMES = {
    "negative": np.arange(N) - 20,
    "uint64": np.arange(N, dtype=np.uint64) + np.uint64(2**63),
    "int32": np.arange(N, dtype=np.int32)[::-1].copy(),
    "float": np.arange(N) / 4 - 3,
    "texts": np.array([f"row {k}" for k in range(N)], object),
    "arrow": pd.array([f"row {k}" for k in range(N)], "string[pyarrow]"),
    "dates": pd.date_range(STARTED, periods=N, freq="h"),
    "nullable": pd.array(np.arange(N), "Int64"),
}


@pytest.mark.parametrize(
    ("kind", "column"),
    every_nth(
        4, [*((kind, True) for kind in NAMES), ("negative", False), ("texts", False)]
    ),
)
def test_ids_of_every_kind(kind, column, tmp_path):
    """As a column, or as the frame's index: their dtype, look-ups, and refusals that
    name them.
    """
    x = points("euclidean")
    names = pd.Index(NAMES[kind])
    frame = pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1]}, index=names)
    id = None
    if column:
        frame, id = frame.rename_axis("who").reset_index(), "who"
    index = frame.iloc[:KNOWN].simjoin.index(
        2.0, tmp_path / "index", on=["x0", "x1"], id=id, row_group=8
    )
    moved = frame.iloc[50:].copy()
    moved["x0"] += 1
    changes = index.update(moved, delete=names[GONE], if_exists="replace")
    assert (
        changes.report.inserted,
        changes.report.replaced,
        changes.report.deleted,
    ) == (30, 10, 3)
    x[50:, 0] += 1
    want = {
        (names[i], names[j])
        for i, j in brute_force(x, 2.0)
        if i not in GONE and j not in GONE
    }
    found = index.pairs().compute()
    assert_same_pairs(as_set(found), want)
    # pandas 2 keeps Arrow's texts in Python
    assert found["left"].dtype.name == names.dtype.name
    rows = index.rows().compute()
    kept = rows["who"] if column else rows.index
    assert set(kept) == set(names.delete(GONE)) and kept.dtype.name == names.dtype.name
    with pytest.raises(
        dask_simjoin.errors.OptionError,
        match="delete= names 1 id that no row of the index has",
    ):
        index.delete(names[GONE[:1]])


def test_kept_columns_of_every_kind(tmp_path):
    """Their values and dtypes come back, but for categories, which become their values."""
    x = np.zeros((4, 1))
    kept = {
        "text": ["a", None, "c", "d"],
        "number": pd.array([1, None, 3, 4], "Int64"),
        "when": pd.date_range("2026-01-01", periods=4, tz="UTC"),
        "list": [[1], [1, 2], [], [3]],
        "kind": pd.Categorical(["u", "v", "u", "v"]),
        "flag": [True, False, True, False],
    }
    frame = pd.DataFrame({"key": range(4), "x": x[:, 0]} | kept)
    index = frame.iloc[:2].simjoin.index(
        0, tmp_path / "index", on="x", id="key", keep=list(kept)
    )
    index.update(frame.iloc[2:])
    found = index.pairs().compute().sort_values(["left", "right"], ignore_index=True)
    want = frame.simjoin.self_join(0, on="x", id="key", keep=list(kept))
    want = want.sort_values(["left", "right"], ignore_index=True)
    assert list(found.columns) == list(want.columns)
    for name in found.columns:
        if name.startswith("kind"):
            assert found[name].tolist() == want[name].tolist()
        elif name.startswith("list"):
            assert [list(some) for some in found[name]] == [
                list(some) for some in want[name]
            ]
        else:
            pd.testing.assert_series_equal(found[name], want[name])


FRAME = pd.DataFrame({"key": [1, 2, 3], "x": [0.0, 1.0, 5.0], "name": ["a", "b", "c"]})


class BytesPath:
    """A path as some systems give it."""

    def __fspath__(self):
        return b"index"


@pytest.fixture
def made(tmp_path):
    return FRAME.simjoin.index(1.0, tmp_path / "index", on="x", id="key", keep="name")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"eps": "key"},
            "OptionTypeError",
            r"eps='key' is not a number; use a finite number >= 0\.",
        ),
        ({"eps": -1.0}, "OptionError", r"eps=-1\.0 is not allowed"),
        ({"path": 5}, "OptionTypeError", r"path=5 is not a path; name a folder"),
        (
            {"path": "ftp://host/index"},
            "OptionError",
            r"in a folder, or on an object store \(s3://, ",
        ),
        (
            {"path": "~nosuchuser/index"},
            "OptionError",
            r"path='~nosuchuser/index' is in the home of an",
        ),
        (
            {"path": "a\0b"},
            "OptionError",
            r"path='a\\x00b' names no folder; use a path",
        ),
        ({"path": ""}, "OptionError", r"path='' names no folder"),
        (
            {"path": BytesPath()},
            "OptionTypeError",
            r"is a path of bytes; use os\.fsdecode",
        ),
        (
            {"row_group": 100},
            "OptionError",
            r"row_group=100 is not allowed; use a power of two up to 65,536",
        ),
        (
            {"recluster": "often"},
            "OptionError",
            r"recluster='often' is not allowed; use one of 'auto', 'always'",
        ),
        (
            {"recluster": 0.5},
            "OptionError",
            r"recluster=0\.5 is not allowed; use .*'never', or a number >= 1",
        ),
        ({"store_pairs": "yes"}, "OptionTypeError", r"store_pairs='yes'"),
        (
            {"store_pairs": True, "keep": "_seq_left", "suffixes": ("", "_of_right")},
            "OptionError",
            r"store_pairs=True writes columns '_seq_left', '_seq_right'.* names '_seq_left'; use other",
        ),
        (
            {"keep": "diff", "suffixes": ("", "_of_right")},
            "OptionError",
            r"changes\(\) marks added and removed pairs in a column 'diff'.* Use other suffixes=",
        ),
        ({"method": "tiles"}, "OptionTypeError", r"index\(\) has no option 'method'"),
        ({"id": "none"}, "ColumnError", r"id='none' is not a column"),
    ],
)
def test_options(options, error, message, tmp_path):
    asked = {"eps": 1.0, "path": tmp_path / "index", "on": "x", "id": "key"} | options
    with pytest.raises(getattr(errors, error), match=message):
        FRAME.assign(_seq_left=0.5, diff=0).simjoin.index(**asked)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("frame", "error", "message"),
    [
        (
            FRAME.assign(x=[0.0, np.nan, 1.0]),
            "CoordinateError",
            "'x' has 1 missing value",
        ),
        (FRAME.assign(key=[1, 1, 2]), "DuplicateIdError", "are not unique: 1 repeats"),
        (
            FRAME.rename(columns={"name": "_seq"}),
            "ColumnError",
            "The index on disk reserves the names '_seq'; rename",
        ),
        (
            FRAME.rename(columns={"name": 7}),
            "ColumnError",
            r"whose names are strings, but 7 is not.*astype\(str\)",
        ),
        (
            FRAME.assign(name=["a", 1, 2.0]),
            "ColumnError",
            "cannot all be written to parquet .* Convert mixed",
        ),
        (
            FRAME.assign(name=pd.Series(["a\ud800", "b", "c"], dtype=object)),
            "ColumnError",
            r"cannot all be written to parquet: there is 'a.ud800', which is not valid Unicode",
        ),
        (
            FRAME.assign(key=pd.Series(["a\ud800", "b", "c"], dtype=object)),
            "ColumnError",
            r"cannot all be written to parquet: there is 'a.ud800', which is not valid Unicode",
        ),
    ],
)
def test_frames(frame, error, message, tmp_path):
    keep = frame.columns[2]
    with pytest.raises(getattr(errors, error), match=message):
        frame.simjoin.index(1.0, tmp_path / "index", on="x", id="key", keep=[keep])
    assert not list(tmp_path.iterdir())


def test_folders(made, tmp_path):
    with pytest.raises(
        errors.OptionError,
        match=r"holds an index already; open it with dask_simjoin\.open_index",
    ):
        FRAME.simjoin.index(1.0, tmp_path / "index", on="x", id="key")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("")
    with pytest.raises(
        errors.OptionError,
        match=r"has other files in it \('notes'\); use a new or empty",
    ):
        FRAME.simjoin.index(1.0, tmp_path / "other", on="x", id="key")
    with pytest.raises(errors.OptionError, match="is a file; use a new"):
        FRAME.simjoin.index(1.0, tmp_path / "other" / "notes", on="x", id="key")
    with pytest.raises(
        errors.OptionError,
        match=r"backend='polars' is not allowed; use one of 'pandas', 'cudf'",
    ):
        dask_simjoin.open_index(tmp_path / "index", backend="polars")
    with pytest.raises(
        errors.VersionGoneError, match=r"Version 7 of the index .* version 1 remains"
    ):
        dask_simjoin.open_index(tmp_path / "index", version=7)
    with pytest.raises(
        errors.OptionError, match=r"version=0 is not allowed; use a whole number >= 1"
    ):
        dask_simjoin.open_index(tmp_path / "index", version=0)


NEW = pd.DataFrame({"key": [8, 9], "x": [0.5, 6.0], "name": ["d", "e"]})


@pytest.mark.parametrize(
    ("new", "asked", "error", "message"),
    [
        (
            FRAME,
            {},
            "DuplicateIdError",
            r"already contains 3 of the new ids: 1, 2, 3\. Use if_exists='replace'",
        ),
        (NEW.assign(key=[8, 8]), {}, "DuplicateIdError", "are not unique: 8 repeats"),
        (
            NEW.drop(columns="name"),
            {},
            "ColumnError",
            r"lack columns 'name' of the index",
        ),
        (
            NEW.drop(columns="key"),
            {},
            "ColumnError",
            r"lack columns 'key' of the index; .* of on=, id= and keep=",
        ),
        (
            NEW.astype({"key": "float64"}),
            {},
            "ColumnError",
            r"'key' of partition 0 is of type double, and the index has",
        ),
        (
            NEW.astype({"key": "str"}),
            {},
            "ColumnError",
            r"'key' of partition 0 .* with \.astype\('int64'\)",
        ),
        (
            NEW.assign(name=[1, 2]),
            {},
            "ColumnError",
            r"'name' of partition 0 is of type int64",
        ),
        (
            NEW.assign(x=[[0.5], [1.0]]),
            {},
            "CoordinateError",
            r"a column each, but the new rows .* as lists",
        ),
        (
            NEW.assign(x=[0.5, np.inf]),
            {},
            "CoordinateError",
            r"'x' has 1 infinite value",
        ),
        (7, {}, "UnsupportedFrameError", r"is not a data frame"),
        (
            NEW,
            {"if_exists": "append"},
            "OptionError",
            r"if_exists='append' is not allowed; use one of 'fail'",
        ),
        (NEW, {"batch": 5}, "OptionTypeError", r"batch=5 is not a string"),
        (
            NEW,
            {"delete": [1, 77, 78]},
            "OptionError",
            r"delete= names 2 ids that no row .* has: 77, 78\. Leave them out",
        ),
        (NEW, {"delete": "1"}, "OptionTypeError", r"delete='1' is not a list of ids"),
        (
            NEW,
            {"delete": ["one"]},
            "OptionTypeError",
            r"ids of dtype .*, such as 'one', .* dtype int64; convert",
        ),
        (
            NEW,
            {"delete": FRAME["x"] < 5},
            "OptionTypeError",
            r"delete= has ids of dtype bool, such as .*True",
        ),
        (
            NEW,
            {"delete": [2**70]},
            "OptionTypeError",
            r"delete= has ids of dtype object, such as 118",
        ),
        (
            NEW,
            {"delete": [1.5]},
            "OptionTypeError",
            r"delete= has ids of dtype float64, such as .*1\.5",
        ),
    ],
)
def test_updates(new, asked, error, message, made):
    with pytest.raises(getattr(errors, error), match=message):
        made.update(new, **asked)
    assert made.version == 1
    assert sorted(made.rows().compute()["key"]) == [1, 2, 3]
    # the example, and the first rows
    assert len(list((made.path / "rows").iterdir())) == 2


def test_lists_of_another_length(tmp_path):
    made = pd.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]]}).simjoin.index(
        1.0, tmp_path / "index", on="v"
    )
    with pytest.raises(
        errors.CoordinateError,
        match=r"points of 2 dimensions, stored as lists, but the new rows have 3",
    ):
        made.update(pd.DataFrame({"v": [[1.0, 2.0, 3.0]]}, index=[5]))
    with pytest.raises(
        errors.CoordinateError,
        match=r"Their length is unknown, because the frame has no rows\. Make the index from at",
    ):
        pd.DataFrame({"v": [[1.0]]}).iloc[:0].simjoin.index(
            1.0, tmp_path / "none", on="v"
        )


def test_versions(made):
    made.update(NEW)
    made.delete([1])
    with pytest.raises(
        errors.VersionGoneError,
        match=r"Version 9 is not an ancestor of version 3 .* history\(\) lists",
    ):
        made.restore(9)
    with pytest.raises(
        errors.VersionGoneError, match="since=3 is after until=2; pass the older"
    ):
        made.changes(3, 2)
    with pytest.raises(
        errors.OptionError, match="keep=0 is not allowed; use a whole number >= 1"
    ):
        made.vacuum(0)
    made.vacuum(1)
    with pytest.raises(
        errors.VersionGoneError,
        match=r"Version 2 .* does not exist; version 3 remains\.",
    ):
        made.changes(1)


@pytest.mark.parametrize(
    ("frame", "error", "message"),
    [
        (NEW.assign(x=[np.nan, 1.0]), "CoordinateError", "'x' has 1 missing value"),
        (NEW.assign(key=[8, 8]), "DuplicateIdError", "are not unique: 8 repeats"),
        (NEW.drop(columns="x"), "ColumnError", "The new rows lack columns 'x' of the"),
        (
            NEW.drop(columns="key"),
            "ColumnError",
            "lack columns 'key' of the index; they have .* of on= and id= of the index.$",
        ),
        (
            NEW.assign(x=[[0.5], [1.0]]),
            "CoordinateError",
            "a column each, but the new rows",
        ),
    ],
)
def test_tables_that_are_joined(made, frame, error, message):
    """A row that can be in no pair would hide those of the others."""
    with pytest.raises(getattr(errors, error), match=message):
        made.join(frame)


in_this_thread = pytest.mark.usefixtures("in_this_thread")

EPS = 1.0
HOW = {"on": ["x", "y"], "id": "key"}


def rows(x, first=0):
    """Rows at some places, numbered from `first`."""
    return pd.DataFrame(
        {"key": np.arange(first, first + len(x)), "x": x[:, 0], "y": x[:, 1]}
    )


@in_this_thread
def test_one_batch_or_many_of_the_same_rows_give_equal_pairs(tmp_path):
    random = np.random.default_rng(0)
    every = rows(random.integers(0, 60, (1500, 2)) / 2)
    old, new = every[:500], every[500:]
    expected = as_set(every.simjoin.self_join(EPS, **HOW))
    known = as_set(old.simjoin.self_join(EPS, **HOW))
    for number, how in every_nth(
        2, [(1, "dask-3"), (1, "pandas"), (20, "pandas"), (7, "dask-1")]
    ):
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
    """Batches of new places: centres that wander, regions one after the other, or
    anywhere.
    """
    for number in range(updates):
        if kind == "drifting":
            yield random.normal(5 + 20 * number / updates, 1.5, (40, 2))
        elif kind == "regions":
            yield random.uniform(0, 5, (40, 2)) + 5 * np.array(
                [number * 5 // updates, 2.0]
            )
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
        total += (
            changes.work.rows_read + OPEN_COST * opened + REWRITE * changes.upkeep.rows
        )
        total += COMMIT * (changes.upkeep.files_dropped > 0)
        expected += len(changes.added)
    assert len(index.changes(1)) == expected
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "updates", "policies"),
    [
        (kind, 100, ["always", "never", 1.2, 1.5, 2.0, 4.0])
        for kind in ("drifting", "regions", "uniform")
    ],
)
@in_this_thread
def test_rent_or_buy_costs_little_more_than_the_best_policy_does(
    kind, updates, policies, tmp_path
):
    found = {
        policy: cost(tmp_path / str(policy), kind, policy, updates)
        for policy in policies
    }
    own = cost(tmp_path / "auto", kind, "auto", updates)
    print(kind, {name: round(value / own, 2) for name, value in found.items()})
    assert own <= 1.3 * min(found.values())
    assert own < max(found.values())


@in_this_thread
def test_on_a_cluster(tmp_path, client, monkeypatch):
    """Few new rows travel with the graph; many are read again by workers."""
    random = np.random.default_rng(4)
    every = rows(random.integers(0, 60, (900, 2)) / 2)
    expected = as_set(every.simjoin.self_join(EPS, **HOW))
    with dask.config.set(scheduler=client.get):
        index = every[:600].simjoin.index(
            EPS, tmp_path, row_group=64, recluster="always", **HOW
        )
        known = as_set(index.pairs().compute())
        for part in (every[600:800], every[800:]):
            known |= as_set(index.update(part).added.compute())
            monkeypatch.setattr(blocks, "PARSED_BYTES", 0)
        assert known == expected == as_set(index.pairs().compute())
        groups = index.components().compute()
    joined = dask_simjoin.connected_components(every.simjoin.self_join(EPS, **HOW))
    sizes = groups["component"].value_counts()
    assert sorted(sizes[sizes > 1]) == sorted(joined["component"].value_counts())


BATCH = pd.DataFrame(
    {"key": [20, 21, 22, 23], "x": [1.0, 2.5, -0.0, 7.0], "name": list("abcd")}
)


@pytest.mark.parametrize("kind", every_nth(4, ["int64", "str"]))
def test_a_batch_name_with_other_rows_is_refused(kind, tmp_path):
    """The same rows are known in any order, partitions and dtypes; other rows would be
    lost.
    """
    first = pd.DataFrame(
        {"key": range(9), "x": np.arange(9.0), "name": list("abcdefghi")}
    )
    first, batch = (rows.astype({"key": kind}) for rows in (first, BATCH))
    gone = first["key"].iloc[[1, 2]].tolist()
    index = first.simjoin.index(0.5, tmp_path / "index", on="x", id="key", keep="name")
    made = index.update(lay(batch, "dask-3"), delete=gone, batch="night")
    same = batch.iloc[::-1].assign(x=batch["x"].astype("float32") + 0.0)
    for rows in (
        batch,
        same,
        lay(same, "dask-1"),
        lay(batch, "dask-3"),
        None,
        batch.iloc[:0],
    ):
        for ids in (gone, gone[::-1], None):
            again = index.update(rows, delete=ids, batch="night")
            assert again.report.known and (again.since, again.version) == (
                made.since,
                made.version,
            )
    swapped = batch.assign(x=batch["x"].to_numpy()[[1, 0, 2, 3]])
    others = (
        (
            lay(batch.iloc[:3], "dask-3"),
            None,
            r"it had 4 new rows, and this call has 3\.",
        ),
        (
            batch.assign(x=batch["x"] + 1e-9),
            None,
            r"4 new rows, .* has as many, but other ids or coordinates",
        ),
        (swapped, gone, "4 new rows"),
        (batch.assign(key=batch["key"].to_numpy()[::-1]), gone, "4 new rows"),
        (batch, gone[:1], "it had 2 deleted rows, and this call has 1"),
        (None, first["key"].iloc[[1, 3]].tolist(), "2 deleted rows, .* has as many"),
    )
    for rows, ids, told in others:
        with pytest.raises(
            errors.OptionError, match=f"batch='night' was .* as version 2 .*{told}"
        ) as error:
            index.update(rows, delete=ids, batch="night")
        assert "Nothing was changed. Use another batch name" in str(error.value)
        assert error.value.remedies[0].options == {"batch": None}
    assert index.version == 2 and len(index) == 11
    assert (
        index.update(
            batch.assign(key=["90", "91", "92", "93"]).astype({"key": kind})
        ).version
        == 3
    )


@pytest.mark.parametrize("lists", [False, True])
def test_rows_of_a_batch_are_those_that_take_part(lists, tmp_path):
    """Rows without coordinates do not count, and lists are compared by their numbers."""
    x = np.random.default_rng(3).normal(size=(20, 3))
    x[:, 0] = np.where(np.arange(20) == 15, np.nan, x[:, 0])
    frame, on = table(x, lists), "v" if lists else ["x0", "x1", "x2"]
    if lists:
        frame["v"] = frame["v"].where(frame.index != 15)
    index = frame.iloc[:10].simjoin.index(
        0.5, tmp_path / "index", on=on, id="key", dropna=True
    )
    more = frame.iloc[10:]
    report = index.update(more, batch="a").report
    assert not report.known and (report.inserted, report.rows_left_out) == (9, 1)
    assert index.update(lay(more, "dask-3"), batch="a").report.known
    with pytest.raises(errors.OptionError, match="9 new rows, and this call has 8"):
        index.update(more.iloc[1:], batch="a")


def test_missing_coordinates_name_no_option_that_updates_lack(tmp_path):
    frame = pd.DataFrame({"key": [1, 2], "x": [0.0, 1.0], "y": 1.0})
    index = frame.simjoin.index(
        0.1, tmp_path / "index", on=["x", "y"], id="key", metric="cosine"
    )
    for x, y in ((np.nan, 1.0), (0.0, 0.0)):
        bad = pd.DataFrame({"key": [3], "x": x, "y": y})
        for call in (index.update, index.join):
            with pytest.raises(errors.CoordinateError) as raised:
                call(bad)
            assert "Use dropna=True" not in str(raised.value)
            assert "drop those rows first, or make the index with dropna=True." in str(
                raised.value
            )


def test_other_columns_of_new_rows_are_ignored(tmp_path):
    frame = pd.DataFrame({"key": [1, 2], "x": [0.0, 0.5], "name": ["a", "b"], "old": 0})
    index = frame.simjoin.index(1.0, tmp_path / "index", on="x", id="key", keep="name")
    new = pd.DataFrame({"new": ["n"], "name": ["c"], "x": [1.2], "key": [3]})
    assert index.update(new).added.compute().to_numpy().tolist() == [[2, 3, "b", "c"]]
    assert list(index.rows().columns) == ["key", "x", "name"]
