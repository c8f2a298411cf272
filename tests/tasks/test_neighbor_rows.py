"""Rows of results are made from the states of searches."""

import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from dask_simjoin.tasks import local_nearest, neighbor_rows
from dask_simjoin.tasks.nearest import State
from dask_simjoin.tasks.neighbor_rows import has_neighbor, part_of_rows


def test_rows_that_have_a_neighbor():
    numbers = np.array([[3, -1], [-1, -1], [0, 2]])
    state = State(totals=np.zeros((3, 2)), row_numbers=numbers)
    assert has_neighbor(state).tolist() == [True, False, True]
    none = State(totals=np.zeros((3, 0)), row_numbers=np.zeros((3, 0), np.int64))
    assert has_neighbor(none).tolist() == [False] * 3


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 20])
def test_all_neighbors_of_a_row_are_in_one_part(parts):
    left = np.repeat([5, 1, 9, 2], [3, 1, 4, 2])
    rows = pd.DataFrame({"left": left, "right": np.arange(10)})
    cut = [part_of_rows(rows, n, parts) for n in range(parts)]
    assert pd.concat(cut).equals(rows)
    for one in (5, 1, 9, 2):
        assert sum(one in part["left"].to_numpy() for part in cut) == 1


@pytest.mark.parametrize("keep", [None, ["z"]])
def test_blocks_of_few_neighbors_give_the_same_rows(monkeypatch, keep):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.random((300, 2)), columns=["x", "y"]).assign(z=range(300))
    # some rows have fewer than k neighbors, so the state has gaps
    options = {"k": 4, "max_distance": 0.05, "on": ["x", "y"], "keep": keep}
    want = frame.simjoin.knn_join(**options)
    assert 0 < len(want) < 1200
    monkeypatch.setattr(neighbor_rows, "BATCH", 7)
    monkeypatch.setattr(neighbor_rows, "IN_CACHE", 1)
    pd.testing.assert_frame_equal(frame.simjoin.knn_join(**options), want)


@pytest.mark.parametrize("ids", ["range", "step", "numbers", "short", "texts"])
@pytest.mark.parametrize("far", [None, 0.05])
def test_rows_of_a_gpu_are_those_of_the_host(monkeypatch, ids, far):
    """The function for GPUs, on arrays of NumPy; also with fewer than k neighbors."""
    rng = np.random.default_rng(6)
    frame = pd.DataFrame(rng.random((200, 2)), columns=["x", "y"]).assign(z=range(200))
    labels = {
        "range": pd.RangeIndex(200),
        "step": pd.RangeIndex(5, 605, 3),
        "numbers": rng.permutation(200),
        "short": rng.permutation(200).astype(np.int32),
        "texts": rng.permutation(200).astype(str),
    }
    frame.index = labels[ids]
    options = {"k": 4, "max_distance": far, "on": ["x", "y"], "keep": "z"}
    want = frame.simjoin.knn_join(**options)

    def on_device(query, data, state, spec, like, threads):
        return neighbor_rows.whole_rows_on_device(query, data, state, spec, like)

    monkeypatch.setattr(local_nearest, "whole_rows", on_device)
    pd.testing.assert_frame_equal(frame.simjoin.knn_join(**options), want)
