"""Rows and cells of CSV files that are wrong."""

import json

import dask
import pandas as pd
import pytest

from dask_simjoin.cli import csv_records, csv_types, sources
from dask_simjoin.cli.csv_files import CsvFormat
from dask_simjoin.cli.csv_types import CsvColumns
from tests.cli.test_commands import run
from tests.support.csv_tables import GOOD, NEAR, SYNC, write
from tests.support.profiles import in_turns

pytestmark = pytest.mark.usefixtures("folder")


COMMANDS = {
    "self-join": ("--eps", "1", "--on", "x", "-o", "o.csv"),
    "count-pairs": ("--eps", "1", "--on", "x"),
    "counts": ("--eps", "1", "--on", "x", "-o", "o.csv"),
    "dedup": ("--eps", "1", "--on", "x", "-o", "o.csv"),
    "dbscan": ("--eps", "1", "--on", "x", "-o", "o.csv"),
    "plan": ("--eps", "1", "--on", "x"),
    "sets dedup": ("--threshold", "1", "--on", "t", "-o", "o.csv"),
    "strings count-pairs": ("--k", "1", "--on", "t"),
    "index make": ("--eps", "1", "--on", "x", "--id", "id", "--path", "grown"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("20,1.5,t,", "expected 3 columns, got 4"),
        ("20,1.5", "expected 3 columns, got 2"),
        ("Newark, 20,1,t", "expected 3 columns, got 4"),
    ],
)
def test_rows_with_other_numbers_of_cells_are_refused(command, row, said, folder):
    write("a.csv", f"{GOOD}{row}\n{GOOD[7:]}")
    ran = run(*command.split(), "a.csv", *COMMANDS[command], *SYNC, code=3)
    assert f"a.csv, line 22: {said}. The row is {row!r}." in ran.stderr
    assert [path.name for path in folder.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "A.CSV"])
def test_a_comma_at_the_end_of_each_row_is_refused(name):
    text = "a,x,c\n1,5,100,\n2,5.2,200,\n3,9,300,\n"
    write(name, text.replace(",", "\t") if name == "a.tsv" else text)
    ran = run("count-pairs", name, *NEAR, code=3)
    assert f"{name}, line 2: expected 3 columns, got 4" in ran.stderr


@pytest.mark.parametrize("command", ["sets", "strings"])
def test_texts_with_a_comma_at_the_end_of_each_row_are_refused(command):
    write("t.csv", "k,t\n1,main street 5,\n2,main street 5,\n")
    options = {"sets": ["--threshold", "0.5"], "strings": ["-k", "1"]}[command]
    words = [command, "count-pairs", "t.csv", "--on", "t", *options]
    found = run(*words, code=3).output
    assert "t.csv, line 2: expected 2 columns, got 3" in found
    assert run(*words, "--bad-rows", "skip").stdout.split()[-1] == "0"


@in_turns(1, rows=[3, 6_000], cell=["north", "1,5", " ", "0x10", "1_000", "12:30"])
def test_cells_that_are_not_numbers_are_refused(rows, cell):
    """Wherever they are: among the first rows, or below them."""
    lines = [f"{n},{n}" for n in range(rows)]
    write("a.csv", "\n".join(["id,x", *lines, f'7,"{cell}"']))
    ran = run("self-join", "a.csv", *NEAR, "-o", "o.csv", code=3)
    line = f"a.csv, line {rows + 2}: column 'x' has {cell!r}, which is not a number"
    assert line in ran.stderr


