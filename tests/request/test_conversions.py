"""Messages give code that converts columns to numbers, and it works."""

import re
from decimal import Decimal

import pandas as pd
import pytest

import dask_simjoin  # noqa: F401
from dask_simjoin.errors import SimJoinError
from dask_simjoin.request.conversions import as_floats, as_numbers, if_numbers


@pytest.mark.parametrize("name", ["x", "it's", ("a", 1), 0])
def test_code_runs_for_any_name(name):
    df = pd.DataFrame({name: pd.Series([Decimal("0.5"), Decimal(2)], dtype=object)})
    exec(as_floats(name), {"df": df})
    assert df[name].tolist() == [0.5, 2.0] and df[name].dtype == "float64"
    df[name] = ["0.5", "1,5"]
    exec(as_numbers(name).partition(". This")[0], {"df": df, "pd": pd})
    assert df[name].iloc[0] == 0.5 and df[name].isna().tolist() == [False, True]
    assert as_floats(name) in if_numbers(name)


def test_all_errors_about_objects_of_numbers_give_the_same_advice():
    objects = pd.DataFrame({"x": pd.Series([Decimal("0.5"), Decimal(2)], dtype=object)})
    plain = pd.DataFrame({"x": [0.5, 2.0], "y": 0.0})
    calls = (
        lambda: objects.simjoin.count_pairs(1.0, on="x"),
        lambda: objects.simjoin.join(plain, 1.0, on="x"),
        lambda: objects.assign(y=0.0).simjoin.count_pairs(1.0, on="y", within={"x": 1}),
    )
    for call in calls:
        with pytest.raises(SimJoinError, match=re.escape(if_numbers("x"))):
            call()
