"""Results that are written, and what they may replace."""

import errno
import os
import tempfile
from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from dask_simjoin.cli import tables
from dask_simjoin.cli.tables import OutputWriter
from tests.cli.test_commands import ON, pairs_of, run
from tests.support.profiles import chosen


def test_single_files_and_folders(points, tmp_path):
    for name in ("one.parquet", "one.csv"):
        run(
            "self-join", "points", "--eps", "0.1", "-o", name, "--blocksize", "200", *ON
        )
        assert (tmp_path / name).is_file()
    run(
        "self-join",
        "points",
        "--eps",
        "0.1",
        "-o",
        "many",
        "--blocksize",
        "200",
        "--format",
        "csv",
        *ON,
    )
    parts = sorted((tmp_path / "many").glob("part.*"))
    assert len(parts) > 1 and {part.suffix for part in parts} == {".csv"}
    found = pd.concat(map(pd.read_csv, parts))
    assert (
        len(found) == len(pd.read_parquet("one.parquet")) == len(pd.read_csv("one.csv"))
    )


@pytest.mark.parametrize("name", ["out.json", "out.csv.gz", "out.xlsx"])
def test_an_output_of_another_format(points, tmp_path, name):
    before = sorted(tmp_path.iterdir())
    words = "self-join", "points", "--eps", "0.1", *ON, "-o", name
    assert (
        "is not supported. End the name in .parquet or .csv"
        in run(*words, code=2).stderr
    )
    assert sorted(tmp_path.iterdir()) == before


def test_an_output_that_is_there(points, tmp_path):
    (tmp_path / "out.csv").write_text("mine")
    words = "self-join", "points", "--eps", "0.1", *ON, "-o", "out.csv"
    assert "add --overwrite" in run(*words, code=2).stderr
    assert (tmp_path / "out.csv").read_text() == "mine"
    run(*words, "--overwrite")
    assert len(pd.read_csv("out.csv")) == len(pairs_of(points))


def test_an_output_that_is_read(points, tmp_path):
    """It is not replaced, whatever is allowed."""
    words = "self-join", "points", "--eps", "0.1", *ON, "--overwrite", "-o"
    for output in ("points", "./points/", "."):
        assert "or overlaps an input folder" in run(*words, output, code=2).stderr
    other = (
        "join",
        "points",
        "--other",
        "points/*",
        "--eps",
        "0.1",
        *ON,
        "--overwrite",
        "-o",
    )
    assert "is an input" in run(*other, "points/0.parquet", code=2).stderr


FOREIGN = "was not written by dask-simjoin alone: it "


def test_folders_that_others_wrote_stay(points, tmp_path):
    """Only what this program wrote is replaced: files of a folder, and its mark."""
    words = "self-join", "points", "--eps", "0.1", *ON, "--overwrite", "-o"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file.txt").write_text("precious")
    pd.DataFrame({"x": [1]}).to_parquet(mine / "part.0.parquet")
    for output in ("mine", "mine/", "./mine"):
        told = run(*words, output, code=2).stderr
        assert (
            f"{tmp_path / 'mine'} {FOREIGN}" in told
            and "Remove it, or name another" in told
        )
    assert sorted(path.name for path in mine.iterdir()) == [
        "file.txt",
        "part.0.parquet",
    ]

    run(*words, "out")
    before = len(pd.read_parquet("out"))
    run(*words, "out", "--blocksize", "200")
    assert len(pd.read_parquet("out")) == before == len(pairs_of(points))
    (tmp_path / "out" / "notes.txt").write_text("precious")
    assert "notes.txt" in run(*words, "out", code=2).stderr
    assert (tmp_path / "out" / "notes.txt").read_text() == "precious"
    (tmp_path / "empty").mkdir()
    run(*words, "empty", "--format", "csv")
    run(*words, "empty")
    assert len(pd.read_parquet("empty")) == before


def test_what_is_put_in_a_folder_meanwhile_stays(points, tmp_path, monkeypatch):
    words = "self-join", "points", "--eps", "0.1", *ON, "--overwrite", "-o", "out"
    run(*words)
    write = OutputWriter.write

    def late(self, *args):
        write(self, *args)
        (tmp_path / "out" / "notes.txt").write_text("precious")

    monkeypatch.setattr(OutputWriter, "write", late)
    assert "notes.txt" in run(*words, code=2).stderr
    assert (tmp_path / "out" / "notes.txt").read_text() == "precious"


