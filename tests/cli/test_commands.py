"""Commands read, plan, ask, compute and write what the verbs give."""

import json
import re
import time
from importlib.util import find_spec
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from dask_simjoin.cli import commands, running
from dask_simjoin.cli.main import CODES, cli
from dask_simjoin.cli.tables import OutputWriter
from tests.support.profiles import every_nth, in_turns


def run(*words, code=0, text=None):
    """What a command prints; it ends with this exit code, and without a traceback."""
    ran = CliRunner().invoke(
        cli, ["--", *words] if words[0][0] == "-" else list(words), input=text
    )
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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("self-join", "empty.csv", "--eps", "1", "-o", "o.csv"), 1),
        (("join", "empty.csv", "--other", "empty.csv", "--eps", "1", "-o", "o.csv"), 2),
        (("counts", "points.csv", "--eps", "1", "-o", "o.csv"), 0),
        (("count-pairs", "empty.csv", "--eps", "1"), 1),
        (("dedup", "empty.csv", "--eps", "1", "-o", "o.csv"), 1),
        (("strings", "self-join", "empty.csv", "--k", "1", "-o", "o.csv"), 1),
        (("sets", "dedup", "empty.csv", "--threshold", "0.5", "-o", "o.csv"), 1),
    ],
)
def test_tables_without_rows_are_named(points, words, named):
    points.to_csv("points.csv", index=False)
    points[:0].to_csv("empty.csv", index=False)
    on = "name" if words[0] in ("strings", "sets") else "x,y"
    said = run(*words, "--on", on, "--scheduler", "synchronous").stderr
    assert said.count("There are no rows to compare in empty.csv. If") == named


READ = [
    (tables, "pairs.csv")
    for tables in ("points/*.parquet", "both", "tables.csv", "tables.tsv", "csvs/")
]
WRITTEN = [
    ("points", output) for output in ("pairs.parquet", "pairs.csv", "pairs/", "pairs")
]


@pytest.mark.parametrize(("tables", "output"), every_nth(4, READ + WRITTEN))
def test_what_is_written_are_the_pairs_of_the_verb(points, tables, output, tmp_path):
    points.to_csv("tables.csv", index=False)
    points.to_csv("tables.tsv", index=False, sep="\t")
    (tmp_path / "csvs").mkdir()
    points[:7].to_csv("csvs/0.csv", index=False)
    points[7:].to_csv("csvs/1.csv", index=False)
    given = ["points/0.parquet", "points/1.parquet"] if tables == "both" else [tables]
    run(
        "self-join",
        *given,
        "--eps",
        "0.1",
        "--return-distance",
        "--blocksize",
        "800",
        "-o",
        output,
        *ON,
    )
    found = pd.read_csv(output) if output.endswith(".csv") else pd.read_parquet(output)
    pd.testing.assert_frame_equal(
        in_order(found), pairs_of(points, return_distance=True)
    )
    assert not list(tmp_path.rglob("*.partial"))


def test_columns_that_would_be_replaced(points, tmp_path):
    points.assign(neighbors=1).to_csv("t.csv", index=False)
    before = sorted(tmp_path.iterdir())
    told = run("counts", "t.csv", "--eps", "0.1", "-o", "out.csv", *ON, code=2).stderr
    assert "already has a column 'neighbors'" in told
    assert sorted(tmp_path.iterdir()) == before


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
    run(
        "join",
        "points",
        *other,
        "--eps",
        "0.1",
        "--how",
        "leftanti",
        "-o",
        "alone.csv",
        *ON,
    )
    alone = points.simjoin.join(points[:20], 0.1, on=["x", "y"], how="leftanti")
    pd.testing.assert_frame_equal(
        pd.read_csv("alone.csv"), alone.reset_index(drop=True)
    )
    run("knn", "points", *other, "--k", "2", "-o", "nearest.csv", *ON)
    near = points.simjoin.knn_join(points[:20], k=2, on=["x", "y"])
    pd.testing.assert_frame_equal(in_order(pd.read_csv("nearest.csv")), in_order(near))
    far = ("--k", "1", "--min-distance", "0.05", "--max-distance", "0.1")
    run("knn", "points", *other, *far, "--how", "leftanti", "-o", "far.csv", *ON)
    options = {"min_distance": 0.05, "max_distance": 0.1, "how": "leftanti"}
    alone = points.simjoin.knn_join(points[:20], k=1, on=["x", "y"], **options)
    assert 0 < len(alone) < len(points)
    pd.testing.assert_frame_equal(pd.read_csv("far.csv"), alone.reset_index(drop=True))
    run("closest-pairs", "points", *other, "-n", "5", "-o", "closest.csv", *ON)
    closest = points.simjoin.closest_pairs(5, points[:20], on=["x", "y"])
    pd.testing.assert_frame_equal(pd.read_csv("closest.csv"), closest)


