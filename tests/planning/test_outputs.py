"""What tasks return, and into how many partitions."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from dask_simjoin.planning.entity_chunks import BY_WORKER
from dask_simjoin.planning.estimate import Estimate
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import (
    most_rows,
    query_slices,
    rows_found,
    shuffle_tasks,
    whole_slices,
)
from dask_simjoin.request.requests import SelfJoinRequest
from tests.support.frames import split
from tests.support.points import frame_of


def test_no_more_partitions_than_pairs():
    x = np.random.default_rng(0).uniform(size=(200, 1))
    pairs = split(frame_of(x), (100,)).simjoin.self_join(2.0, blocksize=1)
    assert pairs.npartitions <= 200 * 201 // 2


class Chunks(NamedTuple):
    """What is asked of chunks here."""

    rows: np.ndarray


def estimate(high):
    none = np.zeros(0)
    return Estimate(
        high / 2,
        high / 4,
        high,
        high.sum(),
        high.sum(),
        high.sum(),
        0,
        False,
        none,
        none,
    )


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize(("pairs", "times"), [("unique", 1), ("both", 2)])
def test_rows_of_block_pairs_are_all_pairs_and_rows_themselves(itself, pairs, times):
    spec = SelfJoinRequest(eps=1.0, pairs=pairs, include_self=itself).spec(
        frame_of(np.zeros((3, 2)))
    )
    blocks = np.array([[0, 0], [0, 1], [1, 1]])
    found = most_rows(
        estimate(np.array([10.0, 20.0, 30.0])),
        Chunks(np.array([100.0, 7.0])),
        blocks,
        spec,
    )
    own = [100.0, 0.0, 7.0] if itself else [0.0] * 3
    assert found.tolist() == [
        times * high + more for high, more in zip((10, 20, 30), own, strict=True)
    ]


def test_partitions_of_the_result_hold_no_more_than_they_may():
    limits = Limits(chunk=10**6, output=1000)
    most = np.array([0.0, 1.0, 10.0, 100.0, 100.5])
    slices = whole_slices(most, 100.0, limits)
    assert slices.tolist() == [1, 1, 1, 10, 11]
    # a row each
    assert whole_slices(most, 1e9, limits).tolist() == [1, 1, 10, 100, 101]
    assert whole_slices(
        np.array([2.0**31 - 2]), 1e-9, replace(limits, gpu=True)
    ).tolist() == [2]


@pytest.mark.parametrize("gpu", [False, True])
def test_work_of_gpus_is_cut_only_if_it_takes_long(gpu):
    spec = SelfJoinRequest(eps=1.0).spec(frame_of(np.zeros((3, 2))))
    limits = replace(Limits(2, 2**36, True, gpu=gpu), output=2**30)
    whole, rows = np.ones(1), 10**7
    for pieces in (1, 6):
        few = query_slices(whole, estimate(whole), 1e3, rows, spec, limits, pieces)
        assert few[0].tolist() == [pieces if gpu else 8] and few[1]


def test_neighbors_of_a_table_with_itself_leave_each_row_out():
    assert (
        rows_found((10,), 3) == 30
        and rows_found((10,), 100) == 90
        and rows_found((0,), 3) == 0
    )
    assert rows_found((10, 4), 100) == 40


@pytest.mark.parametrize(
    ("sources", "chunks", "method", "tasks"),
    [
        (10, 5, BY_WORKER, 5 + 5 * 5),
        (10, 5, "p2p", 20),
        (10, 5, "disk", 15),
        (10, 5, "tasks", 5 + 10 + 25),
    ],
)
def test_tasks_of_shuffles(sources, chunks, method, tasks):
    assert shuffle_tasks(sources, chunks, method) == tasks
    assert shuffle_tasks(1000, 1000, "tasks") > 1000 + 2000 + 2 * 1000  # in two stages