def test_files_and_folders_do_not_replace_each_other(points, tmp_path):
    words = "self-join", "points", "--eps", "0.1", *ON, "--overwrite", "-o"
    (tmp_path / "file").write_text("mine")
    assert "file already exists as a file" in run(*words, "file", code=2).stderr
    (tmp_path / "folder.csv").mkdir()
    assert (
        "folder.csv already exists as a folder"
        in run(*words, "folder.csv", code=2).stderr
    )
    os.mkfifo(tmp_path / "pipe.csv")
    assert "is a pipe that no program reads" in run(*words, "pipe.csv", code=2).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "file",
        "folder.csv",
        "pipe.csv",
        "points",
    ]


def test_pipes_stay_pipes(points, tmp_path):
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    # open before the program looks for a reader; the pipe's buffer holds the result
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(reader) as pipe:
        run("self-join", "points", "--eps", "0.1", *ON, "-o", "pipe.csv")
        os.set_blocking(reader, True)
        assert len(pd.read_csv(pipe)) == len(pairs_of(points))
    assert path.is_fifo()


def test_folders_of_use_are_not_replaced(points, tmp_path, monkeypatch):
    words = "self-join", f"{tmp_path}/points", "--eps", "0.1", *ON, "--overwrite", "-o"
    (tmp_path / "out").mkdir()
    run(*words, "out/deep")
    run(*words, "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "link").symlink_to("/")
    monkeypatch.chdir(tmp_path / "out" / "deep")
    for output in (
        ".",
        "../deep",
        "..",
        str(tmp_path),
        "/",
        "~",
        "../../home",
        "../../home/link",
    ):
        told = run(*words, output, code=2).stderr
        own = "contains your home folder or the working folder" in told
        assert own or (
            output in (str(tmp_path), "..", "/", "../../home/link")
            and "is an input" in told
        )
    assert (
        "or overlaps an input folder"
        in run(*words, f"{tmp_path}/points/0.parquet", code=2).stderr
    )


def test_links_lead_to_what_is_written(points, tmp_path):
    words = "self-join", "points", "--eps", "0.1", *ON, "--overwrite", "-o"
    (tmp_path / "data").mkdir()
    (tmp_path / "latest.tsv").symlink_to(tmp_path / "data" / "run1")
    (tmp_path / "input.csv").symlink_to(tmp_path / "points" / "0.parquet")
    for _ in range(2):  # it leads nowhere at first
        run(*words, "latest.tsv")
        assert (tmp_path / "latest.tsv").is_symlink() and (
            tmp_path / "data" / "run1"
        ).is_file()
    assert len(pd.read_csv("latest.tsv", sep="\t")) == len(pairs_of(points))
    assert "is an input" in run(*words, "input.csv", code=2).stderr


def test_outputs_without_a_name(points, tmp_path):
    before = sorted(tmp_path.iterdir())
    words = "self-join", "points", "--eps", "0.1", *ON
    for output, said in (
        ("", "--output is empty"),
        ("~nosuchuser/out", "there is no user 'nosuchuser'"),
        ("a\0b", "null"),
    ):
        for more in ([], ["--overwrite"]):
            assert said in run(*words, "-o", output, *more, code=2).stderr
    assert (
        "A table's name is empty" in run("count-pairs", "", "--eps", "1", code=2).stderr
    )
    assert sorted(tmp_path.iterdir()) == before


def test_folders_that_are_remote(points):
    words = (
        "self-join",
        "points",
        "--eps",
        "0.1",
        *ON,
        "--overwrite",
        "-o",
        "memory://place/out",
    )
    for _ in range(2):
        run(*words)
    fs = MemoryFileSystem()
    assert len(pd.read_parquet("memory://place/out")) == len(pairs_of(points))
    fs.pipe_file("/place/out/notes.txt", b"precious")
    assert "notes.txt" in run(*words, code=2).stderr
    assert fs.cat_file("/place/out/notes.txt") == b"precious"


FORMULAS = [
    "=1+1",
    "+cmd",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
    "a=1",
    "",
    None,
]


def test_cells_that_a_spreadsheet_would_run(points, tmp_path):
    table = pd.DataFrame(
        {"x": -np.arange(11.0), "=id": FORMULAS, "kind": pd.Categorical(FORMULAS)}
    )
    table.to_parquet("t.parquet")
    words = "counts", "t.parquet", "--eps", "0", "--on", "x", *ON[2:]
    run(*words, "-o", "plain.csv")
    # a lone \\r would begin a row, so texts are quoted
    run(*words, "-o", "safe.csv", "--csv-safe")
    wanted = ["'" + one for one in FORMULAS[:-3]] + FORMULAS[-3:-2] + [None, None]
    found = pd.read_csv(
        "safe.csv", keep_default_na=False, na_values=[""], dtype=object
    ).replace(np.nan, None)
    assert list(found.columns) == ["x", "'=id", "kind", "neighbors"]
    assert found["'=id"].tolist() == found["kind"].tolist() == wanted
    assert found["x"].tolist()[1] == "-1.0"  # a number
    assert pd.read_csv("plain.csv")["=id"].tolist()[:4] == FORMULAS[:4]
    assert (
        "--csv-safe is for CSV"
        in run(*words, "-o", "no.parquet", "--csv-safe", code=2).stderr
    )


def test_signs_of_patterns_in_the_name_of_an_output(points, tmp_path, monkeypatch):
    """One partition's file is the result: it gets its name without being sought by it,
    as some fsspec do.
    """
    monkeypatch.setattr(LocalFileSystem, "mv", AbstractFileSystem.mv)
    output = tmp_path / "[b]" / "pairs.parquet"
    output.parent.mkdir()
    run("self-join", "points/0.parquet", "--eps", "0.1", *ON, "-o", str(output))
    assert len(pd.read_parquet(output)) == len(pairs_of(points[:40]))


@pytest.mark.parametrize("output", ["out.csv", "out/"])
def test_a_full_disk_is_named(points, tmp_path, monkeypatch, output):
    def full(*args, **how):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tables, "compute", full)
    said = run("self-join", "points", "--eps", "0.1", *ON, "-o", output, code=1).stderr
    assert (
        f"No space left on device, while writing {tmp_path / output.rstrip('/')}"
        in said
    )
    assert f" in {tmp_path}, " in said and said.strip().endswith(
        f" in {tempfile.gettempdir()}"
    )