@pytest.mark.parametrize(
    ("name", "words", "verb", "options"),
    [
        ("counts", ("--eps", "0.1"), "neighbor_counts", {"eps": 0.1}),
        (
            "dbscan",
            ("--eps", "0.1", "--min-samples", "3"),
            "dbscan",
            {"eps": 0.1, "min_samples": 3},
        ),
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
    told = json.loads(
        run("count-pairs", "points", "--eps", "0.1", "--json", *ON).stdout
    )
    assert told["number"] == wanted and told["plan"]["rows"] == len(points)


def test_numbers_within_several_distances(points):
    several = [0.05, 1.0]
    wanted = points.simjoin.count_pairs(several, on=["x", "y"]).tolist()
    ran = run("count-pairs", "points", "--eps", "0.05,1", *ON)
    assert ran.stdout == f"0.05\t{wanted[0]}\n1\t{wanted[1]}\n"
    told = json.loads(
        run("count-pairs", "points", "--eps", "0.05,1", "--json", *ON).stdout
    )
    assert list(told["number"].values()) == wanted
    run("counts", "points", "--eps", "0.05,1", "-o", "rows.csv", *ON)
    found = pd.read_csv("rows.csv")[["neighbors_0.05", "neighbors_1"]]
    assert (
        found.to_numpy()
        == points.simjoin.neighbor_counts(several, on=["x", "y"]).to_numpy()
    ).all()


def test_tolerances_and_boxes(points):
    when = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(len(points)), "min")
    table = points.assign(t=when, n=np.arange(len(points)) % 9)
    table.to_parquet("times.parquet")
    table.to_csv("times.csv", index=False)
    for words, options in (
        (
            ["--within", "t=9 min", "--within", "n=2"],
            {"within": {"t": "9 min", "n": 2}},
        ),
        (["--within", "n=20 %", "--box", "1"], {"within": {"n": "20 %"}, "box": 1}),
        (["--box", "1,none"], {"box": [1, None]}),
        (["--box", "y=1"], {"box": {"y": 1}}),
        (
            ["--within", "t=-1 h..0 min", "--pairs", "both"],
            {"within": {"t": ("-1 h", "0 min")}, "pairs": "both"},
        ),
        (
            ["--within", "t=..0 min", "--within", "n=-3..", "--pairs", "both"],
            {"within": {"t": (None, "0 min"), "n": (-3, None)}, "pairs": "both"},
        ),
    ):
        wanted = table.simjoin.count_pairs(0.1, on=["x", "y"], **options)
        for name in ("times.parquet", "times.csv"):
            ran = run("count-pairs", name, "--eps", "0.1", *words, *ON)
            assert ran.stdout == f"{wanted}\n"
    counted = ("count-pairs", "times.csv", "--eps", "0.1", *ON)
    ran = run(*counted, "--within", "t=9", code=2)
    assert "Column 't' holds times: use a duration of less than 292 years" in ran.output
    ran = run(*counted, "--within", "9 min", code=2)
    assert "'9 min' names no column; use COLUMN=TOLERANCE" in ran.output
    ran = run(*counted, "--within", "n=2", "--within", "n=3", code=2)
    assert "--within names 'n' twice" in ran.output
    ran = run(
        "count-pairs", "times.parquet", "--eps", "1", "--within", "t=9 parsec", code=2
    )
    assert "--within 't=9 parsec' is not allowed" in ran.output


@pytest.mark.parametrize("keep", ["last", False])
def test_rows_that_stay(points, keep):
    run("dedup", "points", "--eps", "0.1", "--keep", str(keep), "-o", "rest.csv", *ON)
    wanted = points.simjoin.drop_near_duplicates(0.1, on=["x", "y"], keep=keep)
    pd.testing.assert_frame_equal(
        pd.read_csv("rest.csv"), wanted.reset_index(drop=True)
    )
    assert 0 < len(wanted) < len(points)


@pytest.mark.parametrize(
    ("words", "rows", "said"),
    [
        (("dedup", "--eps", "1"), 4, "Wrote 4 of 5 rows to o.csv in S s; kept,"),
        (("counts", "--eps", "1"), 5, "Wrote o.csv in S s; kept,"),
        (("dbscan", "--eps", "1", "--min-samples", "2"), 5, "kept,"),
        (("self-join", "--eps", "1"), 1, "Wrote 1 row to o.csv in S s; left out"),
        (("knn", "-k", "1"), 3, "left out"),
    ],
)
def test_rows_without_coordinates_are_reported(
    words, rows, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "compiled_here", lambda: False)
    (tmp_path / "t.csv").write_text("x,y\n0,0\n,0\n0,1\n9,\n50,50\n")
    on = ("--on", "x,y", "--scheduler", "synchronous", "--dropna", "-o", "o.csv")
    ran = run(words[0], "t.csv", *words[1:], *on, "--json")
    last = re.sub(r"\d+\.\d s", "S s", ran.stderr.splitlines()[-1])
    but = " but not compared," * said.endswith("kept,")
    assert last.endswith(f"{said}{but} 2 of 5 rows: 1 misses 'x'; 1 misses 'y'.")
    assert len(pd.read_csv("o.csv")) == rows
    found = json.loads(ran.stdout)
    assert found["rows_left_out"] == found["report"]["rows_left_out"] == 2
    assert found["plan"]["left_out"][0]["table_rows"] == 5


@pytest.mark.parametrize(
    ("how", "rows", "left", "right"),
    every_nth(
        4,
        [
            ("inner", 1, "left out", "left out"),
            ("left", 4, "kept", "left out"),
            ("right", 2, "left out", "kept, but not compared,"),
            ("outer", 5, "kept", "kept, but not compared,"),
            ("leftanti", 3, "kept", "left out"),
        ],
    ),
)
def test_rows_of_two_tables_without_coordinates(
    how, rows, left, right, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text('x\n0\n""\ninf\n9\n')
    (tmp_path / "o.csv").write_text('x\n0\n""\n')
    words = ("--on", "x", "--eps", "1", "--how", how, "--dropna")
    ran = run("join", "t.csv", "--other", "o.csv", *words, "-o", "r.csv")
    last = ran.output.splitlines()[-1]
    of = "2 of 4 rows of the left table: 1 misses 'x'; 1 has an infinite value in 'x'"
    assert f"; {left}" in last and of in last
    assert last.endswith(f"; {right} 1 of 2 rows of the right table: 1 misses 'x'.")
    assert len(pd.read_csv("r.csv", skip_blank_lines=False)) == rows


def test_numbers_of_rows_without_coordinates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("x,y\n0,0\n,0\n0,1\n")
    ran = run("count-pairs", "t.csv", "--on", "x,y", "--eps", "1", "--dropna")
    assert ran.stdout == "1\n"
    assert ran.stderr.splitlines()[-1] == "Left out 1 of 3 rows: 1 misses 'x'."


def test_sets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = pd.DataFrame({"text": ["a b c d", "b c d a", "a b c e", "x y"]})
    texts.to_csv("texts.csv", index=False)
    how = ("--on", "text", "--threshold", "3/5", "--tokenizer", "delimiter: ", *ON[2:])
    options = {"on": "text", "threshold": 0.6, "tokenizer": "whitespace"}
    run(
        "sets", "self-join", "texts.csv", *how, "--return-similarity", "-o", "pairs.csv"
    )
    wanted = texts.simjoin.set_self_join(**options, return_similarity=True)
    pd.testing.assert_frame_equal(in_order(pd.read_csv("pairs.csv")), in_order(wanted))
    run("sets", "counts", "texts.csv", *how, "-o", "counts.csv")
    assert (
        pd.read_csv("counts.csv")["neighbors"].tolist()
        == texts.simjoin.set_neighbor_counts(**options).tolist()
    )
    assert run("sets", "count-pairs", "texts.csv", *how).stdout == f"{len(wanted)}\n"
    assert (
        json.loads(run("sets", "plan", "texts.csv", *how, "--json").stdout)["plan"][
            "rows"
        ]
        == 4
    )
    run("sets", "dedup", "texts.csv", *how, "--keep", "last", "-o", "rest.csv")
    assert pd.read_csv("rest.csv")["text"].tolist() == ["a b c e", "x y"]


def test_plans(points):
    text = run("plan", "points", "--eps", "0.1", "--on", "x,y").stdout
    assert (
        text.startswith("Plan of a self-join, eps=0.1\n")
        and f"rows           {len(points)}" in text
    )
    told = json.loads(run("plan", "points", "--k", "3", "--json", *ON).stdout)
    assert told["command"] == "plan"
    assert told["plan"]["pairs"] == 3 * len(points)


def test_scripts_read_one_object_and_people_the_rest(points, tmp_path):
    ran = run(
        "self-join",
        "points",
        "--eps",
        "0.1",
        "--on",
        "x,y",
        "-o",
        "pairs.csv",
        "--json",
    )
    told = json.loads(ran.stdout)
    assert told["output"] == str(tmp_path / "pairs.csv")
    assert told["plan"]["partitions"] == 1 and told["seconds"] > 0
    assert "Wrote " in ran.stderr


@pytest.mark.parametrize("terminal", [False, True])
def test_terminals_show_the_plan_and_logs_do_not(points, monkeypatch, terminal):
    monkeypatch.setattr(commands, "on_terminal", lambda: terminal)
    words = "count-pairs", "points", "--eps", "0.1", *ON[:-1]
    said = run(*words, "--verbose").stderr
    assert ("Plan of a self-join" in said) == ("Planning took" in said) == terminal
    assert re.findall(r"(?m)^\d{4}-\S+ \S+ (planned|done) count_pairs", said) == [
        "planned",
        "done",
    ]
    begin = time.perf_counter() - 1_000
    ran = CliRunner().invoke(cli, [*words, "--json"], obj=begin)
    assert 1_000 < json.loads(ran.stdout)["seconds"] < 2_000


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--eps", "-1"), 2, "Error: --eps -1.0 is not"),
        (("--eps", "0.1", "--metric", "l2"), 2, "(did you mean 'euclidean'?)"),
        (("--eps", "0.1", "--on", "x,z"), 2, "--on names 'z', which is not a column"),
        (("--eps", "radius"), 2, "is neither a number nor a column. Use"),
        (("--epsilon", "1"), 2, "No such option"),
        ((), 2, "Missing option '--eps'"),
        (
            ("--eps", "0.1", "--memory-limit", "much"),
            2,
            "'much' is not a memory size; use one such as '4 GB'",
        ),
        pytest.param(
            ("--eps", "0.1", "--backend", "cudf"),
            1,
            "GPUs need 'dask-simjoin[cuda13]', which",
            marks=pytest.mark.skipif(
                bool(find_spec("dask_cudf")), reason="it is installed"
            ),
        ),
        (("--eps", "0.1", "--id", "one"), 3, "ids in column 'one' are not unique"),
        (("--eps", "2", "--pairs", "both"), 4, "raise the limit"),
    ],
)
def test_what_is_refused(points, tmp_path, words, code, text):
    points.assign(one=1).to_csv("t.csv", index=False)
    before = sorted(tmp_path.iterdir())
    on = () if "--on" in words else ("--on", "x,y")
    with dask.config.set({"simjoin.result-limit": 10_000}):
        ran = run(
            "self-join", "t.csv", *words, *on, *ON[2:], "-o", "out.csv", code=code
        )
    assert text in ran.stderr
    assert ran.stderr.count("Error: ") == 1 and ran.stdout == ""
    assert sorted(tmp_path.iterdir()) == before
    assert code in CODES


