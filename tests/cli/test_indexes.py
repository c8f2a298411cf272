"""Commands of tables that grow: what they write are the changes that an index tells."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import dask_simjoin
from dask_simjoin.cli.main import cli
from tests.support.profiles import every_nth

QUIET = ("--scheduler", "synchronous", "-q")


def run(*words, code=0):
    ran = CliRunner().invoke(cli, ["index", *words])
    assert ran.exit_code == code and "Traceback" not in ran.output, ran.output
    return ran


@pytest.fixture
def points(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(2).uniform(size=(80, 2)).round(3)
    table = pd.DataFrame(x, columns=["x", "y"]).assign(key=[f"k{n}" for n in range(80)])
    table[:60].to_csv("first.csv", index=False)
    table[60:].to_csv("second.csv", index=False)
    run(
        "make",
        "first.csv",
        "--eps",
        "0.1",
        "--on",
        "x,y",
        "--id",
        "key",
        "--path",
        "grown",
        *QUIET,
    )
    return table


def pairs_of(table):
    return set(
        table.simjoin.self_join(0.1, on=["x", "y"], id="key").itertuples(
            index=False, name=None
        )
    )


def written(name):
    found = pd.read_csv(name)
    return {row[:2] for row in found.itertuples(index=False, name=None)}, found


def test_an_update_writes_the_pairs_that_changed(points):
    run("pairs", "grown", "-o", "pairs.csv", *QUIET)
    assert written("pairs.csv")[0] == pairs_of(points[:60])
    words = (
        "update",
        "grown",
        "second.csv",
        "--delete",
        "k0,k1",
        "--batch",
        "one",
        "-o",
        "changes.csv",
    )
    told = json.loads(run(*words, *QUIET, "--json").stdout)
    assert (told["since"], told["version"]) == (1, 2)
    before, after = pairs_of(points[:60]), pairs_of(points[2:])
    found = written("changes.csv")[1]
    came, went = (
        set(zip(some["left"], some["right"], strict=True))
        for some in (found[found["diff"] == 1], found[found["diff"] == -1])
    )
    assert came and went and (came, went) == (after - before, before - after)
    again = json.loads(run(*words, *QUIET, "--json", "--overwrite").stdout)
    assert again["version"] == 2 and written("changes.csv")[1].equals(found)
    run("changes", "grown", "--since", "1", "-o", "since.csv", *QUIET)
    assert written("since.csv")[0] == written("changes.csv")[0]
    told = json.loads(run("history", "grown", "--json").stdout)
    assert [one["version"] for one in told] == [1, 2] and told[1]["batch"] == "one"


def test_rows_are_deleted_without_a_table(points):
    run("update", "grown", "--delete", "k0,k1", "-o", "changes.csv", *QUIET)
    found = written("changes.csv")[1]
    went = set(zip(found["left"], found["right"], strict=True))
    assert went == pairs_of(points[:60]) - pairs_of(points[2:60]) != set()
    assert set(found["diff"]) == {-1}
    ran = run("update", "grown", "-o", "none.csv", *QUIET, code=2)
    assert "There is nothing to update" in ran.output and "--delete" in ran.output


def test_new_rows_with_another_separator(points, tmp_path):
    text = (tmp_path / "second.csv").read_text().replace(",", ";")
    (tmp_path / "third.csv").write_text(text)
    words = "update", "grown", "third.csv", "-o", "changes.csv", *QUIET
    told = run(*words, code=2).stderr
    assert "they have none of its columns" in told and "add --separator ';'" in told
    run(*words, "--separator", ";")


def test_an_index_is_no_place_for_outputs(points, tmp_path):
    """What is in its folder is the index's own, be it replaced or added to."""
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for words in (
        ("pairs", "grown"),
        ("changes", "grown", "--since", "1"),
        ("update", "grown", "second.csv", "--batch", "one"),
    ):
        for output in ("grown", "grown/rows/", "grown/new.csv", "grown/new/"):
            told = run(*words, *QUIET, "--overwrite", "-o", output, code=2).stderr
            assert "or overlaps an input folder" in told
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_is_refused(points, tmp_path):
    words = "make", "first.csv", "--eps", "0.1", "--on", "x,y", *QUIET
    assert "--id is missing" in run(*words, "--path", "other", code=2).stderr
    assert run(*words, "--id", "key", "--path", "grown", code=2).stderr.startswith(
        "Error: "
    )
    before = sorted(tmp_path.iterdir())
    words = "update", "grown", "first.csv", "-o", "changes.csv", *QUIET
    assert "Error: " in run(*words, code=3).stderr
    assert sorted(tmp_path.iterdir()) == before
    assert len(dask_simjoin.open_index("grown")) == 60


