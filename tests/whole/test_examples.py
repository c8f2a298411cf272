"""The examples run on little data, without further packages, and find what they should."""

import runpy
import subprocess
import sys

import pytest

from tests.support.paths import EXAMPLES


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        (
            "clusters.py",
            ["--out", "OUT"],
            [
                "45,450 places remain, with one of each group within 100 m",
                "46 places share names in 23 groups; 45,453 places remain",
            ],
        ),
        pytest.param(
            "hdbscan_places.py",
            ["--out", "OUT"],
            [
                "48 clusters, 18,137 places of noise",
                "587 groups of friends within 30,000 m, 17,528 in one",
            ],
            marks=pytest.mark.slow,
        ),
        (
            "analytics.py",
            [],
            ["45,476 places, 80,729 pairs within 5,000 m", "US     17", "CA-US     35"],
        ),
        (
            "near_duplicates.py",
            [],
            [
                "165  groups of 332 rows within 0.05, at most 3 in one",
                " 3,833  rows remain if one of each group",
            ],
        ),
        (
            "quickstart.py",
            ["--output", "OUT"],
            [
                "31,469  pairs within 3,000 m",
                "22  of them have the same name (3 across a border)",
                "1.1 m  Willard (US)",
            ],
        ),
        (
            "near_duplicate_texts.py",
            [],
            [
                "386  pairs with a similarity of at least 0.7",
                "363  groups of 740 texts, at most 4 in one",
            ],
        ),
        ("reading_a_plan.py", [], ["Plan of a self-join, eps=2000.0 m", "15 regions"]),
        (
            "match_places.py",
            [],
            ["38,970 have a town within 100,000 m, 22,888 m on average"],
        ),
    ],
)
def test_example(name, arguments, said, tmp_path, monkeypatch, capsys):
    arguments = [
        str(tmp_path) if argument == "OUT" else argument for argument in arguments
    ]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    shown = capsys.readouterr().out
    assert [line for line in said if line not in shown] == []


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        pytest.param(
            "nightly.py",
            ["--nights", "5"],
            "45,376 places, 80,459 pairs; a full join finds the same pairs: True",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "larger_than_memory.py",
            ["--rows", "6000"],
            "pairs within",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "clusters_larger_than_memory.py",
            ["--rows", "30000"],
            "points of noise",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_example_on_a_cluster(name, arguments, said):
    """In a Python of its own, of which workers are copies."""
    run = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert said in run.stdout
