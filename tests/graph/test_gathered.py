"""All partitions of a result in one: the same as Dask's own concatenation."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (verbs of frames)
from dask_simjoin.graph import gathered as module
from dask_simjoin.graph.gathered import Gathered, gathered
from tests.support.profiles import every_nth, in_turns

FRAME = pd.DataFrame(
    np.random.default_rng(0).uniform(size=(9000, 2)), columns=["x", "y"]
)

JOINS = {
    "pairs": lambda frame, **how: frame.simjoin.self_join(0.02, **how),
    "distances": lambda frame, **how: frame.simjoin.self_join(
        0.02, return_distance=True, **how
    ),
    "left": lambda frame, **how: frame.simjoin.join(frame, 0.002, how="left", **how),
    "nearest": lambda frame, **how: frame.simjoin.knn_join(k=3, **how),
}


def frame_of(ids):
    rows = FRAME.assign(name=[f"n{n}" for n in range(len(FRAME))])
    return rows if ids else FRAME


@in_turns(1, join=every_nth(4, JOINS), ids=[False, True])
def test_all_rows_are_the_concatenated_partitions(join, ids):
    data = dd.from_pandas(frame_of(ids), npartitions=4)
    how = {"id": "name"} if ids else {}
    with dask.config.set(scheduler="threads", num_workers=3):
        lazy = JOINS[join](data, on=["x", "y"], blocksize="40 kB", **how)
        assert lazy.npartitions > 1
        made = lazy.repartition(npartitions=1).optimize(fuse=False)
        assert isinstance(made.expr, Gathered) and made.npartitions == 1
        parts = dask.compute(*lazy.to_delayed())
        pd.testing.assert_frame_equal(lazy.compute(), pd.concat(parts))


def test_dask_gathers_what_is_not_all_of_a_result():
    data = dd.from_pandas(FRAME, npartitions=4)
    lazy = data.simjoin.self_join(0.02, blocksize="40 kB")
    with dask.config.set(scheduler="threads", num_workers=3):
        few = lazy.repartition(npartitions=2).optimize(fuse=False)
        assert few.npartitions == 2 and not isinstance(few.expr, Gathered)
    with dask.config.set(scheduler="synchronous"):
        alone = data.simjoin.self_join(0.021, blocksize="40 kB")
        alone = alone.repartition(npartitions=1).optimize(fuse=False)
        assert not isinstance(alone.expr, Gathered)


def test_partitions_without_rows(monkeypatch):
    rows = pd.DataFrame({"left": [1, 2], "right": [3, 4]})
    assert gathered([rows[:0], rows[:0]], 2).equals(rows[:0])
    found = gathered([rows[:0], rows, rows[:0]], 2)
    pd.testing.assert_frame_equal(found, rows)
    monkeypatch.setattr(module, "concat_partitions", None)
    pd.testing.assert_frame_equal(
        gathered([rows, rows[:0], rows], 2), pd.concat([rows, rows])
    )