def test_a_check_names_what_is_damaged(points, tmp_path):
    """Also in an index that cannot be opened."""
    assert json.loads(run("check", "grown", "--json").stdout)["damaged"] == 0
    assert run("check", "grown", "-q").output == ""
    rows = min((tmp_path / "grown" / "rows").iterdir())
    rows.write_bytes(rows.read_bytes()[:-1])
    manifest = tmp_path / "grown" / "_versions" / f"{2:020}.json"
    manifest.write_text("{")
    told = json.loads(run("check", "grown", "--json", code=1).stdout)
    assert [one["file"] for one in told["damage"]] == [
        f"_versions/{manifest.name}",
        f"rows/{rows.name}",
    ]
    assert [one["versions"] for one in told["damage"]] == [[2], [1]]
    shown = run("check", "grown", "-q", code=1).output
    assert (
        rows.name in shown
        and "its content changed after it was written (version 1)" in shown
    )
    for words in (["check"], ["history"], ["pairs", "-o", "p.csv"]):
        ran = run(words[0], "elsewhere", *words[1:], code=2)
        assert "elsewhere holds no index; name the folder of an index" in ran.stderr
    assert "is damaged" in run("history", "grown", code=3).output


@pytest.mark.parametrize(
    "output",
    every_nth(4, ["changes.csv", "changes.tsv", "changes.parquet", "changes/"]),
)
def test_an_update_prints_its_rows_and_pairs(points, output):
    """As many as Python's result has, also of a batch that is known."""
    twin = points[:60].simjoin.index(0.1, "twin", on=["x", "y"], id="key")
    changes = twin.update(points[60:], delete=[f"k{n}" for n in range(20)])
    added, removed = len(changes.added), len(changes.removed)
    gone = ",".join(f"k{n}" for n in range(20))
    how = (
        "update",
        "grown",
        "second.csv",
        "--delete",
        gone,
        "--batch",
        "one",
        "-o",
        output,
    )
    said = run(*how, "--scheduler", "synchronous").stderr
    assert "  inserted       20\n" in said and "  deleted        20\n" in said
    assert added > 1 and removed > 1
    assert said.endswith(
        f"Wrote {added} added pairs and {removed} removed pairs to {output}.\n"
    )
    assert run(*how, "--overwrite").stderr.endswith(
        "Batch 'one' was committed before, so the index did not change.\n"
        f"Wrote the changes of this batch again to {output}: {added} added pairs and "
        f"{removed} removed pairs.\n"
    )
    told = json.loads(run(*how, *QUIET, "--overwrite", "--json").stdout)
    assert (told["pairs_added"], told["pairs_removed"], told["known"]) == (
        added,
        removed,
        True,
    )