def test_a_word_of_an_option_is_no_table(points):
    ran = run("count-pairs", "points", "--eps", "1", "--on", "x", "y", code=2)
    text = "Error: y cannot be read: no such file or folder (If it belongs to"
    assert text in ran.stderr
    assert "--on lat,lon" in ran.stderr


def test_large_plans_are_asked_about(points, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "LARGE_BYTES", 10)
    words = "self-join", "points", "--eps", "0.1", *ON, "-o", "out.csv"
    assert "Add --yes to compute it" in run(*words, code=5).stderr
    assert not (tmp_path / "out.csv").exists()
    run(*words, "--yes")
    run("counts", "points", "--eps", "0.1", *ON, "-o", "rows.csv")  # makes no pairs


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt, 130), (OSError("the disk is full"), 1)]
)
@pytest.mark.parametrize("step", ["write", "finish"])
def test_what_is_stopped_leaves_nothing(
    points, tmp_path, monkeypatch, error, code, step
):
    does = getattr(OutputWriter, step)

    def stopped(self, *args):
        if step == "write":
            does(self, *args)
        raise error

    monkeypatch.setattr(OutputWriter, step, stopped)
    (tmp_path / "out.csv").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    run(
        "self-join",
        "points",
        "--eps",
        "0.1",
        *ON,
        "-o",
        "out.csv",
        "--overwrite",
        code=code,
    )
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "out.csv").read_text() == "mine"


