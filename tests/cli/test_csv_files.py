"""CSV files as people have them, and pipes."""

import csv
import io
import random

import pandas as pd
import pytest

from dask_simjoin.cli import csv_records
from dask_simjoin.cli.csv_files import CsvFormat
from tests.cli.test_commands import run
from tests.support.csv_tables import GOOD, NEAR, SYNC, read, write
from tests.support.profiles import every_nth

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("seed", every_nth(4, range(20)))
def test_random_files_are_read_as_pandas_reads_them(seed, monkeypatch):
    draw = random.Random(seed)
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", draw.choice([9, 40, 10**6]))
    monkeypatch.setattr(csv_records, "READ_BYTES", draw.choice([5, 17, 10**6]))
    cells = ["a", "b,c", 'q"q', "x\ny", "", "NA", " s ", "é", '""', "\n", '"', "1"]
    numbers = [repr(draw.random()), str(draw.randint(-9, 9)), "", "1e3"]
    rows = [
        [n, draw.choice(numbers), draw.choice(cells), draw.choice(cells)]
        for n in range(1, draw.randint(2, 40))
    ]
    text, separator = io.StringIO(newline=""), draw.choice(",;\t")
    how = {"delimiter": separator, "quoting": draw.choice([0, 1])}
    ends = draw.choice(["\n", "\r\n"])
    names = ["id", "x", "t", "u"]
    csv.writer(text, lineterminator=ends, **how).writerows([names, *rows])
    write("a.csv", text.getvalue() + draw.choice(["", ends]))
    found = read(
        "a.csv",
        CsvFormat(separator),
        inferred=frozenset("x"),
        ids=frozenset(["id"]),
    )
    wanted = pd.read_csv(
        io.StringIO(text.getvalue(), newline=""),
        sep=separator,
        dtype={"t": found["t"].dtype, "u": found["u"].dtype},
        keep_default_na=False,
        na_values={"x": ["", "NA"], "t": [""], "u": [""]},
    )
    pd.testing.assert_frame_equal(found.reset_index(drop=True), wanted)


def test_tables_without_rows_are_empty():
    write("a.csv", "id,x,t\n1,0,a\n")
    write("none.csv", "id,x,t\n")
    for words in (
        ("self-join", "none.csv", *NEAR, "--id", "id", "--keep", "t"),
        ("join", "none.csv", "--other", "a.csv", *NEAR),
        ("join", "a.csv", "--other", "none.csv", *NEAR, "--id", "id"),
        ("dedup", "none.csv", *NEAR),
        ("dbscan", "none.csv", *NEAR),
        ("sets", "self-join", "none.csv", "--on", "t", "--threshold", "1", *SYNC),
        ("strings", "dedup", "none.csv", "--on", "t", "--k", "1", *SYNC),
    ):
        run(*words, "-o", "o.csv", "--overwrite")
        assert len(pd.read_csv("o.csv")) == 0
    write("bare.csv", "")
    assert "bare.csv is empty" in run("count-pairs", "bare.csv", *NEAR, code=3).stderr


def test_folders_of_outputs_must_exist(folder):
    write("a.csv", GOOD)
    said = run("self-join", "a.csv", *NEAR, "-o", "no/o.csv", code=2).stderr
    assert f"there is no folder {folder}/no. Create it with mkdir -p" in said
    run("self-join", "a.csv", *NEAR, "-o", "run-2026.11")
    assert (folder / "run-2026.11").is_dir()
    run("self-join", "a.csv", *NEAR, "-o", "o.dat", "--format", "csv")
    assert len(pd.read_csv("o.dat")) == 19


def test_standard_input_and_output(folder):
    write("a.csv", GOOD)
    wanted = run("self-join", "a.csv", *NEAR, "-o", "-").stdout
    assert wanted.splitlines()[:2] == ["left,right", "0,1"]
    for name in ("-", "/dev/stdin"):
        ran = run("self-join", name, *NEAR, "-o", "-", text=GOOD)
        assert ran.stdout == wanted and ran.stderr == ""
    said = run("self-join", "-", *NEAR, "-o", "-", text="id,x\n1,a\n2,1", code=3).stderr
    assert "standard input, line 2: column 'x' has 'a'" in said
    assert [path.name for path in folder.iterdir()] == ["a.csv"]
    for more, said in (("--json", "both print"), ("--format=parquet", "is CSV")):
        assert said in run("self-join", "a.csv", *NEAR, "-o", "-", more, code=2).stderr


def test_parquet_from_standard_input(folder):
    pd.DataFrame({"x": [0.0, 1, 5]}).to_parquet("a.parquet")
    data = (folder / "a.parquet").read_bytes()
    assert run("count-pairs", "-", *NEAR, text=data).stdout == "1\n"


def test_names_of_columns_are_those_of_pandas():
    write("a.csv", ",x,x,a b\n0,1,2,3\n")
    assert list(read("a.csv").columns) == ["Unnamed: 0", "x", "x.1", "a b"]


@pytest.mark.usefixtures("folder")
def test_two_columns_of_one_name_are_refused():
    """Others are not: a separator at the end of each line makes two without a name."""
    near = "count-pairs", "a.csv", "--eps", "1", "-q", *SYNC, "--on"
    for header in ("id,x,x,x.1", "x,id,x,id"):
        write("a.csv", f"{header}\n1,0,5,9\n")
        said = run(*near, "x", code=3).stderr
        assert "a.csv has several columns named 'x'; rename all but one." in said
    for header, name in (("id,x,,", "x"), ("x,id,id,y", "y"), ("a,x,x.1,b", "x")):
        write("a.csv", f"{header}\n1,0,,4\n2,0,,4\n")
        assert run(*near, name).stdout == "1\n"
