"""What plans expect of the disk."""

from types import SimpleNamespace

import numpy as np
import pytest

from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.disk import PARQUET_BYTE, SPILL_BYTE, expect_disk

GB = 2**30


def all_meet(number, rows):
    """Chunks each of which meets each."""
    visited = float(number * rows + number * (number - 1) * rows)
    return SimpleNamespace(
        rows=np.full(number, float(rows)), visits=(number * (number + 1) // 2, visited), method=None
    )


def alone(number, rows, method=None):
    """Chunks each of which meets itself."""
    return SimpleNamespace(
        rows=np.full(number, float(rows)), visits=(number, float(number * rows)), method=method
    )


def workers(limit, number=2, itself=0.3 * GB):
    return Resources(number, round(limit - itself), True, round(limit), workers=number)


def test_chunks_that_fit_are_not_spilled():
    for chunks in (all_meet(20, 10**6), alone(20, 10**6)):
        assert expect_disk(chunks, 24, 0.0, 1, workers(4 * GB)).spilled == 0


def test_chunks_that_do_not_fit_are_spilled_as_often_as_they_are_joined():
    small = workers(0.65 * GB)
    often, once = (
        expect_disk(chunks, 24, 0.0, 1, small) for chunks in (all_meet(20, 10**6), alone(20, 10**6))
    )
    assert often.spilled > 10 * once.spilled > 0
    assert often.spilling == pytest.approx(1e-9 * SPILL_BYTE * often.spilled / 2)
    # as often as each chunk meets one, and no more
    assert often.spilled <= 2 * 24 * all_meet(20, 10**6).visits[1]
    assert expect_disk(all_meet(20, 10**6), 24, 0.0, 3, small).spilled == pytest.approx(3 * often.spilled)


def test_rows_are_shuffled_through_the_disk_where_workers_have_no_room_for_them():
    told = [
        expect_disk(alone(20, 10**6, method), 24, 0.0, 1, workers(limit))
        for method in ("p2p", "tasks", None)
        for limit in (0.65 * GB, 4 * GB)
    ]
    assert told[0].shuffled > 24 * 10**7 and told[0].shuffling > 10 * told[0].spilling > 0
    assert [one.shuffled for one in told[1:]] == [one.shuffling for one in told[1:]] == [0] * 5


def test_time_is_that_of_a_large_join_that_was_measured():
    """Shuffled, joined and written in 133 to 148 s."""
    have = Resources(2, 700_000_000 - 300 * 2**20, True, 700_000_000, workers=2)
    disk = expect_disk(alone(128, 911_458, "p2p"), 24, 16 * 178e6, 1, have)
    assert 80 < disk.shuffling < 110 and disk.spilling + disk.writing < 10


def test_the_less_memory_the_more_is_spilled():
    limits = np.linspace(0.4, 2, 20) * GB
    spilled = [expect_disk(all_meet(20, 10**6), 24, 0.0, 1, workers(limit)).spilled for limit in limits]
    assert spilled == sorted(spilled, reverse=True) and spilled[0] > spilled[8] > spilled[-1] == 0


def test_pairs_are_written_by_all_threads_and_nothing_is_spilled_without_workers():
    one, four = (expect_disk(alone(4, 1000), 24, 1e9, 1, Resources(threads)) for threads in (1, 4))
    assert one.writing == pytest.approx(PARQUET_BYTE) == 4 * four.writing
    assert one.spilled == one.spilling == 0


def test_nothing_is_said_of_gpus():
    have = Resources(2, 2**30, True, 2**31, gpu=True, workers=2)
    assert expect_disk(all_meet(20, 10**6), 24, 1e9, 1, have).writing == 0