def test_tables_without_rows_are_named(points):
    points[:0].to_csv("empty.csv", index=False)
    how = ("-o", "changes.csv", "--scheduler", "synchronous")
    said = run("update", "grown", "empty.csv", *how).stderr
    assert said.endswith(
        "There are no rows to add in empty.csv. If you expected rows, check this file.\n"
        "Wrote 0 added pairs and 0 removed pairs to changes.csv.\n"
    )
    said = run("update", "grown", "--delete", "k0", *how, "--overwrite").stderr
    assert "no rows" not in said
    made = ("--eps", "0.1", "--on", "x,y", "--id", "key", "--path", "new")
    assert "no rows to add in empty.csv." in run("make", "empty.csv", *made).stderr


def test_a_batch_name_with_other_rows_is_refused(points):
    run("update", "grown", "second.csv", "--batch", "one", "-o", "changes.csv", *QUIET)
    points[60:70].assign(x=0.5).to_csv("third.csv", index=False)
    words = (
        "update",
        "grown",
        "third.csv",
        "--if-exists",
        "replace",
        "--batch",
        "one",
        *QUIET,
    )
    said = " ".join(run(*words, "-o", "other.csv", code=2).stderr.split())
    assert (
        "--batch one was committed as version 2 with other rows: it had 20 new rows, "
        "and this" in said
    )
    assert (
        "Nothing was changed. Use another batch name for these rows, or leave out "
        "--batch." in said
    )


def test_columns_of_other_types_are_cast(points):
    """Integers to the index's floats."""
    pd.DataFrame({"x": [3, 3], "y": [4, 4], "key": ["a", "b"]}).to_csv(
        "whole.csv", index=False
    )
    run("update", "grown", "whole.csv", "-o", "changes.csv", *QUIET)
    assert written("changes.csv")[0] == {("a", "b")}


def test_an_index_reads_csv_columns_with_its_own_types(tmp_path, monkeypatch):
    """Ids and kept columns that are numbers stay numbers, and texts stay texts."""
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(
        {"key": [1, 2], "x": [0.0, 0.1], "size": [5, 6], "zip": ["07001", "07002"]}
    )
    how = {"on": "x", "id": "key", "keep": ["size", "zip"]}
    # as indexes were made before: with numbers
    grown = table.simjoin.index(0.5, "grown", **how)
    (tmp_path / "next.csv").write_text(
        "key,other,zip,size,x\n3,1,10001,7,0.2\n4,IA,10002,8,9\n"
    )
    run("update", "grown", "next.csv", "-o", "changes.csv", *QUIET)
    assert written("changes.csv")[0] == {(1, 3), (2, 3)}
    rows = grown.rows().compute()
    assert rows["size"].tolist() == [5, 6, 7, 8] and rows["zip"].tolist()[2:] == [
        "10001",
        "10002",
    ]
    make = (
        "make",
        "next.csv",
        "--eps",
        "1",
        "--on",
        "x",
        "--id",
        "zip",
        "--keep",
        "size",
        "--path",
        "other",
    )
    run(*make, *QUIET)
    (tmp_path / "last.csv").write_text("key,zip,size,x\n5,10003,9,0.3\n")
    run("update", "other", "last.csv", "-o", "more.csv", *QUIET)
    assert written("more.csv")[0] == {(10001, 10003)}


def update(*words, code=0):
    return run("update", "grown", *words, *QUIET, "--overwrite", code=code)


def test_bad_rows_of_an_update(points, tmp_path):
    (tmp_path / "next.csv").write_text("x,y,key\n0.5,0.5,a\n0.5,north,b\n0.5,0.5\n")
    said = update("next.csv", "-o", "o.csv", code=3).stderr
    assert "next.csv, line 3: column 'y' has 'north', which is not a number." in said
    assert len(dask_simjoin.open_index("grown")) == 60
    ran = update("next.csv", "-o", "o.csv", "--bad-rows", "bad.csv", "--json")
    told = json.loads(ran.stdout)
    assert (told["inserted"], told["bad_rows"]) == (1, 2)
    assert pd.read_csv("bad.csv")["line"].tolist() == [3, 4]


