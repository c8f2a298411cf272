from dataclasses import replace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

from dask_simjoin.strings.graph import EDIT_STEPS
from dask_simjoin.strings.requests import EditSelfJoinRequest


def test_statistics_depend_on_the_texts_alone():
    meta = pd.DataFrame({"t": ["a"], "g": [1]}).iloc[:0]
    one, other = (EditSelfJoinRequest(on="t", k=k).spec(meta) for k in (1, 2))
    assert EDIT_STEPS.key(one) == EDIT_STEPS.key(other)
    assert EDIT_STEPS.key(one) != EDIT_STEPS.key(replace(one, on=("g",)))
    assert EDIT_STEPS.key(one) != EDIT_STEPS.key(replace(one, code="by=g"))


def frame_of(rows):
    rng = np.random.default_rng(5)
    texts = [
        "".join("abcd"[k] for k in rng.integers(0, 4, rng.integers(2, 12)))
        for _ in range(rows)
    ]
    return pd.DataFrame({"t": texts})


def pairs_of(found):
    return sorted(zip(found["left"].tolist(), found["right"].tolist(), strict=True))


def test_results_do_not_depend_on_blocks_and_partitions():
    frame = frame_of(300)
    want = pairs_of(frame.simjoin.edit_self_join("t", 2))
    for partitions, blocksize in ((1, 5000), (4, 5000), (3, None)):
        lazy = dd.from_pandas(frame, npartitions=partitions)
        found = lazy.simjoin.edit_self_join("t", 2, blocksize=blocksize)
        assert pairs_of(found.compute()) == want
    assert found.npartitions >= 1


def test_values_come_back_to_the_partitions_of_the_frame():
    frame = frame_of(200)
    lazy = dd.from_pandas(frame, npartitions=3)
    counts = lazy.simjoin.edit_neighbor_counts("t", 1, blocksize=3000)
    marks = lazy.simjoin.edit_near_duplicated("t", 1, blocksize=3000)
    assert counts.npartitions == 3
    with dask.config.set(scheduler="threads"):
        counts, marks = dask.compute(counts, marks)
    pd.testing.assert_series_equal(counts, frame.simjoin.edit_neighbor_counts("t", 1))
    pd.testing.assert_series_equal(marks, frame.simjoin.edit_near_duplicated("t", 1))
