"""The file of bad rows also lists the rows that `--dropna` leaves out."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cli import csv_records
from tests.cli.test_commands import run
from tests.support.csv_tables import SYNC

pytestmark = pytest.mark.usefixtures("folder")

NAN, INF = np.nan, np.inf
LISTED = ("--dropna", "--bad-rows", "bad.csv", "--json", *SYNC)


def listed() -> list[tuple[str, int, str]]:
    found = pd.read_csv("bad.csv")
    assert found["row"].notna().all()
    return list(found[["file", "line", "reason"]].itertuples(index=False, name=None))


def has(*texts: str) -> str:
    return "; ".join(f"column {text[0]!r} has {text[1:].strip()}" for text in texts)


TABLE = pd.DataFrame(
    {
        "x": [0.0, NAN, 2.0, -INF, NAN, 5.0, 6.0, 7.0],
        "y": [0.0, 1.0, INF, 3.0, NAN, 5.0, 6.0, 7.0],
        "t": [0.0, 1.0, 2.0, 3.0, 4.0, NAN, 6.0, 7.0],
        "g": ["a", "a", "a", "a", "a", "a", None, "a"],
    }
)
GATED = ("--on", "x,y", "--by", "g", "--within", "t=1")
NONE, INFINITE = " no value", " an infinite value"
REASONS = {
    1: has("x" + NONE),
    2: has("y" + INFINITE),
    3: has("x" + INFINITE),
    4: has("x" + NONE, "y" + NONE),
    5: has("t" + NONE),
    6: has("g" + NONE),
}


@pytest.mark.parametrize("size", [1, 30, 10**6])
def test_lines_of_csv_files(size, monkeypatch):
    """Bad rows, blank lines and line ends in cells come before some of the rows."""
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", size)
    rows = TABLE.to_csv(index=False).splitlines()
    rows[3:3] = ["north,1,1,a", "", "1,1,1"]
    rows[8] = '0,0,0,"b\nc"'  # instead of row 4
    Path("a.csv").write_text("\n".join(rows) + "\n")
    ran = run("count-pairs", "a.csv", *GATED, "--eps", "1", *LISTED)
    told = json.loads(ran.stdout)
    assert (told["rows_left_out"], told["bad_rows"]) == (5, 2)
    lines = {1: 3, 2: 7, 3: 8, 5: 11, 6: 12}
    found = listed()
    assert [line for _, line, _ in found] == [3, 4, 6, 7, 8, 11, 12]
    reasons = {line: reason for _, line, reason in found}
    assert {row: reasons[line] for row, line in lines.items()} == {
        row: REASONS[row] for row in lines
    }
    shown = pd.read_csv("bad.csv", index_col="line")["row"]
    assert shown[7] == TABLE.to_csv(index=False, header=False).splitlines()[2]


def test_rows_of_parquet_files_with_bad_rows_and_any_names():
    """Dask reads 2.parquet before 10.parquet."""
    Path("p").mkdir()
    TABLE.to_parquet("p/10.parquet", row_group_size=3)
    texts = TABLE.assign(x=["0", "north", None, "1", "west", "2", "nan", "inf"])
    texts = texts.assign(y=0.0, t=0.0, g="a")
    texts.to_parquet("p/2.parquet")
    ran = run("self-join", "p", *GATED, "--eps", "1", "-o", "o.csv", *LISTED)
    told = json.loads(ran.stdout)
    assert (told["rows_left_out"], told["bad_rows"]) == (6 + 3, 2)
    found = {(name, line): reason for name, line, reason in listed()}
    assert {
        line: one for (name, line), one in found.items() if "10." in name
    } == REASONS
    second = {line: one for (name, line), one in found.items() if "/2." in name}
    assert sorted(second) == [1, 2, 4, 6, 7]
    assert second[2] == second[6] == has("x" + NONE)
    assert second[7] == has("x" + INFINITE)


def test_both_tables_and_one_table_twice():
    TABLE.to_csv("a.csv", index=False)
    TABLE.rename(columns={"g": "h"})[4:].to_parquet("b.parquet")
    words = "--eps", "1", "--on", "x,y", "--how", "left", "-o", "o.csv", *LISTED
    told = json.loads(run("join", "a.csv", "--other", "b.parquet", *words).stdout)
    found = listed()
    assert told["rows_left_out"] == len(found) == 5
    assert [(name, line) for name, line, _ in found] == [
        *(("a.csv", line) for line in (3, 4, 5, 6)),
        ("b.parquet", 0),
    ]
    run("join", "a.csv", "--other", "a.csv", *words, "--overwrite")
    assert [line for _, line, _ in listed()] == [3, 4, 5, 6]


def test_plans_and_texts():
    TABLE.to_csv("a.csv", index=False)
    run("plan", "a.csv", "--eps", "1", "--on", "x", *LISTED)
    assert [line for _, line, _ in listed()] == [3, 5, 6]
    words = ("a.csv", "--on", "g", "--k", "1", *LISTED[1:])
    told = json.loads(run("strings", "count-pairs", *words).stdout)
    assert told["rows_left_out"] == 1
    assert listed() == [("a.csv", 8, REASONS[6])]


def test_only_a_file_lists_rows():
    TABLE.to_csv("a.csv", index=False)
    words = "count-pairs", "a.csv", "--eps", "1", "--on", "x", "--dropna", "--json"
    told = json.loads(run(*words, "--bad-rows", "skip", *SYNC).stdout)
    assert (told["rows_left_out"], told["bad_rows"]) == (3, 0)
    assert [one.name for one in Path().iterdir()] == ["a.csv"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_rows_of_an_index(kind, metric):
    table = TABLE.assign(id=range(8), z=1.0)
    if metric == "cosine":
        table.loc[0, ["x", "y"]] = 0.0
    getattr(table, f"to_{kind}")(f"a.{kind}", index=False)
    first = 2 * (kind == "csv")
    expected = {row + first: REASONS[row] for row in (1, 2, 3, 4)}
    if metric == "cosine":
        zeros = "column 'x' or 'y' has only zeros, which have no direction"
        expected[first] = zeros
    how = "--eps", "0.1", "--on", "x,y", "--id", "id", "--metric", metric
    words = "index", "make", f"a.{kind}", *how, "--path"
    told = json.loads(run(*words, "grown", *LISTED).stdout)
    assert told["rows_left_out"] == len(expected)
    assert {line: reason for _, line, reason in listed()} == expected
    # an index that was made without --dropna
    table[-1:].assign(id=100).to_csv("first.csv", index=False)
    run("index", "make", "first.csv", *how, "--path", "other", *SYNC)
    for name in ("grown", "other"):
        table.assign(id=range(200, 208)).to_csv("more.csv", index=False)
        words = "index", "update", name, "more.csv", "-o", f"{name}.csv", *LISTED
        told = json.loads(run(*words).stdout)
        assert told["rows_left_out"] == len(expected)
        assert told["inserted"] == 8 - len(expected)
        reasons = {line - 2 + first: reason for _, line, reason in listed()}
        assert reasons == expected
