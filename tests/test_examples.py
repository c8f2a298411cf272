"""The examples that need no further packages run, on little data."""

import subprocess
import sys

import pytest

from tests.support.paths import EXAMPLES


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("larger_than_memory.py", ["--rows", "20000"], "pairs within"),
        ("clusters_larger_than_memory.py", ["--rows", "30000"], "points of noise"),
        ("clusters.py", ["--out", "OUT"], "42 places share names in 21 groups; 45,455 places are kept"),
        ("analytics.py", [], "45,476 places, 82,417 pairs within 0.05 degrees"),
        ("near_duplicates.py", [], "165  groups of 332 rows within 0.05, at most 3 in one"),
        ("match_places.py", [], "38,970 have a town within 100,000 m, 22,888 m on average"),
    ],
)
def test_example(name, arguments, said, tmp_path):
    arguments = [str(tmp_path) if argument == "OUT" else argument for argument in arguments]
    run = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert said in run.stdout