def test_bad_rows_are_left_out_and_listed():
    bad = ["20,1,2,3", "21", "22,north,t", '23,"a\nb",t']
    write("a.csv", "\n".join([GOOD.rstrip("\n"), *bad, "24,0.5,t", ""]))
    words = "dedup", "a.csv", "--eps", "0", "--on", "x", *SYNC, "--overwrite"
    told = run(*words, "-o", "o.csv", "--bad-rows", "skip", "--json")
    assert json.loads(told.stdout)["bad_rows"] == 4
    assert pd.read_csv("o.csv")["id"].tolist() == list(range(20))
    said = run(*words[:-2], "--overwrite", "-o", "o.csv", "--bad-rows", "skip").stderr
    first = "the first is in a.csv, line 22: expected 3 columns, got 4."
    assert f"Left out 4 bad rows; {first}" in said
    for _ in range(2):  # the second time it replaces its own file
        run(*words, "-o", "o.csv", "--bad-rows", "bad.csv")
    listed = pd.read_csv("bad.csv")
    assert listed["row"].tolist() == bad and listed["line"].tolist() == [22, 23, 24, 25]
    assert listed["reason"][2] == "column 'x' has 'north', which is not a number"
    for name, text in (("a.csv", "also an input"), ("o.csv", "or the output")):
        said = run(*words, "-o", "o.csv", "--bad-rows", name, code=2).stderr
        assert text in said
    write("mine.txt", "precious")
    said = run(*words, "-o", "o.csv", "--bad-rows", "mine.txt", code=2).stderr
    assert "is not a file of bad rows" in said


def test_bad_rows_are_left_out_of_all_columns(monkeypatch):
    """Also where a task reads other columns than the one with the bad cell."""
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", 30)
    rows = [f'{n},{"bad" if n % 3 == 0 else n},"t\n{n}"' for n in range(40)]
    write("a.csv", "\n".join(["id,x,t", *rows]))
    reader = sources.TableReader(written=CsvFormat(skips=True))
    used = CsvColumns(frozenset("x"), frozenset(["id"]), None, frozenset("x"))
    frame = reader.read(["a.csv"], used)
    assert frame.npartitions > 5
    wanted = [n for n in range(40) if n % 3]
    assert frame["id"].compute().tolist() == wanted == frame["x"].compute().tolist()
    assert frame["t"].compute().tolist() == [f"t\n{n}" for n in wanted]
    assert [row.line for row in reader.bad_rows()] == [
        2 + 2 * n for n in range(0, 40, 3)
    ]


def test_missing_cells_and_repeated_ids_are_named():
    write("a.csv", "id,x,k\n1,0,u\n2,,u\n2,1,\n")
    words = "self-join", "good.csv", "a.csv", "-o", "o.csv"
    write("good.csv", "id,x,k\n7,3,u\n")
    said = run(*words, *NEAR, code=3).stderr
    assert "column 'x' has 1 missing value" in said and "See a.csv, line 3." in said
    write("a.csv", "id,x,k\n1,0,u\n2,5,u\n2,1,\n")
    said = run(*words, *NEAR, "--id", "id", code=3).stderr
    assert "not unique: 2 repeats" in said and "Labels" not in said
    assert "See lines 3 and 4 of a.csv." in said


PLACES = ("--eps", "2 km", "--metric", "haversine", *SYNC)


@pytest.mark.parametrize("on", [("--on", "lat,lon"), ()])
def test_impossible_places_are_bad_rows(on):
    """A longitude of 350 is allowed; infinite and missing numbers are left to dropna."""
    rows = ["0,47.0,8", "1,47.01,8", "2,99.5,8", "3,-999,8", "4,50,350", "5,50,361"]
    write("a.csv", "\n".join(["id,lat,lon", *rows, "6,,8", "7,50,inf"]))
    words = "self-join", "a.csv", *PLACES, *on, "--id", "id", "-o", "-", "--dropna"
    ran = run(*words, "--bad-rows", "bad.csv")
    listed = pd.read_csv("bad.csv")
    assert ran.stdout == "left,right\n0,1\n"
    assert listed["line"].tolist() == [4, 5, 7, 8, 9]
    what = "which is not a latitude in degrees, -90 to 90"
    assert listed["reason"].tolist() == [
        f"column 'lat' has '99.5', {what}",
        f"column 'lat' has '-999', {what}",
        "column 'lon' has '361', which is not a longitude in degrees, -180 to 360",
        "column 'lat' has no value",
        "column 'lon' has an infinite value",
    ]


