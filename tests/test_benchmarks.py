"""The benchmarks run: what they measure is read by hand."""

import json
import subprocess
import sys

import pytest

from tests.support.paths import ROOT


def run(*arguments):
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_all_ways_find_the_same_pairs(tmp_path):
    found = tmp_path / "found.json"
    ran = run("benchmarks", "--quick", "--rows", "expo16d", "--repeat", 1, "--output", found, "--peers")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    tools = json.loads(found.read_text())["rows"]["expo16d"]["tools"]
    assert {name for name, tool in tools.items() if "median" in tool} == {"engine", "pandas", "dask"}
    assert len({tuple(tool["pairs"]) for tool in tools.values()}) == 1


@pytest.mark.parametrize(
    "name", ["two_tables", "nearest", "sphere", "keep", "clusters", "overhead", "growth", "coverage"]
)
def test_it_says_what_it_is_for(name):
    ran = run(f"benchmarks.{name}", "--help")
    assert ran.returncode == 0, ran.stderr
    assert "usage: python -m benchmarks" in ran.stdout


def test_intervals_hold_the_truth(tmp_path):
    found = tmp_path / "found.json"
    ran = run("benchmarks.coverage", "--sets", "unif2d", "repeated", "--scale", 0.2, "--output", found)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    whole = json.loads(found.read_text())["summary"][0]
    assert whole["number"] >= 40
    assert whole["held"] >= 0.9 * whole["number"]
