"""One verb measures joins of distances, of sets and of texts."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import OptionTypeError


def test_options_of_another_join_are_refused():
    frame = pd.DataFrame({"c0": np.arange(5.0)})
    with pytest.raises(OptionTypeError, match="not for profiles of distances"):
        frame.simjoin.profile(0.3, similarity="jaccard")
    with pytest.raises(OptionTypeError, match=r"eps=0\.3 is not for profiles of sets"):
        frame.simjoin.profile(0.3, threshold=0.5, on="c0")
    with pytest.raises(
        OptionTypeError, match="on= is missing: name the column of sets"
    ):
        frame.simjoin.profile(threshold=0.5)


@pytest.mark.parametrize("dtype", [object, "string"])
def test_columns_of_texts_are_recognized(dtype):
    frame = pd.DataFrame({"t": pd.Series(["ab", "ac", "xyz", None], dtype=dtype)})
    for given in ({"k": 1}, {"similarity": 0.5}):
        found = frame.simjoin.profile(on="t", **given)
        assert found.numbers["pairs"] == 1
        assert str(found).startswith("Profile of a self-join by edit distance")
    lists = pd.DataFrame({"x": [[0.0, 1.0], [0.0, 2.0], [5.0, 5.0]]})
    assert lists.simjoin.profile(on="x", k=1).numbers["neighbors"] == 3


def test_one_vocabulary():
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0], "t": ["ab", "ac", "x"]})
    frame["s"] = [["a", "b"], ["a"], ["c"]]
    for given in (
        {"eps": 1.0, "on": "x", "method": "tiles"},
        {"on": "s", "threshold": 0.5},
        {"on": "t", "k": 1},
    ):
        found = frame.simjoin.profile(**given)
        assert found.numbers["pairs"] == 1
        assert {"candidates", "compared_ratio"} <= set(found.numbers), given
        assert {"index", "join"} < set(found.seconds)
