"""What a plan of a join of sets says."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def frame():
    random = np.random.default_rng(5)
    words = np.array([f"w{n}" for n in range(300)])
    texts = [
        " ".join(words[(random.pareto(1.0, random.integers(1, 12)) % 300).astype(int)]) for _ in range(4000)
    ]
    return pd.DataFrame({"text": texts})


def test_a_plan_of_two_tables(frame):
    one, other = frame.iloc[:150], frame.iloc[100:300].rename(columns={"text": "t"})
    how = {"threshold": 0.7, "tokenizer": "whitespace", "left_on": "text", "right_on": "t"}
    truth = len(one.simjoin.set_join(other, **how))
    for some in (one, dd.from_pandas(one, npartitions=2)):
        plan = some.simjoin.set_plan(other=other, **how)
        assert plan.pairs == truth and "join of two tables" in repr(plan)
        assert plan.to_frame()["pairs"].sum() == pytest.approx(truth)