def test_a_task_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{k},{k}" for k in range(30_000)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *rows, "0,none"]))
    ran = run("count-pairs", "t.csv", "--eps", "1", "--on", "x,y", "-q", code=3)
    assert "t.csv, line 30002: column 'y' has 'none', which is no" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_cluster_that_is_there(points, two_workers):
    where = ("--on", "x,y", "--scheduler", two_workers.scheduler_address)
    ran = run(
        "self-join", "points", "--eps", "0.1", *where, "-o", "pairs.csv", "--json"
    )
    pd.testing.assert_frame_equal(in_order(pd.read_csv("pairs.csv")), pairs_of(points))
    assert json.loads(ran.stdout)["command"] == "self-join"


@pytest.mark.parametrize("live", every_nth(4, [True, False]))
def test_progress_tells_tasks_and_rows(points, monkeypatch, live):
    monkeypatch.setattr(running, "_live", lambda: live)
    monkeypatch.setattr(running, "LINE_SECONDS", 0.0)
    words = (
        "--eps",
        "0.1",
        "--on",
        "x,y",
        "--scheduler",
        "synchronous",
        "--blocksize",
        "200",
        "-o",
        "pairs/",
    )
    told = run("self-join", "points", *words).stderr
    rows = len(pairs_of(points))
    assert "planning" in told and "joining" in told
    assert re.search(rf"\b{rows:,} rows, [\d,]+/s", told)
    tasks = [
        tuple(map(int, found))
        for found in re.findall(r"(\d+)(?:/| of )(\d+) tasks", told)
    ]
    assert tasks[-1][0] == tasks[-1][1] > 1
    assert " left" in told


