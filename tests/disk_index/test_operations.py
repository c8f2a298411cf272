"""Two writers at random, beside a vacuum; 10,000 operations: python -m
tests.checks.index_operations.
"""

import subprocess
import sys

import pytest

from tests.checks.index_operations import run
from tests.support.paths import ROOT
from tests.support.profiles import chosen, everything


@pytest.mark.processes
@pytest.mark.parametrize("store_pairs", chosen([False, True], [True]))
def test_what_writers_were_told_is_there(store_pairs):
    counts = run(30 if everything() else 20, 7, store_pairs, keep=3)
    assert counts["versions read"] and counts["vacuums"] and counts["versions"] > 5


@pytest.mark.slow
@pytest.mark.processes
def test_what_writers_were_told_is_on_the_store():
    """The parts of it run in other processes: a fork of this one could not reach a
    store.
    """
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    script = "tests.checks.index_operations"
    command = [
        sys.executable,
        "-m",
        script,
        "--s3",
        "--operations",
        "16",
        "--each",
        "16",
        "--seed",
        "7",
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "16 operations" in ran.stdout and "'vacuums'" in ran.stdout
