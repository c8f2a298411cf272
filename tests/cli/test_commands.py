"""Commands read, plan, ask, compute and write what the verbs give."""

import errno
import json
import os
import re
import tempfile
from importlib.util import find_spec

import dask
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from dask_simjoin.cli import outputs, running
from dask_simjoin.cli.main import CODES, cli
from dask_simjoin.cli.outputs import Sink

ROWS = 60


@pytest.fixture
def points(tmp_path, monkeypatch):
    """A table of points, as a folder of two parquet files, and the folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(5).uniform(size=(ROWS, 2)).round(3)
    table = pd.DataFrame(x, columns=["x", "y"]).assign(name=[f"p{k}" for k in range(ROWS)])
    (tmp_path / "points").mkdir()
    table[:40].to_parquet(tmp_path / "points" / "0.parquet")
    table[40:].to_parquet(tmp_path / "points" / "1.parquet")
    return table


def run(*words, code=0, text=None):
    """What a command prints; it ends with this exit code, and without a traceback."""
    ran = CliRunner().invoke(cli, ["--", *words] if words[0][0] == "-" else list(words), input=text)
    assert ran.exit_code == code, ran.output
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    assert "Traceback" not in ran.output
    return ran


ON = ("--on", "x,y", "--scheduler", "synchronous", "-q")


def pairs_of(frame, **options):
    """Pairs by the verb, in order."""
    return in_order(frame.simjoin.self_join(0.1, on=["x", "y"], **options))


def in_order(pairs):
    return pairs.sort_values(["left", "right"], ignore_index=True)


READ = [(tables, "pairs.csv") for tables in ("points/*.parquet", "both", "tables.csv", "tables.tsv", "csvs/")]
WRITTEN = [
    ("points", output) for output in ("pairs.parquet", "pairs.csv", "pairs/", "there/is/none/of/these")
]


def test_tables_of_a_header_only(points):
    """They tell no types, so those of others count, wherever they stand; and columns must be the same."""
    points[:30].to_csv("a.csv", index=False)
    points[30:].to_csv("b.tsv", index=False, sep="\t")
    for name, separator in (("bare.csv", ","), ("bare.tsv", "\t"), ("bare.csv.gz", ",")):
        points[:0].to_csv(name, index=False, sep=separator)
    points[["y", "x"]][:0].to_csv("other.csv", index=False)
    open("empty.csv", "w").close()
    tables = "bare.csv", "a.csv", "bare.tsv", "b.tsv", "bare.csv.gz"
    run("self-join", *tables, "--eps", "0.1", "-o", "out.csv", *ON)
    pd.testing.assert_frame_equal(in_order(pd.read_csv("out.csv")), pairs_of(points))
    for tables, said in (
        (["bare.csv", "bare.tsv"], "bare.csv, bare.tsv: there is a header and no row.*write it as parquet"),
        (["a.csv", "other.csv"], "other.csv has the columns y, x, and a.csv has x, y, name; tables that"),
        (["a.csv", "empty.csv"], "empty.csv is empty: it has not even a header"),
    ):
        assert re.search(said, run("self-join", *tables, "--eps", "0.1", "-o", "n.csv", *ON, code=1).output)


@pytest.mark.parametrize(("tables", "output"), READ + WRITTEN)
def test_what_is_written_are_the_pairs_of_the_verb(points, tables, output, tmp_path):
    points.to_csv("tables.csv", index=False)
    points.to_csv("tables.tsv", index=False, sep="\t")
    (tmp_path / "csvs").mkdir()
    points[:7].to_csv("csvs/0.csv", index=False)
    points[7:].to_csv("csvs/1.csv", index=False)
    given = ["points/0.parquet", "points/1.parquet"] if tables == "both" else [tables]
    run("self-join", *given, "--eps", "0.1", "--return-distance", "--blocksize", "800", "-o", output, *ON)
    found = pd.read_csv(output) if output.endswith(".csv") else pd.read_parquet(output)
    pd.testing.assert_frame_equal(in_order(found), pairs_of(points, return_distance=True))
    assert not list(tmp_path.rglob("*.partial"))


def test_texts_of_several_kinds(points, tmp_path):
    """Files that are written otherwise follow each other; what is written is what its name says."""
    folder = tmp_path / "a #1%20[b]"
    folder.mkdir()
    points[:20].to_csv(folder / "0.csv", index=False)
    points[20:45].to_csv(folder / "1.tsv", index=False, sep="\t")
    points[45:].to_csv(folder / "2.csv.gz", index=False)
    tables = [str(folder / name) for name in ("0.csv", "1.tsv", "2.csv.gz")]
    run("self-join", *tables, "--eps", "0.1", "-o", f"{folder}/\u00fc.tsv", *ON)
    found = pd.read_csv(folder / "\u00fc.tsv", sep="\t")
    pd.testing.assert_frame_equal(in_order(found), pairs_of(points))


def test_columns_that_would_be_replaced(points, tmp_path):
    points.assign(neighbors=1).to_csv("t.csv", index=False)
    before = sorted(tmp_path.iterdir())
    told = run("counts", "t.csv", "--eps", "0.1", "-o", "out.csv", *ON, code=2).stderr
    assert "has a column 'neighbors' already" in told
    assert sorted(tmp_path.iterdir()) == before


def test_single_files_and_folders(points, tmp_path):
    for name in ("one.parquet", "one.csv"):
        run("self-join", "points", "--eps", "0.1", "-o", name, "--blocksize", "200", *ON)
        assert (tmp_path / name).is_file()
    run("self-join", "points", "--eps", "0.1", "-o", "many", "--blocksize", "200", "--format", "csv", *ON)
    parts = sorted((tmp_path / "many").glob("part.*"))
    assert len(parts) > 1 and {part.suffix for part in parts} == {".csv"}
    found = pd.concat(map(pd.read_csv, parts))
    assert len(found) == len(pd.read_parquet("one.parquet")) == len(pd.read_csv("one.csv"))


def test_tables_that_are_remote():
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0]})
    frame.to_parquet("memory://tables/t.parquet")
    run("self-join", "memory://tables", "--eps", "1", "-o", "memory://out/pairs.parquet", *ON[2:])
    assert pd.read_parquet("memory://out/pairs.parquet").to_numpy().tolist() == [[0, 1]]


def test_ids_and_columns_that_are_kept(points):
    options = ("--id", "name", "--keep", "x,y", "--suffixes", "_a", "_b")
    run("self-join", "points", "--eps", "0.1", *options, "-o", "pairs.csv", *ON)
    wanted = pairs_of(points, id="name", keep=["x", "y"], suffixes=("_a", "_b"))
    pd.testing.assert_frame_equal(in_order(pd.read_csv("pairs.csv")), wanted)


def test_two_tables(points):
    points[:20].to_csv("others.csv", index=False)
    other = ("--other", "others.csv")
    run("join", "points", *other, "--eps", "0.1", "-o", "pairs.csv", *ON)
    wanted = points.simjoin.join(points[:20], 0.1, on=["x", "y"])
    pd.testing.assert_frame_equal(in_order(pd.read_csv("pairs.csv")), in_order(wanted))
    run("join", "points", *other, "--eps", "0.1", "--how", "leftanti", "-o", "alone.csv", *ON)
    alone = points.simjoin.join(points[:20], 0.1, on=["x", "y"], how="leftanti")
    pd.testing.assert_frame_equal(pd.read_csv("alone.csv"), alone.reset_index(drop=True))
    run("knn", "points", *other, "--k", "2", "-o", "nearest.csv", *ON)
    near = points.simjoin.knn_join(points[:20], k=2, on=["x", "y"])
    pd.testing.assert_frame_equal(in_order(pd.read_csv("nearest.csv")), in_order(near))


@pytest.mark.parametrize(
    ("name", "words", "verb", "options"),
    [
        ("counts", ("--eps", "0.1"), "neighbor_counts", {"eps": 0.1}),
        ("dbscan", ("--eps", "0.1", "--min-samples", "3"), "dbscan", {"eps": 0.1, "min_samples": 3}),
        ("k-distances", ("--k", "2"), "k_distances", {"k": 2}),
        ("optics", ("--max-eps", "0.1"), "optics", {"max_eps": 0.1}),
        ("hdbscan", ("--min-cluster-size", "3"), "hdbscan", {"min_cluster_size": 3}),
    ],
)
def test_values_of_rows_go_beside_them(points, name, words, verb, options):
    run(name, "points", *words, "-o", "rows.parquet", *ON)
    values = getattr(points.simjoin, verb)(on=["x", "y"], **options)
    wanted = pd.concat([points, values], axis=1)
    found = pd.read_parquet("rows.parquet").astype({"name": points["name"].dtype})
    pd.testing.assert_frame_equal(found, wanted)


def test_numbers_are_printed(points):
    wanted = points.simjoin.count_pairs(0.1, on=["x", "y"])
    assert run("count-pairs", "points", "--eps", "0.1", *ON).stdout == f"{wanted}\n"
    told = json.loads(run("count-pairs", "points", "--eps", "0.1", "--json", *ON).stdout)
    assert told["number"] == wanted and told["plan"]["rows"] == ROWS


def test_numbers_within_several_distances(points):
    several = [0.05, 0.1]
    wanted = points.simjoin.count_pairs(several, on=["x", "y"]).tolist()
    ran = run("count-pairs", "points", "--eps", "0.05,0.1", *ON)
    assert ran.stdout == "".join(f"{eps}\t{n}\n" for eps, n in zip(several, wanted, strict=True))
    told = json.loads(run("count-pairs", "points", "--eps", "0.05,0.1", "--json", *ON).stdout)
    assert list(told["number"].values()) == wanted
    run("counts", "points", "--eps", "0.05,0.1", "-o", "rows.csv", *ON)
    found = pd.read_csv("rows.csv")[["neighbors_0.05", "neighbors_0.1"]]
    assert (found.to_numpy() == points.simjoin.neighbor_counts(several, on=["x", "y"]).to_numpy()).all()


@pytest.mark.parametrize("keep", ["last", False])
def test_rows_that_stay(points, keep):
    run("dedup", "points", "--eps", "0.1", "--keep", str(keep), "-o", "rest.csv", *ON)
    wanted = points.simjoin.drop_near_duplicates(0.1, on=["x", "y"], keep=keep)
    pd.testing.assert_frame_equal(pd.read_csv("rest.csv"), wanted.reset_index(drop=True))
    assert 0 < len(wanted) < ROWS


def test_sets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = pd.DataFrame({"text": ["a b c d", "b c d a", "a b c e", "x y"]})
    texts.to_csv("texts.csv", index=False)
    how = ("--on", "text", "--threshold", "3/5", "--tokenizer", "delimiter: ", *ON[2:])
    options = {"on": "text", "threshold": 0.6, "tokenizer": "whitespace"}
    run("sets", "self-join", "texts.csv", *how, "--return-similarity", "-o", "pairs.csv")
    wanted = texts.simjoin.set_self_join(**options, return_similarity=True)
    pd.testing.assert_frame_equal(in_order(pd.read_csv("pairs.csv")), in_order(wanted))
    run("sets", "counts", "texts.csv", *how, "-o", "counts.csv")
    assert (
        pd.read_csv("counts.csv")["neighbors"].tolist()
        == texts.simjoin.set_neighbor_counts(**options).tolist()
    )
    assert run("sets", "count-pairs", "texts.csv", *how).stdout == f"{len(wanted)}\n"
    assert json.loads(run("sets", "plan", "texts.csv", *how, "--json").stdout)["plan"]["rows"] == 4
    run("sets", "dedup", "texts.csv", *how, "--keep", "last", "-o", "rest.csv")
    assert pd.read_csv("rest.csv")["text"].tolist() == ["a b c e", "x y"]


def test_plans(points):
    text = run("plan", "points", "--eps", "0.1", "--on", "x,y").stdout
    assert text.startswith("Plan of a self-join, eps=0.1\n") and f"rows           {ROWS}" in text
    told = json.loads(run("plan", "points", "--k", "3", "--json", *ON).stdout)
    assert told["command"] == "plan"
    assert told["plan"]["pairs"] == 3 * ROWS


def test_scripts_read_one_object_and_people_the_rest(points, tmp_path):
    ran = run("self-join", "points", "--eps", "0.1", "--on", "x,y", "-o", "pairs.csv", "--json")
    told = json.loads(ran.stdout)
    assert told["output"] == str(tmp_path / "pairs.csv")
    assert told["plan"]["partitions"] == 1 and told["seconds"] > 0
    assert "Plan of a self-join" in ran.stderr and "Wrote " in ran.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--eps", "-1"), 2, "Error: eps=-1.0 is not"),
        (("--eps", "0.1", "--metric", "l2"), 2, "(did you mean 'euclidean'?)"),
        (("--eps", "0.1", "--on", "x,z"), 2, "on= names 'z', which is not a column"),
        (("--eps", "radius"), 2, "none is called so"),
        (("--epsilon", "1"), 2, "No such option"),
        ((), 2, "Missing option '--eps'"),
        (("--eps", "0.1", "--memory-limit", "much"), 2, "'much' is no memory; use such as '4 GB'"),
        pytest.param(
            ("--eps", "0.1", "--backend", "cudf"),
            1,
            "GPUs need 'dask-simjoin[cuda13]', which",
            marks=pytest.mark.skipif(bool(find_spec("dask_cudf")), reason="it is installed"),
        ),
        (("--eps", "0.1", "--id", "one"), 3, "ids in column 'one' are not unique"),
        (("--eps", "2", "--pairs", "both"), 4, "and the limit is"),
    ],
)
def test_what_is_refused(points, tmp_path, words, code, text):
    points.assign(one=1).to_csv("t.csv", index=False)
    before = sorted(tmp_path.iterdir())
    on = () if "--on" in words else ("--on", "x,y")
    with dask.config.set({"simjoin.result-limit": 10_000}):
        ran = run("self-join", "t.csv", *words, *on, *ON[2:], "-o", "out.csv", code=code)
    assert text in ran.stderr
    assert ran.stderr.count("Error: ") == 1 and ran.stdout == ""
    assert sorted(tmp_path.iterdir()) == before
    assert code in CODES


@pytest.mark.parametrize("name", ["none.parquet", "none/*.csv", "nosuchprotocol://t.csv", "broken.parquet"])
def test_tables_that_cannot_be_read(points, tmp_path, name):
    (tmp_path / "broken.parquet").write_text("no table")
    ran = run("count-pairs", name, "--eps", "1", code=1)
    assert ran.stderr.startswith(f"Error: {name} cannot be read: ")


def test_a_word_of_an_option_is_no_table(points):
    ran = run("count-pairs", "points", "--eps", "1", "--on", "x", "y", code=1)
    assert ran.stderr.startswith("Error: y cannot be read: there is no such file or folder (if it belongs to")
    assert "--on lat,lon" in ran.stderr


@pytest.mark.parametrize("name", ["out.json", "out.csv.gz", "out.xlsx"])
def test_an_output_of_another_format(points, tmp_path, name):
    before = sorted(tmp_path.iterdir())
    words = "self-join", "points", "--eps", "0.1", *ON, "-o", name
    assert "is no format of results; end the name in .parquet or .csv" in run(*words, code=2).stderr
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
        assert "is what is read, or a part of it" in run(*words, output, code=2).stderr
    other = "join", "points", "--other", "points/*", "--eps", "0.1", *ON, "--overwrite", "-o"
    assert "is what is read" in run(*other, "points/0.parquet", code=2).stderr


FOREIGN = "was not written by dask-simjoin alone, as it has"


def test_folders_that_others_wrote_stay(points, tmp_path):
    """Only what this program wrote is replaced: files of a folder, and its mark."""
    words = "self-join", "points", "--eps", "0.1", *ON, "--overwrite", "-o"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file.txt").write_text("precious")
    pd.DataFrame({"x": [1]}).to_parquet(mine / "part.0.parquet")
    for output in ("mine", "mine/", "./mine"):
        told = run(*words, output, code=2).stderr
        assert f"{tmp_path / 'mine'} {FOREIGN}" in told and "remove it yourself, or name another" in told
    assert sorted(path.name for path in mine.iterdir()) == ["file.txt", "part.0.parquet"]

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
    write = Sink.write

    def late(self, *args):
        write(self, *args)
        (tmp_path / "out" / "notes.txt").write_text("precious")

    monkeypatch.setattr(Sink, "write", late)
    assert "notes.txt" in run(*words, code=2).stderr
    assert (tmp_path / "out" / "notes.txt").read_text() == "precious"


def test_files_and_folders_do_not_replace_each_other(points, tmp_path):
    words = "self-join", "points", "--eps", "0.1", *ON, "--overwrite", "-o"
    (tmp_path / "file").write_text("mine")
    assert "is a file, and a folder would be written" in run(*words, "file", code=2).stderr
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder, and one file would be written" in run(*words, "folder.csv", code=2).stderr
    os.mkfifo(tmp_path / "pipe.csv")
    assert "is neither a file nor a folder" in run(*words, "pipe.csv", code=2).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.csv", "pipe.csv", "points"]


def test_folders_of_use_are_not_replaced(points, tmp_path, monkeypatch):
    words = "self-join", f"{tmp_path}/points", "--eps", "0.1", *ON, "--overwrite", "-o"
    run(*words, "out/deep")
    run(*words, "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "link").symlink_to("/")
    monkeypatch.chdir(tmp_path / "out" / "deep")
    for output in (".", "../deep", "..", str(tmp_path), "/", "~", "../../home", "../../home/link"):
        told = run(*words, output, code=2).stderr
        own = "is your home, the folder that you work in, or one above" in told
        assert own or (output in (str(tmp_path), "..", "/", "../../home/link") and "is what is read" in told)
    assert "is what is read, or a part of it" in run(*words, f"{tmp_path}/points/0.parquet", code=2).stderr


def test_links_lead_to_what_is_written(points, tmp_path):
    words = "self-join", "points", "--eps", "0.1", *ON, "--overwrite", "-o"
    (tmp_path / "data").mkdir()
    (tmp_path / "latest.tsv").symlink_to(tmp_path / "data" / "run1")
    (tmp_path / "input.csv").symlink_to(tmp_path / "points" / "0.parquet")
    for _ in range(2):  # it leads nowhere at first
        run(*words, "latest.tsv")
        assert (tmp_path / "latest.tsv").is_symlink() and (tmp_path / "data" / "run1").is_file()
    assert len(pd.read_csv("latest.tsv", sep="\t")) == len(pairs_of(points))
    assert "is what is read" in run(*words, "input.csv", code=2).stderr


def test_outputs_without_a_name(points, tmp_path):
    before = sorted(tmp_path.iterdir())
    words = "self-join", "points", "--eps", "0.1", *ON
    for output, said in (
        ("", "--output is empty"),
        ("-", "standard output"),
        ("~nosuchuser/out", "no user is called 'nosuchuser'"),
        ("a\0b", "null"),
    ):
        for more in ([], ["--overwrite"]):
            assert said in run(*words, "-o", output, *more, code=2).stderr
    assert "A table's name is empty" in run("count-pairs", "", "--eps", "1", code=2).stderr
    assert sorted(tmp_path.iterdir()) == before


def test_folders_that_are_remote(points):
    words = "self-join", "points", "--eps", "0.1", *ON, "--overwrite", "-o", "memory://place/out"
    for _ in range(2):
        run(*words)
    fs = MemoryFileSystem()
    assert len(pd.read_parquet("memory://place/out")) == len(pairs_of(points))
    fs.pipe_file("/place/out/notes.txt", b"precious")
    assert "notes.txt" in run(*words, code=2).stderr
    assert fs.cat_file("/place/out/notes.txt") == b"precious"


FORMULAS = ["=1+1", "+cmd", "-2", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "a=1", "", None]


def test_cells_that_a_spreadsheet_would_run(points, tmp_path):
    table = pd.DataFrame({"x": -np.arange(11.0), "=id": FORMULAS, "kind": pd.Categorical(FORMULAS)})
    table.to_parquet("t.parquet")
    words = "counts", "t.parquet", "--eps", "0", "--on", "x", *ON[2:]
    run(*words, "-o", "plain.csv")
    run(*words, "-o", "safe.csv", "--csv-safe")  # a lone \\r would begin a row, so texts are quoted
    wanted = ["'" + one for one in FORMULAS[:-3]] + FORMULAS[-3:-2] + [None, None]
    found = pd.read_csv("safe.csv", keep_default_na=False, na_values=[""], dtype=object).replace(np.nan, None)
    assert list(found.columns) == ["x", "'=id", "kind", "neighbors"]
    assert found["'=id"].tolist() == found["kind"].tolist() == wanted
    assert found["x"].tolist()[1] == "-1.0"  # a number
    assert pd.read_csv("plain.csv")["=id"].tolist()[:4] == FORMULAS[:4]
    assert "--csv-safe is for CSV" in run(*words, "-o", "no.parquet", "--csv-safe", code=2).stderr


def test_signs_of_patterns_in_the_name_of_an_output(points, tmp_path, monkeypatch):
    """One partition's file is the result: it gets its name without being sought by it, as some fsspec do."""
    monkeypatch.setattr(LocalFileSystem, "mv", AbstractFileSystem.mv)
    output = tmp_path / "[b]" / "pairs.parquet"
    run("self-join", "points/0.parquet", "--eps", "0.1", *ON, "-o", str(output))
    assert len(pd.read_parquet(output)) == len(pairs_of(points[:40]))