def test_bad_places_of_an_update(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("id;lat;lon\n1;47,5;8,5\n")
    on = "--eps", "1 km", "--on", "lat,lon", "--metric", "haversine", "--id", "id"
    read = "--separator", ";", "--decimal", ","
    run("make", "a.csv", *on, "--path", "grown", *read, *QUIET)
    (tmp_path / "b.csv").write_text("id;lat;lon\n2;47,5;8,501\n3;99,5;8\n")
    said = update("b.csv", *read, "-o", "o.csv", code=3).stderr
    assert "for example 99.5 in b.csv, line 3." in said
    ran = update("b.csv", *read, "-o", "o.csv", "--bad-rows", "skip", "--json")
    assert json.loads(ran.stdout)["bad_rows"] == 1
    assert written("o.csv")[0] == {(1, 2)}


@pytest.mark.parametrize("kind", every_nth(4, ["csv", "parquet"]))
def test_rows_without_coordinates_are_left_out_of_one_update(points, kind):
    table = pd.DataFrame({"x": [0.5, None, np.inf], "y": 0.5, "key": ["a", "b", "c"]})
    getattr(table, f"to_{kind}")(f"next.{kind}", index=False)
    said = update(f"next.{kind}", "-o", "o.csv", code=3).stderr
    assert "or add --dropna." in said
    assert ("See next.csv, line 3." in said) == (kind == "csv")
    ran = update(f"next.{kind}", "-o", "o.csv", "--dropna", "--json")
    told = json.loads(ran.stdout)
    assert (told["inserted"], told["rows_left_out"]) == (1, 2)
    assert not told.keys() & {"dropped", "left_out"}
    table["key"] = ["d", "e", "f"]
    getattr(table, f"to_{kind}")(f"next.{kind}", index=False)
    words = "update", "grown", f"next.{kind}", "-o", "p.csv", "--dropna"
    said = run(*words, *QUIET[:-1]).stderr
    assert "rows left out  2" in said


def test_rows_without_coordinates_are_left_out_of_a_new_index(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("id,x\n1,0\n2,\n3,inf\n4,x\n")
    words = "make", "a.csv", "--eps", "1", "--on", "x", "--id", "id", *QUIET[:-1]
    ran = run(*words, "--path", "grown", "--dropna", "--bad-rows", "skip", "--json")
    told = json.loads(ran.stdout)
    assert (told["rows"], told["rows_left_out"], told["bad_rows"]) == (1, 2, 1)
    assert "Left out 2 rows without coordinates." in ran.stderr


def test_an_update_without_rows(points, tmp_path):
    (tmp_path / "none.csv").write_text("x,y,key\n")
    told = json.loads(update("none.csv", "-o", "o.csv", "--json").stdout)
    assert told["inserted"] == told["pairs_added"] == 0


def test_an_index_of_whole_numbers(tmp_path, monkeypatch):
    """Its columns stay integers: other numbers are refused, missing ones left out."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"x": [0, 1], "id": [1, 2]}).to_csv("a.csv", index=False)
    how = "--eps", "1", "--on", "x", "--id", "id", "--path", "grown", *QUIET
    run("make", "a.csv", *how)
    for row, said in (
        ("1.5,3", "column 'x' has '1.5', which is not a whole number, as in the index"),
        ("2,x3", "column 'id' has 'x3', which is not a whole number"),
        ("2,", "column 'id' has '', which is missing"),
        (",3", "column 'x' has 1 missing value"),
        (f"2,{2**63}", f"column 'id' has '{2**63}', which is not a whole number"),
    ):
        (tmp_path / "b.csv").write_text(f"x,id\n2,9\n{row}\n")
        assert said in update("b.csv", "-o", "o.csv", code=3).stderr
    (tmp_path / "b.csv").write_text(f"x,id\n2,{2**62 + 1}\n,10\n")
    update("b.csv", "-o", "o.csv", "--dropna")
    assert written("o.csv")[0] == {(2, 2**62 + 1)}
