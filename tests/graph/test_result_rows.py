"""Reports count the rows of the result, also if later steps drop or add rows of the join."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import dask_simjoin

R = np.random.default_rng(0)
LEFT = pd.DataFrame(R.uniform(0, 4, (120, 2)), columns=["x", "y"])
RIGHT = pd.DataFrame(R.uniform(0, 4, (90, 2)), columns=["x", "y"])
LEFT["t"] = [f"w{n % 40} v{n % 30}" for n in range(len(LEFT))]
RIGHT["t"] = [f"w{n % 45} v{n % 31}" for n in range(len(RIGHT))]
ON = {"on": ["x", "y"]}
WORDS = {"on": "t", "threshold": 0.3, "tokenizer": "words"}


def both():
    return (dd.from_pandas(table, npartitions=3) for table in (LEFT, RIGHT))


@pytest.mark.parametrize(
    ("verb", "how"),
    [
        ("join", {"eps": 0.2, "how": "right", **ON}),
        ("join", {"eps": 0.2, "how": "outer", **ON}),
        ("join", {"eps": 0.4, "matching": "greedy", **ON}),
        ("join", {"eps": 0.4, "matching": "greedy", "how": "outer", **ON}),
        ("knn_join", {"k": 2, "mutual": True, **ON}),
        ("closest_pairs", {"n": 7, **ON}),
        ("set_join", {**WORDS, "matching": "greedy"}),
        ("set_join", {**WORDS, "how": "outer"}),
        ("set_join", {**WORDS, "best": True, "how": "left"}),
        ("edit_join", {"on": "t", "k": 2, "matching": "greedy"}),
        ("edit_join", {"on": "t", "k": 2, "best": True}),
    ],
)
def test_rows_of_the_result_are_counted(verb, how):
    left, right = both()
    other = {"n": how.pop("n"), "other": right} if "n" in how else {"other": right}
    with dask.config.set(scheduler="threads"):
        lazy = getattr(left.simjoin, verb)(**other, **how)
        for _ in range(2):
            rows = len(lazy.compute())
            report = dask_simjoin.report(lazy)
            assert report.rows == rows > 0 and report.done
            assert report.bytes == round(rows * report.plan.pair_bytes)
        kept = lazy.persist()
        assert dask_simjoin.report(kept).rows == rows


def test_the_join_behind_a_result_counts_its_own_rows():
    left, right = both()
    with dask.config.set(scheduler="threads"):
        outer = left.simjoin.join(right, 0.2, how="right", **ON)
        inner = left.simjoin.join(right, 0.2, **ON)
        for lazy in (outer, inner, outer):
            rows = len(lazy.compute())
            assert dask_simjoin.report(lazy).rows == rows
        some = outer.partitions[0].compute()
        report = dask_simjoin.report(outer)
        assert not report.done and report.rows == len(some)


def test_before_the_last_step_no_rows_are_counted():
    left, right = both()
    lazy = left.simjoin.join(right, 0.4, matching="greedy", **ON)
    report = lazy.simjoin.report
    with dask.config.set(scheduler="sync"):
        lazy.optimize().__dask_graph__()
        assert report().rows is None and not report().done
        rows = len(lazy.compute())
    assert report().rows == rows


def test_rows_of_a_cluster_are_counted():
    left, right = both()
    with Client(processes=False, n_workers=1, dashboard_address=None):
        lazy = left.simjoin.join(right, 0.4, matching="greedy", **ON)
        rows = len(lazy.compute())
        report = dask_simjoin.report(lazy)
        assert report.rows == rows and report.done