def test_large_plans_are_asked_about(points, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "LARGE_BYTES", 10)
    words = "self-join", "points", "--eps", "0.1", *ON, "-o", "out.csv"
    assert "add --yes to compute it" in run(*words, code=5).stderr
    assert not (tmp_path / "out.csv").exists()
    run(*words, "--yes")
    run("counts", "points", "--eps", "0.1", *ON, "-o", "rows.csv")  # makes no pairs


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (OSError("the disk is full"), 1)])
@pytest.mark.parametrize("step", ["write", "finish"])
def test_what_is_stopped_leaves_nothing(points, tmp_path, monkeypatch, error, code, step):
    does = getattr(Sink, step)

    def stopped(self, *args):
        if step == "write":
            does(self, *args)
        raise error

    monkeypatch.setattr(Sink, step, stopped)
    (tmp_path / "out.csv").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    run("self-join", "points", "--eps", "0.1", *ON, "-o", "out.csv", "--overwrite", code=code)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "out.csv").read_text() == "mine"


@pytest.mark.parametrize("output", ["out.csv", "out/"])
def test_a_full_disk_is_named(points, tmp_path, monkeypatch, output):
    def full(*args, **how):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(outputs, "compute", full)
    said = run("self-join", "points", "--eps", "0.1", *ON, "-o", output, code=1).stderr
    assert f"No space left on device, as {tmp_path / output.rstrip('/')} was written" in said
    assert f" in {tmp_path}, " in said and said.strip().endswith(f" in {tempfile.gettempdir()}")


