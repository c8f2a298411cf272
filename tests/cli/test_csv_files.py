"""CSV files as people have them: bad rows, quotes, encodings, separators and pipes."""

import csv
import gzip
import io
import json
import random

import dask
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cli import csv_files, sources
from dask_simjoin.cli.csv_files import (
    FLOAT,
    INT,
    TEXT,
    UINT,
    CsvColumns,
    CsvFormat,
    quote_toggles,
)
from tests.cli.test_commands import run

SYNC = ("--scheduler", "synchronous", "-q")
NEAR = ("--eps", "1", "--on", "x", *SYNC)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, text):
    data = text.encode()
    with open(name, "wb") as file:
        file.write(gzip.compress(data) if name.endswith(".gz") else data)


def read(name, written=None, **used):
    with dask.config.set(scheduler="synchronous"):
        reader = sources.TableReader(written=written or CsvFormat())
        return reader.read([name], CsvColumns(**used)).compute()


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
GOOD = "id,x,t\n" + "".join(f"{n},{n}.5,text{n}\n" for n in range(20))


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


@pytest.mark.parametrize("rows", [3, 6_000])
@pytest.mark.parametrize("cell", ["north", "1,5", " ", "0x10", "1_000", "12:30"])
def test_cells_that_are_not_numbers_are_refused(rows, cell):
    """Wherever they are: among the first rows, or below them."""
    lines = [f"{n},{n}" for n in range(rows)]
    write("a.csv", "\n".join(["id,x", *lines, f'7,"{cell}"']))
    ran = run("self-join", "a.csv", *NEAR, "-o", "o.csv", code=3)
    line = f"a.csv, line {rows + 2}: column 'x' has {cell!r}, which is not a number."
    assert line in ran.stderr


