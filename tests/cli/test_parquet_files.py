"""Parquet files with values that are not allowed, and the places of values."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.core import url_to_fs

from dask_simjoin.cli import parquet_files
from dask_simjoin.cli.csv_rows import NO_RULES, Rules
from dask_simjoin.cli.csv_types import FLOAT, Range
from dask_simjoin.cli.parquet_files import ParquetFile
from tests.cli.test_commands import run
from tests.support.csv_tables import SYNC
from tests.support.profiles import every_nth

pytestmark = pytest.mark.usefixtures("folder")

HOW = ("--eps", "600 m", "--metric", "haversine", *SYNC)
COLUMNS = ("--on", "lat,lon", "--id", "id")


def places(first: int, rows: int = 40) -> pd.DataFrame:
    r = np.random.default_rng(first)
    lat, lon = r.uniform(47, 47.02, rows), r.uniform(8, 8.02, rows)
    return pd.DataFrame({"id": range(first, first + rows), "lat": lat, "lon": lon})


def with_texts(frame: pd.DataFrame, cells: dict[int, str | None]) -> pd.DataFrame:
    texts = frame["lat"].map(repr).astype(object)
    for row, cell in cells.items():
        texts.iloc[row] = cell
    return frame.assign(lat=texts.astype("str").where(texts.notna()))


def with_numbers(frame: pd.DataFrame, cells: dict[int, float]) -> pd.DataFrame:
    lat = frame["lat"].copy()
    lat.iloc[list(cells)] = list(cells.values())
    return frame.assign(lat=lat)


TEXTS = {5: "north", 6: "-999", 7: None, 8: "1_000"}
NUMBERS = {3: -999.0, 4: np.nan, 9: 90.5}


def written(order: tuple[int, ...] = (0, 1, 2)) -> None:
    """Write the same table as Parquet and as CSV files."""
    parts = [
        places(0),
        with_texts(places(100), TEXTS),
        with_numbers(places(200), NUMBERS),
    ]
    Path("p").mkdir()
    Path("c").mkdir()
    for n, k in enumerate(order):
        parts[k].to_parquet(f"p/{n}.parquet", row_group_size=11)
        parts[k].to_csv(f"c/{n}.csv", index=False)


def pairs(name: str) -> set[frozenset[int]]:
    """Return pairs without an order, which depends on the order of the rows."""
    found = pd.read_csv(name)[["left", "right"]].itertuples(index=False, name=None)
    return set(map(frozenset, found))


@pytest.mark.parametrize(
    ("order", "on"),
    every_nth(
        4, [((0, 1, 2), COLUMNS), ((1, 0, 2), COLUMNS), ((2, 0, 1), COLUMNS[2:])]
    ),
)
def test_bad_rows_are_those_of_csv_files(order, on):
    written(order)
    found = {}
    for kind in ("c", "p"):
        if kind == "p" or on[0] == "--on":
            given = (*HOW, *on, "--dropna", "--bad-rows", f"bad-{kind}.csv", "--json")
            ran = run("self-join", kind, *given, "-o", f"{kind}.csv")
            found[kind] = json.loads(ran.stdout)
    listed = pd.read_csv("bad-p.csv")
    assert found["p"]["bad_rows"] == 5 and found["p"]["rows_left_out"] == 2
    assert listed["line"].tolist() == [
        line for k in order for line in {0: [], 1: [5, 6, 7, 8], 2: [3, 4, 9]}[k]
    ]
    assert {Path(name).name for name in listed["file"]} == {
        f"{order.index(1)}.parquet",
        f"{order.index(2)}.parquet",
    }
    assert any("has 'north', which is not a number" in one for one in listed["reason"])
    good = pd.concat(
        [
            places(0),
            places(100).drop([5, 6, 7, 8]),
            places(200).drop([3, 4, 9]),
        ]
    )
    good.to_csv("good.csv", index=False)
    run("self-join", "good.csv", *HOW, *COLUMNS, "-o", "want.csv")
    assert len(pairs("want.csv")) > 100
    assert pairs("p.csv") == pairs("want.csv")
    if "c" in found:
        assert pairs("c.csv") == pairs("p.csv")
        # a row of CSV begins in line 2
        assert (pd.read_csv("bad-c.csv")["line"] - 2).tolist() == listed[
            "line"
        ].tolist()


@pytest.mark.parametrize("command", ["self-join", "index make"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_a_text_is_refused_with_its_place(command, order):
    written(order)
    output = ("--path", "grown") if command == "index make" else ("-o", "o.csv")
    words = (*command.split(), "p", *HOW, *COLUMNS, *output, "--dropna")
    ran = run(*words, "--json", code=3)
    name = f"p/{order.index(1)}.parquet"
    text = f"{name}, row 5: column 'lat' has 'north', which is not a number. The row is"
    assert text in ran.stderr and "--bad-rows skip" in ran.stderr
    told = json.loads(ran.stdout)
    assert text in told.pop("message")
    assert told == {"command": command, "error": "BadData", "exit_code": 3}
    made = json.loads(run(*words, "--json", "--bad-rows", "skip").stdout)
    assert made["bad_rows"] == 5
    if command == "index make":
        assert made["rows"] == 120 - 7


def test_an_impossible_place_is_named_with_the_remedy():
    Path("p").mkdir()
    places(0).to_parquet("p/0.parquet")
    with_numbers(places(100), {7: -999.0}).to_parquet("p/1.parquet")
    ran = run("self-join", "p", *HOW, *COLUMNS, "-o", "o.csv", "--dropna", code=3)
    assert "for example -999.0 in p/1.parquet, row 7." in ran.stderr
    assert "leave out such rows with --bad-rows skip." in ran.stderr


def test_missing_values_and_repeated_ids_are_named():
    Path("p").mkdir()
    places(0).to_parquet("p/0.parquet")
    with_numbers(places(39), {2: np.nan}).to_parquet("p/1.parquet")
    words = "self-join", "p", *HOW, *COLUMNS, "-o", "o.csv"
    assert "See p/1.parquet, row 2." in run(*words, code=3).stderr
    said = run(*words, "--dropna", code=3).stderr
    assert "39 repeats" in said
    assert "See p/0.parquet, row 39 and p/1.parquet, row 0." in said


def test_rows_of_an_update_are_bad_by_the_columns_of_the_index():
    written()
    places(0).to_parquet("first.parquet")
    how = (*HOW[:4], *COLUMNS, *SYNC)
    run("index", "make", "first.parquet", *how, "--path", "grown")
    words = ("index", "update", "grown", "p/1.parquet", "-o", "o.csv", "--dropna")
    assert "p/1.parquet, row 5: column 'lat' has 'north'" in run(*words, code=3).stderr
    made = json.loads(run(*words, "--bad-rows", "bad.csv", "--json").stdout)
    assert (made["inserted"], made["bad_rows"], made["rows_left_out"]) == (36, 3, 1)


def test_texts_of_numbers_are_numbers_and_other_texts_another_column():
    places(0).to_parquet("n.parquet")
    with_texts(places(0), {}).to_parquet("t.parquet")
    for name in ("n", "t"):
        run("self-join", f"{name}.parquet", *HOW, *COLUMNS, "-o", f"{name}.csv")
    assert pairs("n.csv") == pairs("t.csv") != set()
    places(0).assign(lat="north").to_parquet("w.parquet")
    for also in ((), ("--bad-rows", "skip")):
        words = "self-join", "w.parquet", *HOW, *COLUMNS, "-o", "w.csv", *also
        assert "must be numbers" in run(*words, code=2).stderr


RULES = Rules(
    {"lat": FLOAT},
    frozenset({"lat"}),
    NO_RULES.known,
    NO_RULES.gaps,
    NO_RULES.ids,
    {"lat": Range("latitude", -90.0, 90.0)},
)


@pytest.mark.parametrize("kind", ["text", "large", "dictionary"])
def test_rows_are_numbered_in_the_file(kind, monkeypatch):
    monkeypatch.setattr(parquet_files, "BATCH", 3)
    kinds = {
        "text": pa.string(),
        "large": pa.large_string(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
    }
    cells = ["1", "x", None, "NA", " 2 ", "1e9", "3", "nan", "1_0"]
    lat = pa.array(cells).cast(kinds[kind])
    pq.write_table(pa.table({"k": range(9), "lat": lat}), "a.parquet", row_group_size=4)
    file = ParquetFile(*url_to_fs("a.parquet"), "a.parquet")
    found = parquet_files.find_bad_rows(file, RULES)
    assert [row.line for _, row in found.rows] == [1, 5, 8]
    assert found.rows[0][1].row == "1,x" and found.filled == {"lat"}
    frame = pd.read_parquet("a.parquet")
    good = parquet_files.without_bad_rows(frame, RULES)
    assert good["k"].tolist() == [0, 2, 3, 4, 6, 7]
    want = [1.0, np.nan, np.nan, 2.0, 3.0, np.nan]
    np.testing.assert_array_equal(good["lat"], want)
    assert parquet_files.rows_of([file], "lat", None) == [
        "a.parquet, row 2",
        "a.parquet, row 3",
    ]
    assert parquet_files.rows_of([file], "lat", 2.0) == ["a.parquet, row 4"]


def test_numbers_and_texts_of_one_partition():
    """Dask may concatenate files whose columns have different types."""
    frame = pd.DataFrame({"lat": [1.5, "2", None, "x", -999, np.nan]}, dtype=object)
    good = parquet_files.without_bad_rows(frame, RULES)
    np.testing.assert_array_equal(good["lat"], [1.5, 2.0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        ([[1, 2], [1, 3], [5]], None, "a.parquet, row 2, has a list of length 1"),
        ([[1, 2], None], [[5], [], [1, 3]], "b.parquet, row 0, has a list of length 1"),
        (
            [[7], [8]],
            [[1, 2], [1, 3], None],
            "a.parquet, row 0, has a list of length 1",
        ),
    ],
)
def test_lists_of_other_lengths_are_bad(first, second, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lists, files = [], []
    for name, some in (("a.parquet", first), ("b.parquet", second)):
        if some is not None:
            ids = [len(lists) + k for k in range(len(some))]
            kinds = {"id": pa.int64(), "v": pa.list_(pa.float64())}
            table = pa.table({"id": ids, "v": some}, schema=pa.schema(kinds))
            pq.write_table(table, name)
            lists, files = lists + some, [*files, name]
    how = "--eps", "1", "--on", "v", "--id", "id", "--dropna", "-q"
    ran = run("self-join", *files, *how, "-o", "n.csv", code=3)
    said = (
        f"Lists of column 'v' must be of equal length. {place}, but most have length 2"
    )
    assert f"Error: {said}. Correct the row, or leave out" in ran.stderr
    run("self-join", *files, *how, "-o", "o.csv", "--bad-rows", "bad.csv")
    good = [n for n, one in enumerate(lists) if one is not None and len(one) == 2]
    pairs = pd.read_csv("o.csv")[["left", "right"]].to_numpy().tolist()
    assert [sorted(pair) for pair in pairs] == [good]
    bad = pd.read_csv("bad.csv")
    other = [n for n, one in enumerate(lists) if one is None or len(one) != 2]
    starts = {"a.parquet": 0, "b.parquet": len(first)}
    assert sorted(bad["file"].map(starts) + bad["line"]) == other
    missing = (bad["reason"] == "column 'v' has no value").sum()
    assert missing == sum(one is None for one in lists)


@pytest.mark.parametrize("first", ["1.parquet", "20.parquet"])
def test_a_file_that_lacks_a_column_is_named(first):
    Path("p").mkdir()
    table = pd.DataFrame({"id": [1, 2], "x": [0.0, 1.0], "z": 0})
    table.to_parquet(f"p/{first}")
    table[["id", "z"]].assign(id=[3, 4]).to_parquet("p/3.parquet")
    words = "count-pairs", "p", "--eps", "1", *SYNC, "--on"
    said = run(*words, "x", code=3).stderr
    assert "Column 'x' is not found in p/3.parquet, but in other files." in said
    assert run(*words, "z", "-q").stdout == "6\n"
