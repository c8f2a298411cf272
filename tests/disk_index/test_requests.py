"""What an index refuses: with the value, what is allowed, and a remedy; and nothing is changed."""

import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin import errors

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
        ({"eps": "key"}, "OptionTypeError", r"eps='key' is not a number; use a finite number >= 0\."),
        ({"eps": -1.0}, "OptionError", r"eps=-1\.0 is not allowed"),
        ({"path": 5}, "OptionTypeError", r"path=5 is not a path; name a folder"),
        ({"path": "s3://bucket/index"}, "OptionError", r"on an object store, and an index needs .* links"),
        ({"path": "~nosuchuser/index"}, "OptionError", r"path='~nosuchuser/index' is in the home of a user"),
        ({"path": "a\0b"}, "OptionError", r"path='a\\x00b' names no folder; use a path"),
        ({"path": ""}, "OptionError", r"path='' names no folder"),
        ({"path": BytesPath()}, "OptionTypeError", r"is a path of bytes; use os\.fsdecode"),
        ({"row_group": 100}, "OptionError", r"row_group=100 is not allowed; use a power of two up to 65,536"),
        (
            {"recluster": "often"},
            "OptionError",
            r"recluster='often' is not allowed; use one of 'auto', 'always'",
        ),
        (
            {"recluster": 0.5},
            "OptionError",
            r"recluster=0\.5 is not allowed; a number is the scan ratio",
        ),
        ({"store_pairs": "yes"}, "OptionTypeError", r"store_pairs='yes'"),
        (
            {"store_pairs": True, "keep": "_seq_left", "suffixes": ("", "_of_right")},
            "OptionError",
            r"store_pairs=True writes columns '_seq_left', '_seq_right' .* called '_seq_left'; use other",
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
        (FRAME.assign(x=[0.0, np.nan, 1.0]), "CoordinateError", "'x' has 1 missing or NaN"),
        (FRAME.assign(key=[1, 1, 2]), "DuplicateIdError", "are not unique: 1 repeats"),
        (
            FRAME.rename(columns={"name": "_seq"}),
            "ColumnError",
            "The index on disk has own columns '_seq'; rename",
        ),
        (
            FRAME.rename(columns={"name": 7}),
            "ColumnError",
            r"Columns 7 are not named by strings.*astype\(str\)",
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
    with pytest.raises(errors.OptionError, match=r"holds an index already; use dask_simjoin\.open_index"):
        FRAME.simjoin.index(1.0, tmp_path / "index", on="x", id="key")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("")
    with pytest.raises(errors.OptionError, match=r"has something else in it \('notes'\); use a new folder"):
        FRAME.simjoin.index(1.0, tmp_path / "other", on="x", id="key")
    with pytest.raises(errors.OptionError, match="is a file; use a folder"):
        FRAME.simjoin.index(1.0, tmp_path / "other" / "notes", on="x", id="key")
    with pytest.raises(
        errors.OptionError, match=r"backend='polars' is not allowed; use one of 'pandas', 'cudf'"
    ):
        dask_simjoin.open_index(tmp_path / "index", backend="polars")
    with pytest.raises(errors.VersionGoneError, match=r"Version 7 of the index .* those from 1 to 1 are"):
        dask_simjoin.open_index(tmp_path / "index", version=7)
    with pytest.raises(errors.OptionError, match=r"version=0 is not allowed; use a whole number >= 1"):
        dask_simjoin.open_index(tmp_path / "index", version=0)


NEW = pd.DataFrame({"key": [8, 9], "x": [0.5, 6.0], "name": ["d", "e"]})


@pytest.mark.parametrize(
    ("new", "asked", "error", "message"),
    [
        (
            FRAME,
            {},
            "DuplicateIdError",
            r"has 3 rows of these ids already: 1, 2, 3\. Use if_exists='replace'",
        ),
        (NEW.assign(key=[8, 8]), {}, "DuplicateIdError", "are not unique: 8 repeats"),
        (NEW.drop(columns="name"), {}, "ColumnError", r"has columns 'name', and the frame only has"),
        (NEW.drop(columns="key"), {}, "ColumnError", r"id='key' is not a column"),
        (
            NEW.astype({"x": "float32"}),
            {},
            "ColumnError",
            r"'x' of partition 0 is of type float, and the index has",
        ),
        (NEW.astype({"key": "str"}), {}, "ColumnError", r"'key' of partition 0 .* with \.astype\('int64'\)"),
        (NEW.assign(name=[1, 2]), {}, "ColumnError", r"'name' of partition 0 is of type int64"),
        (
            NEW.assign(x=[[0.5], [1.0]]),
            {},
            "CoordinateError",
            r"a column each, and rows of the frame .* as lists",
        ),
        (NEW.assign(x=[0.5, np.inf]), {}, "CoordinateError", r"'x' has 1 infinite"),
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
        (NEW, {"delete": [2**70]}, "OptionTypeError", r"delete= has ids of dtype object, such as 118"),
        (NEW, {"delete": [1.5]}, "OptionTypeError", r"delete= has ids of dtype float64, such as .*1\.5"),
    ],
)
def test_updates(new, asked, error, message, made):
    with pytest.raises(getattr(errors, error), match=message):
        made.update(new, **asked)
    assert made.version == 1
    assert sorted(made.rows().compute()["key"]) == [1, 2, 3]
    assert len(list((made.path / "rows").iterdir())) == 2  # the example, and the first rows


def test_lists_of_another_length(tmp_path):
    made = pd.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]]}).simjoin.index(1.0, tmp_path / "index", on="v")
    with pytest.raises(
        errors.CoordinateError, match=r"points of 2 dimensions, held as lists, and rows of .* have 3"
    ):
        made.update(pd.DataFrame({"v": [[1.0, 2.0, 3.0]]}, index=[5]))
    with pytest.raises(
        errors.CoordinateError, match="without rows their length is unknown; make the index from some"
    ):
        pd.DataFrame({"v": [[1.0]]}).iloc[:0].simjoin.index(1.0, tmp_path / "none", on="v")


def test_versions(made):
    made.update(NEW)
    made.delete([1])
    with pytest.raises(
        errors.VersionGoneError, match=r"Version 9 is not an ancestor of version 3 .* history\(\) lists"
    ):
        made.restore(9)
    with pytest.raises(errors.VersionGoneError, match="since=3 is after until=2; name the older"):
        made.changes(3, 2)
    with pytest.raises(errors.OptionError, match="keep=0 is not allowed; use a whole number >= 1"):
        made.vacuum(0)
    made.vacuum(1)
    with pytest.raises(
        errors.VersionGoneError, match=r"Version 2 .* is not there; those from 3 to 3 are\. vacuum"
    ):
        made.changes(1)


@pytest.mark.parametrize(
    ("frame", "error", "message"),
    [
        (NEW.assign(x=[np.nan, 1.0]), "CoordinateError", "'x' has 1 missing or NaN"),
        (NEW.assign(key=[8, 8]), "DuplicateIdError", "are not unique: 8 repeats"),
        (NEW.drop(columns="x"), "ColumnError", "on= names 'x', which is not a column"),
        (NEW.assign(x=[[0.5], [1.0]]), "CoordinateError", "a column each, and rows of the frame"),
    ],
)
def test_tables_that_are_joined(made, frame, error, message):
    """A row that can be in no pair would hide those of the others."""
    with pytest.raises(getattr(errors, error), match=message):
        made.join(frame)