def test_compile_prints_what_it_took():
    words = "compile", "--verbs", "count_pairs", "--dims", "2"
    assert "count_pairs     2" in run(*words).stdout
    assert json.loads(run(*words, "--json").stdout)[0]["verb"] == "count_pairs"
    assert (
        "'two' is not a whole number" in run("compile", "--dims", "two", code=2).stderr
    )
    assert (
        "--verbs join_all is not allowed"
        in run("compile", "--verbs", "join_all", code=2).stderr
    )


ALOUD = ON[:-1]
KNN = ("knn", "points", "--k", "3")


@in_turns(
    1,
    output=["out.csv", "out.parquet", "out/"],
    command=every_nth(
        4,
        [
            (("self-join", "points", "--eps", "0.1", *ALOUD), True),
            (
                (
                    "join",
                    "points",
                    "--other",
                    "points",
                    "--eps",
                    "0.01",
                    "--how",
                    "left",
                    *ALOUD,
                ),
                True,
            ),
            ((*KNN, *ALOUD), True),
            ((*KNN, "--other", "points", "--mutual", *ALOUD), True),
            (("counts", "points", "--eps", "0.1", *ALOUD), False),
            (("closest-pairs", "points", "--n", "7", *ALOUD), True),
            (("dedup", "points", "--eps", "0.1", *ALOUD), True),
        ],
    ),
)
def test_written_rows_are_counted(points, command, output):
    """Unless they are the rows of the table in a CSV file."""
    words, known = command
    ran = run(*words, "-o", output, "--json")
    rows = len(
        pd.read_csv(output) if output.endswith("csv") else pd.read_parquet(output)
    )
    told = json.loads(ran.stdout)["rows_written"]
    assert told == (rows if known or not output.endswith("csv") else None)
    of = f" of {len(points)}" if words[0] == "dedup" else ""
    size = "" if told is None else f"{rows}{of} rows to "
    assert f"Wrote {size}{output} in " in ran.stderr


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (("strings", "join", "-k", "1", "--matching", "greedy"), 2),
        (("strings", "join", "-k", "1"), 6),
        (("join", "--eps", "2", "--matching", "greedy"), 2),
        (("join", "--eps", "2", "--matching", "greedy", "--how", "outer"), 4),
        (("join", "--eps", "0", "--how", "outer"), 6),
        (("join", "--eps", "0", "--how", "right"), 3),
        (("join", "--eps", "2", "--how", "leftsemi"), 2),
        (("join", "--eps", "2", "--how", "leftanti"), 1),
        (("knn", "-k", "1", "--mutual"), 2),
        (("closest-pairs", "--n", "2"), 2),
    ],
)
@pytest.mark.parametrize("output", ["o.csv", "o.parquet"])
def test_reports_have_the_rows_of_the_result(words, rows, output, folder):
    """Joins may find more pairs, or fewer, than they write."""
    left, right = ["anna", "anna", "bob"], ["anna", "anno", "anni"]
    pd.DataFrame({"t": left, "x": [0, 1, 90]}).to_csv("l.csv", index=False)
    pd.DataFrame({"t": right, "x": [0.5, 2.5, 50]}).to_csv("r.csv", index=False)
    n, on = (2, "t") if words[0] == "strings" else (1, "x")
    tables = "l.csv", "--other", "r.csv", "--on", on
    done = run(*words[:n], *tables, *words[n:], "-o", output, "--json", "-q")
    told = json.loads(done.stdout)
    read = pd.read_csv if output == "o.csv" else pd.read_parquet
    assert told["rows_written"] == told["report"]["rows"] == len(read(output)) == rows


