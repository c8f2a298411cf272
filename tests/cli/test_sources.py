"""Tables that are read, and what cannot be read."""

import re

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cli import csv_records, csv_rows, sources
from tests.cli.test_commands import ON, in_order, pairs_of, run
from tests.support.profiles import in_turns

MIXED = {
    "integers, floats": (["1", "2"], ["0.5", "3"], np.float64, [1, 2, 0.5, 3]),
    "floats, integers": (["1.5", "2"], ["4", "3"], np.float64, [1.5, 2, 4, 3]),
    "integers, missing": (["1", "2"], ["", "3"], np.float64, [1, 2, np.nan, 3]),
    "integers, nothing": (["1", "2"], ["", ""], np.float64, [1, 2, np.nan, np.nan]),
    "integers, texts": (["007", "2"], ["b", ""], None, ["007", "2", "b", np.nan]),
    "texts, floats": (["a", "2"], ["1.50", "3"], None, ["a", "2", "1.50", "3"]),
    "truth, integers": (
        ["True", "False"],
        ["1", "0"],
        None,
        ["True", "False", "1", "0"],
    ),
    "large integers, missing": (
        [str(2**60 + 1), "2"],
        ["", "3"],
        None,
        [str(2**60 + 1), "2", np.nan, "3"],
    ),
    "integers": (["1", "2"], ["4", "3"], np.int64, [1, 2, 4, 3]),
}


def test_tables_of_a_header_only(points, tmp_path):
    """Dtypes come from the other tables; a table without any rows is empty."""
    points[:30].to_csv("a.csv", index=False)
    points[30:].to_csv("b.tsv", index=False, sep="\t")
    for name, separator in (
        ("bare.csv", ","),
        ("bare.tsv", "\t"),
        ("bare.csv.gz", ","),
    ):
        points[:0].to_csv(name, index=False, sep=separator)
    points[["y", "x"]][:0].to_csv("other.csv", index=False)
    open("empty.csv", "w").close()
    tables = "bare.csv", "a.csv", "bare.tsv", "b.tsv", "bare.csv.gz"
    run("self-join", *tables, "--eps", "0.1", "-o", "out.csv", *ON)
    pd.testing.assert_frame_equal(in_order(pd.read_csv("out.csv")), pairs_of(points))
    run("self-join", "bare.csv", "bare.tsv", "--eps", "0.1", "-o", "none.csv", *ON)
    assert (tmp_path / "none.csv").read_text() == "left,right\n"
    for table, code, said in (
        ("other.csv", 3, "Column 'name' is not found in other.csv.* columns y, x"),
        ("empty.csv", 3, "empty.csv is empty: it has no header"),
    ):
        words = "dedup", "a.csv", table, "--eps", "0.1", "-o", "n.csv", *ON
        assert re.search(said, run(*words, code=code).output)


def test_texts_of_several_kinds(points, tmp_path):
    """Files that are written otherwise follow each other; what is written is what its
    name says.
    """
    folder = tmp_path / "a #1%20[b]"
    folder.mkdir()
    points[:20].to_csv(folder / "0.csv", index=False)
    points[20:45].to_csv(folder / "1.tsv", index=False, sep="\t")
    points[45:].to_csv(folder / "2.csv.gz", index=False)
    tables = [str(folder / name) for name in ("0.csv", "1.tsv", "2.csv.gz")]
    run("self-join", *tables, "--eps", "0.1", "-o", f"{folder}/\u00fc.tsv", *ON)
    found = pd.read_csv(folder / "\u00fc.tsv", sep="\t")
    pd.testing.assert_frame_equal(in_order(found), pairs_of(points))


def test_tables_that_are_remote():
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0]})
    frame.to_parquet("memory://tables/t.parquet")
    run(
        "self-join",
        "memory://tables",
        "--eps",
        "1",
        "-o",
        "memory://out/pairs.parquet",
        *ON[2:],
    )
    assert pd.read_parquet("memory://out/pairs.parquet").to_numpy().tolist() == [[0, 1]]


