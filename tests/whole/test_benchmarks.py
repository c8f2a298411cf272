"""The benchmarks run: what they measure is read by hand."""

import argparse
import ast
import gc
import importlib.util
import json
import re
import runpy
import shlex
import subprocess
import sys

import pytest

from benchmarks.tables import TABLES
from dask_simjoin.engine.gpu.sources import source
from tests.support.paths import ROOT


def run(monkeypatch, module, *arguments):
    """Run a module as a program, in this process: most of the time would go into
    imports.
    """
    monkeypatch.setattr(sys, "argv", [module, *map(str, arguments)])
    if arguments:
        # a test may have imported it
        program = f"{module}.{arguments[0]}"
        monkeypatch.delitem(sys.modules, program, raising=False)
    # before each measurement; with the objects of all tests, a collection takes 0.2 s
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code
    return None


PROGRAMS = [
    "cpu.front",
    "gpu.front",
    "papers.intervals",
    "cpu.joins",
    "cpu.two_tables",
    "cpu.nearest",
    "cpu.trees",
    "cpu.sphere",
    "cpu.keep",
    "cpu.gates",
    "cpu.formulas",
    "cpu.clusters",
    "cpu.dense_clusters",
    "cpu.sets",
    "cpu.sets_peers",
    "cpu.several",
    "cpu.ablation",
    "cpu.growing",
    "cpu.verifying",
    "cpu.plan_intervals",
    "cpu.strings",
    "cpu.errors",
    "dask.overhead",
    "dask.growth",
    "dask.coverage",
    "papers",
    "papers.semantic",
    "dask.road",
    "dask.small",
    "dask.partitions",
    "dask.choices",
    "dask.balance",
    "dask.memory",
    "dask.simulate",
    "dask.graphs",
    "dask.sets_out_of_core",
    "dask.growing_out_of_core",
    "dask.visits",
]


