"""What a plan of a join of sets says."""

import dask.dataframe as dd
import pytest


def test_a_plan_of_two_tables(frame):
    one, other = frame.iloc[:150], frame.iloc[100:300].rename(columns={"text": "t"})
    how = {
        "threshold": 0.7,
        "tokenizer": "whitespace",
        "left_on": "text",
        "right_on": "t",
    }
    truth = len(one.simjoin.set_join(other, **how))
    for some in (one, dd.from_pandas(one, npartitions=2)):
        plan = some.simjoin.set_plan(other=other, **how)
        assert plan.pairs == truth and "join of two tables" in repr(plan)
        assert plan.to_frame()["pairs"].sum() == pytest.approx(truth)