@pytest.mark.parametrize("compiled", [True, False])
def test_time_to_compile_is_mentioned(points, compiled, monkeypatch):
    monkeypatch.setattr(commands, "compiled_here", lambda: compiled)
    how = "--on", "x,y", "--scheduler", "synchronous", "-o", "o.csv"
    ran = run("counts", "points", "--eps", "0.1", *how)
    part = ", part of it to compile kernels" * compiled
    assert re.search(rf"Wrote o\.csv in \d+\.\d s{part}\.\n$", ran.stderr)


@pytest.mark.slow
def test_columns_with_different_names_in_two_tables(points):
    one = pd.DataFrame({"x": [0.0, 1, 2, 3], "y": [0.0, 1, 2, 3], "a=b": [7, 8, 9, 9]})
    one["s"] = [1, 1, 2, 2]
    two = one.rename(columns={"y": "z=w", "s": "u"})
    one.to_csv("one.csv", index=False)
    two.to_csv("two.csv", index=False)
    conditions = "--by", "a=b", "--within", "y=z=w=0..1", "--different", "s=u"
    words = "join", "one.csv", "--other", "two.csv", "--eps", "1", "--on", "x"
    run(*words, *conditions[:4], "-o", "o.csv")
    found = pd.read_csv("o.csv")
    assert [*zip(found["left"], found["right"], strict=True)] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (2, 3),
        (3, 3),
    ]
    run(*words, *conditions, "-o", "none.csv")
    assert len(pd.read_csv("none.csv")) == 0
    # names with zeros in front stay texts in columns of a pair that the other table has
    one.assign(u="007").to_csv("text.csv", index=False)
    semi = "--by", "s=u", "--how", "leftsemi"
    run("join", "text.csv", *words[2:], *semi, "-o", "semi.csv")
    assert "007" in Path("semi.csv").read_text()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("--within", "y=1"), "first: --within y=NAME=TOLERANCE."),
        (("--by", "y"), "first: --by y=NAME."),
        (("--different", "z"), "first: --different NAME=z."),
        (("--by", "id"), "first: --by id=NAME."),
        (("--by", "y=a"), "In the right table, --by names 'a', which is not a column"),
    ],
)
def test_columns_of_conditions_that_a_table_lacks(points, words, remedy):
    points.rename(columns={"y": "z"}).to_csv("z.csv", index=False)
    points.assign(id=1).to_csv("one.csv", index=False)
    how = "--eps", "1", "--on", "x", *words, "-o", "o.csv"
    said = run("join", "one.csv", "--other", "z.csv", *how, code=2).stderr
    assert remedy in " ".join(said.split())


def test_reports_name_the_verb(points):
    two = ("join", "points", "--other", "points", "--eps", "0.1", "--how", "leftanti")
    told = json.loads(run(*two, "-o", "none.csv", "--json", *ON).stdout)
    assert told["command"] == "join"
    assert told["report"]["title"].startswith("join, eps=0.1")
    words = "strings", "join", "points", "--other", "points", "--on", "name", *ON[2:]
    told = json.loads(run(*words, "--k", "0", "-o", "same.csv", "--json").stdout)
    assert told["command"] == "strings join"
    said = run(*words, "-o", "other.csv", code=2).stderr
    assert (
        "--k 2 for at most 2 edits" in " ".join(said.split())
        and "(" not in said.split("Error")[1]
    )