@pytest.mark.slow
@pytest.mark.processes
def test_all_ways_find_the_same_pairs(tmp_path):
    found = tmp_path / "found.json"
    arguments = [
        "--quick",
        "--rows",
        "expo16d",
        "--repeat",
        "1",
        "--output",
        found,
        "--peers",
    ]
    command = [sys.executable, "-m", "benchmarks", "cpu.joins", *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    tools = json.loads(found.read_text())["rows"]["expo16d"]["tools"]
    assert {name for name, tool in tools.items() if "median" in tool} == {
        "engine",
        "pandas",
        "dask",
    }
    assert len({tuple(tool["pairs"]) for tool in tools.values()}) == 1


@pytest.mark.slow
@pytest.mark.processes
def test_what_asv_measures_runs():
    program = """
from benchmarks.regressions import verbs
for kind in (verbs.Points, verbs.Places, verbs.Embeddings):
    for one in getattr(kind, "params", [None])[-1:]:
        asked = [] if one is None else [one]
        object = kind()
        object.setup(*asked)
        for name in vars(kind):
            if name.startswith(("time_", "peakmem_")):
                getattr(object, name)(*asked)
                print(name)
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert {"time_self_join", "peakmem_self_join", "time_dbscan", "time_cosine"} < set(
        run.stdout.split()
    )


@pytest.mark.slow
def test_intervals_hold_the_truth(tmp_path, monkeypatch):
    found = tmp_path / "found.json"
    arguments = ["--sets", "unif2d", "repeated", "--scale", 0.2, "--output", found]
    assert not run(monkeypatch, "benchmarks.dask.coverage", *arguments)
    whole = json.loads(found.read_text())["summary"][0]
    assert whole["number"] >= 40
    assert whole["held"] >= 0.9 * whole["number"]


@pytest.mark.slow
def test_counted_pairs_are_exact_and_intervals_hold_them(tmp_path, monkeypatch):
    found = tmp_path / "found.json"
    arguments = ["--settings", 21, "--seed", 3, "--output", found]
    assert not run(monkeypatch, "benchmarks", "cpu.plan_intervals", *arguments)
    counted, estimated = json.loads(found.read_text())["summary"][:2]
    assert (counted["settings"], estimated["settings"]) == ("counted", "estimated")
    assert counted["number"] == counted["held"] > 0
    assert counted["median high / low"] == 1
    assert estimated["held"] >= 0.8 * estimated["number"] > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_say_what_they_are_for(name, monkeypatch, capsys):
    assert not run(monkeypatch, "benchmarks", name, "--help")
    assert capsys.readouterr().out.split()[:5] == [
        "usage:",
        "python",
        "-m",
        "benchmarks",
        name,
    ]


def test_the_list_names_every_benchmark(monkeypatch, capsys):
    assert not run(monkeypatch, "benchmarks")
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} > set(
        PROGRAMS
    )
    assert "no benchmark is called 'cpu.nothing'" in run(
        monkeypatch, "benchmarks", "cpu.nothing"
    )


def test_what_the_ablation_replaces_is_in_the_kernels():
    """It cannot be imported without CuPy."""
    program = ast.parse((ROOT / "benchmarks" / "gpu" / "ablation.py").read_text())
    patches = {
        node.target.id: ast.literal_eval(node.value)
        for node in program.body
        if isinstance(node, ast.AnnAssign) and node.target.id in ("PLAIN", "CANDIDATES")
    }
    kernels = [source(name) for name in ("vectors", "tensor_hopper", "tiles")]
    assert len(patches) == 2
    for old, new in (pair for patch in patches.values() for pair in patch):
        assert old != new and sum(old in text for text in kernels) == 1


@pytest.mark.slow
def test_joins_without_a_part_find_the_same_pairs(tmp_path, monkeypatch):
    found = tmp_path / "found.json"
    arguments = ["--scale", "0.05", "--repeat", "1", "--output", found]
    assert not run(monkeypatch, "benchmarks", "cpu.ablation", *arguments)
    for case in json.loads(found.read_text())["results"]:
        assert case["without"]["nothing"]["pairs"] > 0
        for name, one in case["without"].items():
            assert "float64" in name or one["false"] == one["missed"] == 0


def test_joins_are_simulated(tmp_path, monkeypatch):
    """More workers take less time, as long as there is work for them; bytes move where
    there are several.
    """
    found = tmp_path / "found.json"
    arguments = [
        "--jobs",
        "uniform 2-D",
        "--gpus",
        1,
        8,
        "--cores",
        1,
        16,
        "--rows",
        20_000_000,
        "--output",
        found,
    ]
    assert not run(monkeypatch, "benchmarks", "dask.simulate", *arguments)
    told = {one["machine"]: one for one in json.loads(found.read_text())["simulated"]}
    assert set(told) == {"1 GPUs", "8 GPUs", "1 cores", "16 cores"}
    assert all(
        one["seconds"] >= one["steps"]["joining"] > 0 and one["tasks"] > 1
        for one in told.values()
    )
    assert told["1 cores"]["GB moved"] == 0 < told["16 cores"]["GB moved"]


@pytest.mark.slow
def test_the_papers_are_told_without_a_gpu(tmp_path, monkeypatch, capsys):
    found = tmp_path / "found.json"
    figures = ["tab3", "tab5", "fig6", "fig10-11", "fig12"]
    assert not run(
        monkeypatch,
        "benchmarks",
        "papers",
        "--paper",
        "gpu_join",
        "load_imbalance",
        "--model",
        "--quick",
        "--figure",
        *figures,
        "--output",
        found,
    )
    runs = json.loads(found.read_text())["runs"]
    assert {one["figure"] for one in runs} == set(figures)
    tables = [one for one in runs if one["figure"] in ("tab3", "tab5")]
    assert len(tables) == 24 and all(one["published"] > 0 for one in tables)
    by_pattern = {
        (one["data"], one["setting"]): one for one in tables if one["figure"] == "tab3"
    }
    for data in ("Expo2D", "Unif6D"):
        assert (
            by_pattern[data, "lid"]["comparisons"]
            == by_pattern[data, "unicomp"]["comparisons"]
        )
        assert (
            by_pattern[data, "lid"]["comparisons"]
            < by_pattern[data, "full"]["comparisons"]
        )
    sets = {one["sets"]: one for one in runs if one["figure"] == "fig10-11"}
    assert sets["strided"]["speedup"]["32"] > sets["contiguous"]["speedup"]["32"]
    assert sum(sets["strided"]["times"]) == sum(sets["contiguous"]["times"])
    two = next(one for one in runs if one["figure"] == "fig12")
    assert two["bytes"] == 2 * two["bytes of a graph, at most"] == 2_000_000 * 16 * 4
    assert "published" in capsys.readouterr().out


@pytest.mark.slow
def test_lists_and_clusters_are_compared_with_the_packages_own(tmp_path, monkeypatch):
    found = tmp_path / "found.json"
    figures = ["5.8-10", "7b", "6"]
    arguments = [
        "--paper",
        "lss",
        "kmeans",
        "--model",
        "--quick",
        "--figure",
        *figures,
        "--output",
        found,
    ]
    assert not run(monkeypatch, "benchmarks", "papers", *arguments)
    rows = json.loads(found.read_text())["runs"]
    assert {row["figure"] for row in rows} == set(figures) and all(
        row["seconds"] > 0 for row in rows
    )
    assert all(row["found"] == row["pairs"] for row in rows)
    several = [row for row in rows if row["figure"] == "5.8-10"]
    compared = {
        (row["eps"], row["setting"]): row["numbers"]["compared_ratio"]
        for row in several
    }
    for eps in (0.2, 0.6, 1.0):
        assert compared[eps, "one-sided"] < compared[eps, "thesis"]
    lists = {
        row["setting"]: row["numbers"]
        for row in rows
        if row["figure"] == "7b" and row["eps"] == 0.1
    }
    assert lists["lists=d+1"]["interval_mean"] < lists["lists=log"]["interval_mean"]
    assert all(numbers["pairs"] > 0 for numbers in lists.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("lss", "--figure", "nonsense"),
            "'nonsense' is not reproduced; there are 3a, 3b, 5a, 5b, 6, 7a, 7b,",
        ),
        (
            ("sets", "--figure", "tab3", "8b", "8"),
            "'8b', '8' are not reproduced; there are tab3, fig10-cpu,",
        ),
        (
            ("rejoin", "--figure", "T5.1"),
            "'T5.1' is not reproduced; there are T5.3, T5.4",
        ),
    ],
)
def test_figures_that_are_not_there_are_refused(monkeypatch, capsys, words, said):
    assert (
        run(
            monkeypatch, "benchmarks", "papers", "--model", "--quick", "--paper", *words
        )
        == 2
    )
    assert said in capsys.readouterr().err


def test_a_figure_of_which_nothing_ran_says_so(monkeypatch, capsys):
    """What needs a GPU, or other points than were asked for."""
    words = (
        "--model",
        "--quick",
        "--rows",
        "300",
        "--paper",
        "sets",
        "--figure",
        "tab3",
        "fig12",
        "--data",
        "AOL",
    )
    assert not run(monkeypatch, "benchmarks", "papers", *words)
    ran = capsys.readouterr()
    assert (
        "'figure': 'tab3'" in ran.out
        and "fig12: nothing was run, as it needs a GPU" in ran.err
    )
    assert "tab3: nothing" not in ran.err


@pytest.mark.skipif(
    importlib.util.find_spec("cupy") is not None, reason="there may be a GPU"
)
def test_without_a_gpu_the_way_without_one_is_told(monkeypatch, capsys):
    assert run(monkeypatch, "benchmarks", "papers", "--paper", "load_imbalance") == 2
    assert "needs a GPU and CuPy; add --model" in capsys.readouterr().err


COMPILED = """
from dask_simjoin.engine.cpu.kernels import jit
from benchmarks.papers import sets
sets.compiled()
looked, read = [], jit.read
jit.read = lambda name, *made: (looked.append(name), read(name, *made))[1]
runs = list(sets.on_cpu(["AOL", "DBLP"], ["fig10-cpu"], ("0.9", "0.5"), 3000, 1))
print(len(runs), looked)
"""


@pytest.mark.slow
@pytest.mark.processes
def test_nothing_is_compiled_while_joins_of_sets_are_timed():
    ran = subprocess.run(
        [sys.executable, "-c", COMPILED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.stdout == "6 []\n", ran.stdout + ran.stderr


@pytest.mark.slow
def test_the_paper_of_sets_is_told_without_a_gpu(tmp_path, monkeypatch, capsys):
    found = tmp_path / "found.json"
    arguments = [
        "--paper",
        "sets",
        "--model",
        "--quick",
        "--rows",
        300,
        "--data",
        "AOL",
        "DBLP",
        "--output",
        found,
    ]
    assert not run(monkeypatch, "benchmarks", "papers", *arguments)
    runs = json.loads(found.read_text())["runs"]
    assert [one["data"] for one in runs if one["figure"] == "tab3"] == ["AOL", "DBLP"]
    joins = [one for one in runs if one["figure"] == "fig10-cpu"]
    assert {(one["data"], one["threshold"]) for one in joins} == {
        (data, threshold)
        for data in ("AOL", "DBLP")
        for threshold in ("0.9", "0.7", "0.5")
    }
    assert all(one["ratio"][one["winner"]] == 1 for one in joins)
    plain = [one["counters"]["PPJ"]["candidates"] for one in joins]
    assert (
        plain <= [one["counters"]["ALL"]["candidates"] for one in joins]
        and min(plain) > 0
    )
    assert all(
        set(one["seconds"]) == {"ALL", "PPJ", "GRP", "PPJ with bitmaps", "auto"}
        for one in joins
    )
    best = [one for one in runs if one["figure"] == "tab5"]
    assert [sum(one["published"].values()) for one in best] == [7, 7, 7]
    assert [sum(one["best of"].values()) for one in best] == [2, 2, 2]
    assert "published" in capsys.readouterr().out


def test_few_rows_through_dask_are_timed_and_shown(tmp_path, monkeypatch, capsys):
    found = tmp_path / "found.json"
    arguments = [
        "--rows",
        300,
        "--partitions",
        1,
        3,
        "--dims",
        2,
        "--repeat",
        2,
        "--output",
        found,
    ]
    assert not run(monkeypatch, "benchmarks", "dask.small", *arguments)
    report = json.loads(found.read_text())
    assert [one["job"] for one in report["results"][::2]] == [
        "self_join",
        "count_pairs",
        "knn_join",
        "dbscan",
        "dask",
    ]
    for one in report["results"]:
        assert len(one["runs"]["plain"]) == len(one["runs"]["lazy"]) == 2
        assert one["beyond_ms"] == pytest.approx(
            1e3 * (one["lazy"] - one["plain"]), abs=0.02
        )
    assert "beyond" in capsys.readouterr().out
    head, *lines = TABLES["small"](report)
    assert len(lines) == 5 and {len(line) for line in lines} == {len(head)} == {6}
    assert lines[0][0] == "300 x 2, `self_join`" and lines[-1][1] == lines[-1][-1] == ""


WRONG_RESULTS = ROOT / "docs" / "benchmarks" / "wrong-results.md"
WRONG = re.findall(r"\| `((?:cpu|gpu)\.[^`]*)` \|$", WRONG_RESULTS.read_text(), re.M)


@pytest.mark.parametrize("command", sorted(set(WRONG)))
def test_commands_of_wrong_results_are_understood(command, monkeypatch):
    name, *options = shlex.split(command)
    if name.startswith("gpu."):
        pytest.importorskip("cudf")
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser, *given):
        parse(parser, *given)
        raise SystemExit("parsed")

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    assert run(monkeypatch, "benchmarks", name, *options) == "parsed"


def test_each_tool_with_wrong_results_has_a_command():
    lines = WRONG_RESULTS.read_text().count("\n| ")
    assert len(WRONG) == lines - 1 > 20  # one line is the header