def test_types_that_change_far_below(tmp_path, monkeypatch):
    """The program reads the table again, with the wider type."""
    monkeypatch.chdir(tmp_path)
    long = pd.DataFrame({"id": range(9_000), "x": [*range(8_999), 0.5]}, dtype=object)
    long.to_csv("long.csv", index=False)
    words = "self-join", "long.csv", "--eps", "0.5", "--on", "x", "-o", "out.csv"
    said = run(*words, "--scheduler", "synchronous").stderr
    assert "Column 'x' has '0.5' below its first rows" in said and "as floats" in said
    assert pd.read_csv("out.csv").to_numpy().tolist() == [[0, 8_999], [1, 8_999]]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_written_files_are_counted(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH", 2)
    target = OutputWriter(
        LocalFileSystem(), str(tmp_path / "out"), "out/", kind, False, False, False
    )
    with target.made() as begun:
        rows = pd.DataFrame({"diff": [1, 1, 1, -1, 1, -1, -1], "text": ["a\nb"] * 7})
        target.write(
            dd.concat([dd.from_pandas(rows, npartitions=3), dd.from_pandas(rows[:0])]),
            begun,
        )
        assert target.tally(begun, "diff") == {1: 4, -1: 3}
        assert target.rows(begun) == (None if kind == "csv" else 7)


def test_negative_numbers_in_text_are_not_formulas():
    """CSV columns that a command does not use are text."""
    cells = pd.DataFrame({"a": ["-2", "-1.5e-3", "-2+3", "-"]})
    assert tables.without_formulas(cells)["a"].tolist() == [
        "-2",
        "-1.5e-3",
        "'-2+3",
        "'-",
    ]


TYPES = {
    "list": pa.array([[1.0, 2.0], None, []]),
    "fixed list": pa.array([[1.0], None, [2.0]], pa.list_(pa.float32(), 1)),
    "structs": pa.array([[{"a": 1}], [], None]),
    "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": 2, "b": []}]),
    "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"\x00\xff", None, b""]),
    "fixed binary": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "dictionary": pa.array(["a", "b", None]).dictionary_encode(),
    "null": pa.nulls(3),
    "time": pa.array([1, None, 3], pa.time64("ns")),
    "decimal": pa.array([Decimal("1.25"), None, Decimal(0)], pa.decimal128(9, 2)),
    "large integers": pa.array([2**60 + 1, None, 3]),
    "booleans": pa.array([True, None, False]),
}


def test_types_of_parquet_columns_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(
        pa.table({"x": [0.0, 9, 10], "t": ["a", "b", "c"], **TYPES}), "t.parquet"
    )
    near, texts = ("--eps", "0.1", "--on", "x"), ("--on", "t", "--threshold", "1")
    keep = [word for name in TYPES for word in ("--keep", name)]
    for words, side in (
        (("dedup", "t.parquet", *near), ""),
        (("dbscan", "t.parquet", *near), ""),
        (("sets", "dedup", "t.parquet", *texts), ""),
        (("join", "t.parquet", "--other", "t.parquet", *near, *keep), "_left"),
    ):
        for output in chosen(["o.parquet", "o/"], ["o/"]):
            run(*words, *ON[2:], "-o", output, "--overwrite")
            found = pq.read_table(output)
            for name, column in TYPES.items():
                assert found[name + side].to_pylist() == column.to_pylist()
                assert found[name + side].type == column.type, name