@pytest.mark.parametrize("id", ["7", "St. Louis", "O'Hare. At"])
def test_impossible_places_are_named(id):
    rows = [f"{n},47,8" for n in range(200)]
    write("a.csv", "id,lat,lon\n" + "\n".join(rows))
    write("b.csv", "\n".join(["id,lat,lon", "z,1,2", f"{id},99.5,8"]))
    words = "count-pairs", "a.csv", "b.csv", *PLACES, "--on", "lat,lon"
    for name in ((), ("--id", "id")):
        said = run("self-join", *words[1:], *name, "-o", "o.csv", code=3).stderr
        assert "for example 99.5 in b.csv, line 3. --dropna does not help" in said
        assert "leave out such rows with --bad-rows skip.\n" in said
        assert "swapped" not in said and "label" not in said
    ran = run(*words, "--bad-rows", "skip")
    assert ran.stdout == f"{200 * 199 // 2}\n"
    outside = "count-pairs", "b.csv", "--on", "lat", "--eps", "1", "--box", "50", *SYNC
    said = run(*outside, code=3).stderr
    assert "99.5 in b.csv, line 3." in said and "bad-rows" not in said


@in_turns(1, separator=[";", ",", "\t"], way=["fast", "as texts", "below"])
def test_decimal_commas(separator, way):
    quote = '"' * (separator == ",")
    row = f"{{}}{separator}{quote}{{}}{quote}{separator}{{}}".format
    cells = ["1,5", "-0,25", " +2,", ",5", "1e1", "NA", "3,125"]
    cells[2:3] = [] if way == "fast" else cells[2:3]
    lines = [row(n, one, "a,5".replace(",", ".")) for n, one in enumerate(cells)]
    above = [row(n, 1, "t") for n in range(6_000 * (way == "below"))]
    write("a.csv", "\n".join([row("id", "x", "t"), *above, *lines]))
    written = CsvFormat(separator, decimal=",")
    with dask.config.set(scheduler="synchronous"):
        frame = sources.TableReader(written=written).read(["a.csv"], CsvColumns())
        if way == "below":
            with pytest.raises(csv_types.WiderType) as caught:
                frame.compute()
            assert caught.value.kind == "float64"
            return
        got = frame.compute()
    want = [float(one.replace(",", ".").replace("NA", "nan")) for one in cells]
    pd.testing.assert_series_equal(got["x"], pd.Series(want, name="x"))
    write(
        "b.csv", "\n".join([row("id", "x", "t"), row(1, "1,5", "t"), row(2, "1.5", "")])
    )
    how = "--separator", separator.replace("\t", "tab"), "--decimal", ","
    said = run("count-pairs", "b.csv", *NEAR, *how, code=3).stderr
    assert (
        "'1.5', which is not a number (--decimal ',' takes only decimal commas)" in said
    )
    assert (
        run("count-pairs", "b.csv", *NEAR, *how, "--bad-rows", "skip").stdout == "0\n"
    )


def test_errors_of_workers_are_those_of_threads(two_workers):
    """Types widen, and bad rows are named, also if other processes read the blocks."""
    rows = [f"{n},{n}" for n in range(6_000)]
    write("a.csv", "\n".join(["id,x", *rows, "6000,6000.5"]))
    words = "self-join", "a.csv", "--eps", "0.5", "--on", "x", "-q", "-o", "-"
    where = "--scheduler", two_workers.scheduler_address
    assert run(*words, *where).stdout == "left,right\n"
    write("a.csv", "\n".join(["id,x", *rows, "6000,north"]))
    assert "a.csv, line 6002: column 'x'" in run(*words, *where, code=3).stderr
    ran = run(*words[:-3], *where, "-o", "-", "--bad-rows", "skip")
    assert "Left out 1 bad row; the first is in a.csv, line 6002" in ran.stderr
