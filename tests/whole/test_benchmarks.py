"""The benchmarks run: what they measure is read by hand."""

import json
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.processes


def run(*arguments):
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


PROGRAMS = [
    "cpu.joins", "cpu.two_tables", "cpu.nearest", "cpu.sphere", "cpu.keep", "cpu.clusters",
    "dask.overhead", "dask.growth", "dask.coverage",
]  # fmt: skip

HELP = """
import contextlib, runpy, sys

for name in sys.argv[1:]:
    sys.argv = [name, "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
"""
"""Shows the help of programs, in one process: most of the time goes into imports."""


@pytest.mark.slow
def test_all_ways_find_the_same_pairs(tmp_path):
    found = tmp_path / "found.json"
    ran = run(
        "benchmarks", "cpu.joins", "--quick", "--rows", "expo16d", "--repeat", 1, "--output", found, "--peers"
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    tools = json.loads(found.read_text())["rows"]["expo16d"]["tools"]
    assert {name for name, tool in tools.items() if "median" in tool} == {"engine", "pandas", "dask"}
    assert len({tuple(tool["pairs"]) for tool in tools.values()}) == 1


def test_intervals_hold_the_truth(tmp_path):
    found = tmp_path / "found.json"
    ran = run("benchmarks.dask.coverage", "--sets", "unif2d", "repeated", "--scale", 0.2, "--output", found)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    whole = json.loads(found.read_text())["summary"][0]
    assert whole["number"] >= 40
    assert whole["held"] >= 0.9 * whole["number"]


def test_they_say_what_they_are_for():
    command = [sys.executable, "-c", HELP, *PROGRAMS]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    usages = [line.split()[:5] for line in ran.stdout.splitlines() if line.startswith("usage:")]
    assert usages == [["usage:", "python", "-m", "benchmarks", name] for name in PROGRAMS], ran.stdout


def test_the_list_names_every_benchmark():
    listed = {line.split()[0] for line in run("benchmarks").stdout.splitlines()}
    assert listed > set(PROGRAMS)
    assert run("benchmarks", "cpu.nothing").returncode
