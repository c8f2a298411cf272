"""Two writers at random, beside a vacuum; 10,000 operations: python -m tests.checks.index_operations."""

import pytest

from tests.checks.index_operations import run


@pytest.mark.processes
@pytest.mark.parametrize("store_pairs", [False, True])
def test_what_writers_were_told_is_there(store_pairs):
    counts = run(30, 7, store_pairs, keep=3)
    assert counts["versions read"] and counts["vacuums"] and counts["versions"] > 5