@pytest.mark.parametrize(
    "name", ["none.parquet", "none/*.csv", "nosuchprotocol://t.csv", "broken.parquet"]
)
def test_tables_that_cannot_be_read(points, tmp_path, name):
    (tmp_path / "broken.parquet").write_text("no table")
    code = 2 if name.startswith("none") else 3 if name == "broken.parquet" else 1
    ran = run("count-pairs", name, "--eps", "1", code=code)
    assert f"Error: {name} cannot be read: " in ran.stderr


def damaged(data, how):
    """Damage the bytes of a Parquet file."""
    if how == "cut":
        return data[: len(data) // 2]
    if how == "empty":
        return b""
    start = {"first page": 4, "page": len(data) // 3, "footer": len(data) - 700}[how]
    return data[:start] + b"\xff" * 50 + data[start + 50 :]


@pytest.mark.parametrize("how", ["cut", "empty", "first page", "page", "footer"])
@pytest.mark.parametrize("table", ["t", "t/b.parquet"])
def test_damaged_parquet_files_are_named(how, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").mkdir()
    frame = pd.DataFrame({"x": np.arange(20_000.0)})
    for name in "abc":
        frame.to_parquet(f"t/{name}.parquet")
    file = tmp_path / "t" / "b.parquet"
    file.write_bytes(damaged(file.read_bytes(), how))
    ran = run("count-pairs", table, "--eps", "1", "--on", "x", "-q", code=3)
    assert "Error: t/b.parquet cannot be read: " in ran.stderr
    assert ran.stderr.endswith(". Write or copy the file again.\n")


def test_other_files_of_a_folder_are_left_out(points, tmp_path):
    expected = run("count-pairs", "points", "--eps", "0.1", "--on", "x,y", "-q").stdout
    (tmp_path / "points" / "README").write_text("no table")
    ran = run("count-pairs", "points", "--eps", "0.1", "--on", "x,y", "-q")
    assert ran.stdout == expected
    (tmp_path / "t.dat").write_text("x\n1\n")
    ran = run("count-pairs", "t.dat", "--eps", "1", code=3)
    assert "t.dat cannot be read: " in ran.stderr
    assert "If it is a CSV file, add --input-format csv." in ran.stderr


@in_turns(1, second=["b.csv", "b.tsv", "b.csv.gz"], case=list(MIXED))
def test_columns_whose_types_differ_among_files(case, second, tmp_path):
    """Floats take integers, texts take all others, and what is the same everywhere
    stays.
    """
    *files, dtype, expected = MIXED[case]
    for name, values in zip(("a.csv", second), files, strict=True):
        table = pd.DataFrame({"id": range(2), "v": values})
        table.to_csv(
            tmp_path / name, index=False, sep="\t" if name.endswith("tsv") else ","
        )
    found = (
        sources.TableReader()
        .read([str(tmp_path / "a.csv"), str(tmp_path / second)])
        .compute()
    )
    assert found["id"].dtype == np.int64
    if dtype is not None:
        assert found["v"].dtype == dtype
    same = (
        pd.Series(found["v"].tolist(), dtype=object),
        pd.Series(expected, dtype=object),
    )
    pd.testing.assert_series_equal(*(side.where(side.notna(), None) for side in same))


ZIPS = ["00501", "01234", "10001", "NA"]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A CSV file with columns that numbers would change, and one with a text far below
    its numbers.
    """
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(
        {"zip": ZIPS, "x": [0.0, 0.5, 5.0, 9.0], "count": ["0", "", "7", "1.50"]}
    )
    table.assign(mixed=range(4)).to_csv("a.csv", index=False)
    rows = "".join(
        f"1{k:04d},{k + 20},1,{'IA' if k > 6_000 else k}\n" for k in range(6_010)
    )
    (tmp_path / "b.csv").write_text(f"zip,x,count,mixed\n{rows}")
    return table


def written(name):
    return pd.read_csv(name, dtype=str, keep_default_na=False)


def test_columns_of_csv_files_are_written_as_they_are_read(places):
    """What is not compared is text, so that it loses nothing, and texts among its
    numbers do no harm.
    """
    how = "--eps", "0.7", "--on", "x", "--scheduler", "synchronous", "-q"
    run("dedup", "a.csv", "b.csv", *how, "-o", "once.csv")
    once = written("once.csv")
    assert once["zip"].tolist()[:4] == ["00501", "10001", "NA", "10000"]
    assert (
        once["count"].tolist()[:4] == ["0", "7", "1.50", "1"]
        and once["mixed"].iloc[-1] == "IA"
    )
    run("self-join", "b.csv", *how, "-o", "none.csv")
    run(
        "self-join",
        "a.csv",
        *how,
        "--id",
        "zip",
        "--keep",
        "count",
        "-o",
        "pairs.parquet",
    )
    assert pd.read_parquet("pairs.parquet").to_numpy(
        object, na_value=None
    ).tolist() == [["00501", "01234", "0", None]]
    run(
        "join",
        "a.csv",
        "--other",
        "b.csv",
        *how[2:],
        "--eps",
        "30",
        "--how",
        "leftanti",
        "-o",
        "far.csv",
    )
    assert written("far.csv").columns.tolist() == ["zip", "x", "count", "mixed"]
    ran = run("self-join", "a.csv", *how[:2], "--on", "latitude", "-o", "n.csv", code=2)
    assert "zip" in ran.stderr and "mixed" in ran.stderr  # the error lists all columns


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        ("00501", "Column 'id' has '00501' below its first rows."),
        ("", "a column of unique values. See a.csv, line 6004."),
    ],
)
def test_ids_are_integers_if_they_lose_nothing(bad, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ids = [2**63 - 1, -4, *range(6_000)]
    pd.DataFrame({"id": ids, "x": range(6_002)}).to_csv("a.csv", index=False)
    how = (
        "--eps",
        "0",
        "--on",
        "x",
        "--id",
        "id",
        "--include-self",
        "--scheduler",
        "synchronous",
        "-q",
    )
    run("self-join", "a.csv", *how, "-o", "pairs.parquet")
    pairs = pd.read_parquet("pairs.parquet")
    assert pairs["left"].dtype == np.int64 and sorted(pairs["left"]) == sorted(ids)
    with open("a.csv", "a") as file:
        file.write(f"{bad},7000\n")
    ran = run("self-join", "a.csv", *how[:-1], "-o", "n.csv", code=0 if bad else 3)
    assert found in ran.stderr
    if bad:
        pairs = pd.read_csv("n.csv", dtype=str)
        assert set(pairs["left"]) == {*map(str, ids), bad}


def test_files_that_lack_a_column(places, tmp_path):
    (tmp_path / "c.csv").write_text("x,count\n1,2\n")
    for lacking, options in (("zip", ("--id", "zip")), ("mixed", ("--keep", "mixed"))):
        words = (
            "self-join",
            "b.csv",
            "c.csv",
            "--eps",
            "1",
            "--on",
            "x",
            *options,
            "-q",
            "-o",
            "n.csv",
        )
        ran = run(*words, code=3)
        assert "not found" in ran.stderr and lacking in ran.stderr


def test_blocks_of_files(tmp_path, monkeypatch):
    """Each row is in one block, and only the columns that are needed are parsed."""
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", 40)
    table = pd.DataFrame(
        {
            "a": range(50),
            "b": np.arange(50) / 4,
            "long": ["x" * (k % 60) + "y" for k in range(50)],
        }
    )
    table.to_csv(tmp_path / "a.csv", index=False)
    table[["long", "b", "a"]].to_csv(tmp_path / "b.csv.gz", index=False)
    frame = sources.TableReader().read(
        [str(tmp_path / "a.csv"), str(tmp_path / "b.csv.gz")]
    )
    assert frame.npartitions > 20
    wanted = pd.concat([table, table])
    found = frame.compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(
        found, wanted.reset_index(drop=True), check_dtype=False
    )
    assert len(frame) == 100 and frame["a"].sum().compute() == wanted["a"].sum()
    seen, parsed = [], csv_rows._arrow
    monkeypatch.setattr(
        csv_rows,
        "_arrow",
        lambda *some: seen.append(tuple(some[2])) or parsed(*some),
    )
    frame["b"].compute(scheduler="synchronous")
    assert set(seen) == {("b",)}


@pytest.mark.parametrize(
    "words",
    [
        ("dedup", "--eps", "0.7", "--on", "x"),
        ("dbscan", "--eps", "0.7", "--min-samples", "1", "--on", "x"),
        ("counts", "--eps", "0.7", "--on", "x", "--different", "code"),
        ("strings", "dedup", "--on", "name", "-k", "0"),
        (
            "join",
            "--eps",
            "0.1",
            "--on",
            "x",
            "--other",
            "far.csv",
            "--how",
            "leftanti",
        ),
    ],
)
def test_columns_of_groups_are_written_as_they_are_read(words, tmp_path, monkeypatch):
    """Texts that numbers would change name groups of their own: 1E3 is not 1000."""
    monkeypatch.chdir(tmp_path)
    groups = ["01069", "01069", "1E3", "1000", ""]
    table = pd.DataFrame({"code": [*"abcde"], "name": ["n"] * 5, "x": ["1"] * 5})
    table["zip"] = groups
    table.to_csv("a.csv", index=False)
    table.assign(x=9).to_csv("far.csv", index=False)
    n = 1 + (words[0] == "strings")
    drops = ("--dropna",) * (words[0] != "strings")
    run(*words[:n], "a.csv", *words[n:], "--by", "zip", *drops, "-q", "-o", "o.csv")
    found = written("o.csv")
    kept = groups[1:] if "dedup" in words else groups
    assert found["zip"].tolist() == kept
    if words[0] == "dbscan":
        assert found["label"].tolist()[:4] == ["0", "0", "1", "2"]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("sets dedup a.csv --on name --threshold 1 --tokenizer words", "words"),
        ("sets dedup a.csv --on name --threshold 1 --similarity cosine", "cosine"),
        ("strings dedup a.csv --on name --k 0 --grouping connected", "connected"),
        ("dedup a.csv --on x --eps 1 --keep first", "first"),
        ("dedup a.csv --on x --eps 1 --metric manhattan", "manhattan"),
        ("dbscan a.csv --on x --eps 1 --blocksize 1MiB", "1MiB"),
        ("counts a.csv --on x --eps 1 --method sweep", "sweep"),
        ("join a.csv --on x --eps 1 --how leftsemi --other b.csv", "leftsemi"),
        ("join a.csv --on x --eps 1 --how leftsemi --other b.csv", "b.csv"),
    ],
)
def test_a_column_named_like_a_value_of_an_option_stays_text(words, value, folder):
    table = pd.DataFrame({value: ["007", "1.50"], "x": [0, 5], "name": ["a", "b"]})
    table.to_csv("a.csv", index=False)
    table.to_csv("b.csv", index=False)
    run(*words.split(), "-q", "-o", "o.csv")
    assert pd.read_csv("o.csv", dtype=str)[value].tolist() == ["007", "1.50"]


@pytest.mark.parametrize("keep", ["first", "r"])
def test_columns_of_distances_and_of_kept_rows_are_numbers(keep, folder):
    """The largest value is kept by its number: 9 is less than 10."""
    table = pd.DataFrame({"r": [9, 10], "x": [0, 5], "first": ["01", "02"]})
    table.to_csv("a.csv", index=False)
    words = "dedup", "a.csv", "--on", "x", "--eps", "6", "--keep", keep
    run(*words, "-q", "-o", "o.csv")
    first = "01" if keep == "first" else "02"
    assert pd.read_csv("o.csv", dtype=str)["first"].tolist() == [first]
    both = "--eps", "r", "--pairs", "both"
    run("self-join", *words[1:4], *both, "-q", "-o", "p.csv")
    assert pairs_in("p.csv") == [(0, 1), (1, 0)]


def pairs_in(name):
    return sorted(pd.read_csv(name).itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (["1069", "2"], ["01069", "2"], [(1, 1)]),  # as texts
        (["1069", "2"], ["1069", ""], [(0, 0)]),
        (["1069", "2"], ["1069", "2"], [(0, 0), (1, 1)]),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_groups_of_two_tables_are_compared_as_texts_if_one_has_texts(
    left, right, expected, turned, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if turned:
        left, right = right, left
    for name, zips in (("a.csv", left), ("b.csv", right)):
        pd.DataFrame({"x": [0, 0], "zip": zips}).to_csv(name, index=False)
    two = "join", "a.csv", "--other", "b.csv", "--eps", "1", "--on", "x", "--by", "zip"
    run(*two, "--dropna", "-q", "-o", "o.csv")
    assert pairs_in("o.csv") == expected
    # numbers of a Parquet table make the texts of the CSV table numbers
    numbers = pd.DataFrame({"x": [0, 0], "zip": [1069, 2]})
    numbers.to_parquet("b.parquet")
    run(*two[:3], "b.parquet", *two[4:], "--dropna", "-q", "-o", "p.csv")
    same = [
        (n, k)
        for n, zip_code in enumerate(left)
        for k, one in enumerate(numbers["zip"])
        if zip_code and int(zip_code) == one
    ]
    assert pairs_in("p.csv") == same


def test_texts_of_digits_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("zip\n01069\n01068\n55555\n1069\n")
    run("strings", "dedup", "a.csv", "--on", "zip", "-k", "1", "-q", "-o", "o.csv")
    assert written("o.csv")["zip"].tolist() == ["01069", "55555"]
    run(
        "sets", "dedup", "a.csv", "--on", "zip", "--threshold", "1", "-q", "-o", "s.csv"
    )
    assert written("s.csv")["zip"].tolist() == ["01069", "01068", "55555", "1069"]


def test_columns_that_a_join_would_carry_are_text(tmp_path, monkeypatch):
    """Without pairs, --keep has no use."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x,zip\n1,007\n2,\n")
    (tmp_path / "b.csv").write_text("x,zip\n9,007\n")
    two = "join", "a.csv", "--other", "b.csv", "--eps", "1", "--on", "x"
    run(*two, "--how", "left", "--keep", "zip", "-q", "-o", "l.csv")
    assert written("l.csv")["zip_left"].tolist() == ["007", ""]


def test_two_tables_are_written_in_different_ways(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left, right = "name,x\nZoé,1.5\nBob,2\n", "name;x\nZoé;1,5\nBob;7\n"
    (tmp_path / "a.csv").write_text(left, encoding="utf-8")
    (tmp_path / "b.csv").write_text(right, encoding="latin-1")
    two = (
        "join",
        "a.csv",
        "--other",
        "b.csv",
        "--eps",
        "0",
        "--on",
        "x",
        "--keep",
        "name",
    )
    other = "--other-separator", ";", "--other-encoding", "latin-1"
    run(*two, *other, "--other-decimal", ",", "-q", "-o", "o.csv")
    assert written("o.csv").to_numpy().tolist() == [["0", "0", "Zoé", "Zoé"]]
    # a second table of the same kind needs no options
    two = "join", "b.csv", "--other", "b.csv", "--eps", "0", "--on", "x"
    how = "--separator", ";", "--encoding", "latin-1", "--decimal", ","
    run(*two, *how, "-q", "-o", "p.csv")
    assert pairs_in("p.csv") == [(0, 0), (1, 1)]