def test_numbers_in_unusual_form_are_read():
    cells = ["+1", " 2 ", "3.", ".5", "1e3", "-0", "1E+2", "inf", "NA", "", "7"]
    wanted = [1, 2, 3, 0.5, 1000, 0, 100, np.inf, np.nan, np.nan, 7]
    write("a.csv", "x,t\n" + "\n".join(f"{cell},a" for cell in cells))
    for types in ({}, {"x": FLOAT}):
        assert read("a.csv", types=types)["x"].tolist() == pytest.approx(
            wanted, nan_ok=True
        )


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
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 30)
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
    assert "column 'x' has 1 missing or NaN" in said and "See a.csv, line 3." in said
    write("a.csv", "id,x,k\n1,0,u\n2,5,u\n2,1,\n")
    said = run(*words, *NEAR, "--id", "id", code=3).stderr
    assert "not unique: 2 repeats" in said and "Labels" not in said
    assert "See a.csv, line 3 and a.csv, line 4." in said


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_blocks_end_between_rows(ends, monkeypatch):
    """Not at line ends in quoted cells, and whatever quotes are in other cells."""
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 25)
    monkeypatch.setattr(csv_files, "SCAN_BYTES", 7)
    cells = ["a\nb", 'q"q', "c,d", "", "e", '"', "\n", "x\r\ny", "é"]
    rows = [[n, n / 4, cells[n % 9], cells[n // 9 % 9]] for n in range(90)]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=ends).writerows([["id", "x", "t", "u"], *rows])
    plain = f'90,1,5" pipe,"a{ends}b"{ends}91,2,7" pipe and 8" pipe,z{ends}'
    write("a.csv", text.getvalue() + plain)
    found = read("a.csv", inferred=frozenset("x"), ids=frozenset(["id"]))
    assert found["id"].tolist() == list(range(92))
    assert found["t"].tolist()[90:] == ['5" pipe', '7" pipe and 8" pipe']
    assert found["u"].fillna("").tolist()[:90] == [row[3] for row in rows]


def test_quotes_that_are_never_closed_are_refused():
    write("a.csv", 'id,x,t\n1,0,a\n2,1,"b\n3,2,c\n')
    said = run("count-pairs", "a.csv", *NEAR, code=3).stderr
    assert 'a.csv, line 3: a quote (") begins a cell and is never closed.' in said


@pytest.mark.parametrize("seed", range(20))
def test_random_files_are_read_as_pandas_reads_them(seed, monkeypatch):
    draw = random.Random(seed)
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", draw.choice([9, 40, 10**6]))
    monkeypatch.setattr(csv_files, "SCAN_BYTES", draw.choice([5, 17, 10**6]))
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


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2"], INT),
        ([str(2**60 + 1), "2"], INT),
        ([str(2**64 - 1), "2"], UINT),
        (["1", ""], FLOAT),
        (["1", "NA"], FLOAT),
        (["1", "2.5"], FLOAT),
        (["", "NA"], FLOAT),
        ([str(2**60 + 1), ""], "string"),
        ([str(2**64), "1"], "string"),
        (["True", "false"], "bool"),
        (["True", ""], "string"),
        (["0x10", "1"], "string"),
        (["2020-01-01", "2020-01-02"], "string"),
    ],
)
def test_types_are_inferred_as_pandas_infers_them(cells, kind):
    write("a.csv", "v,t\n" + "".join(f"{cell},a\n" for cell in cells))
    used = {"inferred": frozenset("v"), "numbers": frozenset()}
    assert read("a.csv", **used)["v"].dtype == kind


def test_groups_get_wider_types_below_the_first_rows():
    """Values of --by that are not numbers there are not bad."""
    rows = [f"{n},{n % 7}" for n in range(5_500)]
    write("a.csv", "\n".join(["x,k", *rows, "5500,seven", "5500.5,seven"]))
    words = "count-pairs", "a.csv", "--eps", "0.5", "--on", "x", "--by", "k"
    ran = run(*words, *SYNC[:2])
    assert ran.stdout == "1\n" and "'seven' below its first rows" in ran.stderr
    assert "Column 'x' has '5500.5' below its first rows" in ran.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig"])
@pytest.mark.parametrize("size", [40, 10**6])
def test_encodings(encoding, size, monkeypatch):
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", size)
    text = "größe,x\n" + "".join(f"café {n},{n}\n" for n in range(30))
    with open("a.csv", "wb") as file:
        file.write(text.encode(encoding))
    words = "self-join", "a.csv", *NEAR, "--keep", "größe", "-o", "o.csv"
    run(*words, "--encoding", encoding)
    assert pd.read_csv("o.csv")["größe_left"].tolist()[3] == "café 3"
    if encoding == "utf-8-sig":
        return
    said = run(*words, "--overwrite", code=3).stderr
    assert "a.csv, line 1: byte 0x" in said and "Name the encoding of the file" in said
    assert f"--encoding {encoding.replace('cp1252', 'latin-1')}" in said
    assert "--encoding" in run(*words, "--encoding", "klingon", code=2).stderr


@pytest.mark.parametrize(("given", "used"), [(";", ";"), ("\\t", "\t"), ("|", "|")])
def test_separators(given, used):
    write("a.csv", "id;x\n1;0,5\n2;0\n3;9\n".replace(";", used).replace(",", "."))
    words = "count-pairs", "a.csv", *NEAR
    assert run(*words, "--separator", given).stdout == "1\n"
    said = run(*words, code=2).stderr
    assert f"looks like '{given}': add --separator '{given}'." in said
    for wrong in ("", "ab", '"', "é"):
        assert "is not a separator" in run(*words, "--separator", wrong, code=2).stderr


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


def test_names_end_in_any_case():
    write("POINTS.CSV", GOOD)
    for name in ("pairs.CSV", "Pairs.Parquet", "pairs.TSV"):
        run("self-join", "POINTS.CSV", *NEAR, "-o", name)
    assert len(pd.read_csv("pairs.CSV")) == len(pd.read_parquet("Pairs.Parquet")) == 19
    assert len(pd.read_csv("pairs.TSV", sep="\t")) == 19


@pytest.mark.parametrize("name", ["pairs.dat", "pairs.parquet.gzip", "o.CSV.GZ"])
def test_unknown_endings_are_refused(name, folder):
    write("a.csv", GOOD)
    said = run("self-join", "a.csv", *NEAR, "-o", name, code=2).stderr
    assert "is not supported. End the name in .parquet or .csv" in said
    assert [path.name for path in folder.iterdir()] == ["a.csv"]


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


def test_literal_quotes_do_not_begin_cells():
    codes = np.frombuffer(b'5" x,"a""b",c"\n', np.uint8)
    assert quote_toggles(codes, False, ",").tolist() == [5, 10]


def test_ids_of_several_files_have_one_type():
    write("a.csv", "id,x\n1,0\n")
    write("b.csv", "id,x\n02,0\n")
    run("self-join", "a.csv", "b.csv", *NEAR, "--id", "id", "-o", "o.parquet")
    assert pd.read_parquet("o.parquet").to_numpy().tolist() == [["1", "02"]]
    assert TEXT == "str"


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