def test_a_task_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{k},{k}" for k in range(30_000)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *rows, "0,none"]))
    ran = run("count-pairs", "t.csv", "--eps", "1", "--on", "x,y", "-q", code=1)
    assert "Error: " in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_cluster_that_is_there(points, two_workers):
    where = ("--on", "x,y", "--scheduler", two_workers.scheduler_address)
    ran = run("self-join", "points", "--eps", "0.1", *where, "-o", "pairs.csv", "--json")
    pd.testing.assert_frame_equal(in_order(pd.read_csv("pairs.csv")), pairs_of(points))
    assert json.loads(ran.stdout)["command"] == "self-join"


@pytest.mark.parametrize("live", [True, False])
def test_progress_tells_tasks_and_rows(points, monkeypatch, live):
    monkeypatch.setattr(running, "_live", lambda: live)
    monkeypatch.setattr(running, "LINES_EVERY", 0.0)
    words = "--eps", "0.1", "--on", "x,y", "--scheduler", "synchronous", "--blocksize", "200", "-o", "pairs/"
    told = run("self-join", "points", *words).stderr
    rows = len(pairs_of(points))
    assert "planning" in told and "joining" in told
    assert re.search(rf"\b{rows:,} rows, [\d,]+/s", told)
    tasks = [tuple(map(int, found)) for found in re.findall(r"(\d+)(?:/| of )(\d+) tasks", told)]
    assert tasks[-1][0] == tasks[-1][1] > 1
    assert " left" in told


def test_compile_prints_what_it_took():
    words = "compile", "--verbs", "count_pairs", "--dims", "2"
    assert "count_pairs     2" in run(*words).stdout
    assert json.loads(run(*words, "--json").stdout)[0]["verb"] == "count_pairs"
    assert "'two' is not a whole number" in run("compile", "--dims", "two", code=2).stderr
    assert "verbs='join_all' is not allowed" in run("compile", "--verbs", "join_all", code=2).stderr
