"""Parts of snapshots: which row groups a task reads, and what it is told of deletions
and versions.
"""

from pathlib import Path

import numpy as np
import pytest

from dask_simjoin.disk_index.types import RowGroups, Snapshot


def groups(file, group, rows, oldest, newest):
    rows = np.array(rows)
    starts = np.zeros(len(rows), int)
    for one in set(file):
        own = np.flatnonzero(np.array(file) == one)
        starts[own] = np.cumsum(rows[own]) - rows[own]
    box = np.zeros((len(rows), 1))
    return RowGroups(
        np.array(file),
        np.array(group),
        starts,
        rows,
        np.array(oldest),
        np.array(newest),
        box,
        box + 1,
    )


@pytest.fixture
def snapshot():
    """File a with groups of 10, 10, 5 rows, and b with 8 and 4; the 13th row of a is
    left out.
    """
    every = groups(
        [0, 0, 0, 1, 1],
        [0, 1, 2, 0, 1],
        [10, 10, 5, 8, 4],
        [1, 1, 1, 2, 3],
        [1, 1, 2, 2, 3],
    )
    return Snapshot(
        Path("somewhere"),
        None,
        "pandas",
        ("a", "b"),
        every,
        {0: np.array([12])},
        False,
        (0, 2),
        36,
        ("gone",),
    )


def test_a_part_names_its_groups_by_files_in_their_order(snapshot):
    part = snapshot.part([3, 1, 0])
    assert (
        part.pieces == (("a", (0, 1)), ("b", (0,)))
        and part.library == "pandas"
        and not part.only_listed
    )


@pytest.mark.parametrize(
    ("which", "told"),
    [([0], ()), ([1], ("gone",)), ([0, 2, 3], ()), ([3, 1], ("gone",))],
)
def test_files_of_deletions_are_told_only_where_they_count(snapshot, which, told):
    assert snapshot.part(which).deleted == told


@pytest.mark.parametrize(
    ("which", "versions"), [([0, 1], None), ([2, 3], None), ([3, 4], (0, 2))]
)
def test_versions_are_told_only_where_some_rows_are_of_others(
    snapshot, which, versions
):
    assert snapshot.part(which).versions == versions


def test_some_groups_have_at_most_their_rows(snapshot):
    assert (
        snapshot.only(np.array([2, 4])).rows == 9
        and len(snapshot.only(np.array([2, 4])).groups) == 2
    )
    assert snapshot.only(np.arange(5)).rows == 36  # of 37, one of which is left out
