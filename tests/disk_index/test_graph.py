"""Lazy frames of an index: joins with other frames, and only the columns that are asked
for.
"""

import dask.dataframe as dd
import numpy as np
import pytest

from dask_simjoin.disk_index import changes as joins
from dask_simjoin.disk_index.changes import PairChanges
from tests.disk_index.test_changes import change, grid
from tests.support.oracle import distances
from tests.support.stored import Stored

pytestmark = pytest.mark.usefixtures("in_this_thread")


def test_pairs_with_another_frame(tmp_path, small_tasks):
    random = np.random.default_rng(1)
    x, y = grid(random, 300, 2), grid(random, 90, 2)
    stored = Stored(tmp_path, x, 0.5)
    frame = stored.frame(y, np.arange(90), 1)[["c1", "id", "c0"]]
    for eps in (0.5, 1.5):
        pairs = joins.pairs_with(dd.from_pandas(frame, 3), stored.first(), eps, True)
        found = pairs.compute()
        away = distances(y, x)
        expected = {
            (10**6 - 7 * i, 10**6 - 7 * j) for i, j in np.argwhere(away <= eps).tolist()
        }
        assert len(found) == len(expected)
        assert {*zip(found["left"], found["right"], strict=True)} == expected
        assert (
            list(found.columns)
            == ["left", "right", "distance", "kept_right"]
            == list(pairs.columns)
        )


def test_columns_that_are_not_asked_for_are_not_made(tmp_path):
    stored, *_ = change(tmp_path, lambda random, n: grid(random, n, 2), 1.0)
    added = PairChanges(stored.delta(), True).added
    assert list(added["distance"].to_frame().optimize().compute().columns) == [
        "distance"
    ]
    assert added["left"].compute().tolist() == added.compute()["left"].tolist()
