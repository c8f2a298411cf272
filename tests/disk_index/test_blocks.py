"""Row groups that are compared: those within reach, in parts of even size."""

import numpy as np
import pytest

from dask_simjoin.disk_index import blocks, maintenance
from dask_simjoin.disk_index.blocks import Sizes, all_blocks
from dask_simjoin.disk_index.changes import PairChanges
from dask_simjoin.disk_index.graph import spec_of
from dask_simjoin.disk_index.snapshots import last_version
from tests.disk_index.test_updates import EPS, HOW, rows
from tests.support.stored import Stored

pytestmark = pytest.mark.usefixtures("in_this_thread")


def test_only_row_groups_within_reach_are_read(tmp_path, monkeypatch):
    """Counted where files are read: those with a new row within eps of their box, and
    no others.
    """
    random = np.random.default_rng(0)
    stored = Stored(tmp_path, random.uniform(0, 100, (5000, 2)), 1.0)
    new = random.uniform(40, 43, (30, 2))
    stored.change(new, np.arange(5000, 5030), [])
    delta, read = stored.delta(), []
    found = PairChanges(delta, False)
    assert found.report.row_groups == 79
    lower, upper = (
        side[:, ::-1]
        for side in (delta.unchanged.groups.low, delta.unchanged.groups.high)
    )
    gap = np.maximum(np.maximum(lower[:, None] - new, new - upper[:, None]), 0)
    near = ((gap**2).sum(axis=2) <= 1.0).any(axis=1)
    for part in found.blocks[0].old:
        read += [group for _, groups in part.pieces for group in groups]
    assert sorted(read) == delta.unchanged.groups.group[near].tolist()
    assert found.report.row_groups_read == near.sum() < 8
    assert found.report.rows_read == delta.unchanged.groups.rows[near].sum()
    assert 0 < found.report.bytes_read < 79 * 64 * 48
    assert "row groups read" in repr(found.report)
    assert ">79</td>" in found.report._repr_html_()


def test_rows_are_cut_for_threads_and_for_many_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MIN_PART", 1)
    rows = Stored(
        tmp_path, np.random.default_rng(0).uniform(0, 100, (2000, 2)), 1.0
    ).first()

    def parts(eps, threads, most=10**6):
        return len(
            all_blocks(rows, spec_of(rows, eps, False), Sizes(most, threads, 0)).within
        )

    assert parts(1.0, 1) == 1
    assert parts(1.0, 2) == 4 and 7 <= parts(1.0, 4) <= 8
    assert parts(1.0, 1, 500) >= 4
    monkeypatch.setattr(blocks, "PAIRS_AT_ONCE", 2000 * 64 // 2)
    assert parts(100.0, 1) == 2 and parts(100.0, 2) == 4
    monkeypatch.setattr(blocks, "PAIRS_AT_ONCE", 1)
    assert parts(100.0, 1) == 4 and 7 <= parts(100.0, 2) <= 8


def test_few_row_groups_are_read_for_rows_that_lie_together(tmp_path):
    """The numbers of 10 million rows in 610 row groups, with 32 rows a group."""
    random = np.random.default_rng(1)
    side = 610**0.5
    known = rows(random.uniform(0, side, (32 * 610, 2)))
    index = known.simjoin.index(
        0.01 * side / 32, tmp_path, row_group=32, recluster="never", **HOW
    )
    corner = rows(random.uniform(5, 5 + side * 1e-3**0.5, (200, 2)), 10**6)
    together = index.update(corner)
    assert together.work.row_groups in range(610, 700)
    assert together.work.row_groups_read < 0.03 * together.work.row_groups
    assert together.report.files == 1
    scattered = index.update(rows(random.uniform(0, side, (100, 2)), 2 * 10**6))
    assert scattered.work.row_groups_read < 0.4 * scattered.work.row_groups
    assert scattered.report.files == 1
    many = index.update(rows(random.uniform(0, side, (6000, 2)), 3 * 10**6))
    # more rows than groups
    assert many.work.row_groups_read > 0.99 * many.work.row_groups
    gone = index.delete(range(10**6, 10**6 + 200))
    assert gone.work.deleted == 200
    assert gone.work.row_groups_read < 0.05 * gone.work.row_groups


def test_an_update_of_nothing_near_anything_reads_nothing(tmp_path):
    known = rows(np.random.default_rng(3).uniform(0, 10, (500, 2)))
    index = known.simjoin.index(EPS, tmp_path, row_group=32, **HOW)
    changes = index.update(rows(np.full((3, 2), 1e6), 1000))
    assert (
        changes.work.row_groups_read,
        changes.work.bytes_read,
        changes.work.rows_read,
    ) == (0, 0, 0)
    assert len(changes.added) == 3  # which lie at one place
    assert (
        maintenance.to_rewrite(last_version(tmp_path, "pandas"), 1 << 20) == frozenset()
    )
