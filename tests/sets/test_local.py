"""Plans and profiles of joins of sets."""

import dask.dataframe as dd
import pytest

from dask_simjoin.sets.methods import CHOICES, METHODS

HOW = {"on": "text", "threshold": 0.7, "tokenizer": "whitespace"}


@pytest.mark.parametrize("method", CHOICES)
def test_profiles_count_what_a_method_does(frame, method):
    found = frame.simjoin.set_profile(**HOW, method=method)
    truth = frame.simjoin.count_set_pairs(**HOW)
    numbers = found.numbers
    distinct = {frozenset(text.split()) for text in frame["text"]}
    assert numbers["sets"] == len(distinct)
    assert numbers["row_pairs"] == truth
    assert numbers["candidates"] >= numbers["verified"] >= numbers["pairs"] > 0
    assert set(found.seconds) == {"tokens", "encode", "join"}
    assert found.method == method and found.rows == 4000
    assert repr(found).startswith("Profile of a self-join of sets\n")
    assert "candidates" in found.to_frame().index and found.svg().startswith("<svg")


def test_a_profile_of_a_lazy_frame_with_options(frame):
    ddf = dd.from_pandas(frame, npartitions=2)
    found = ddf.simjoin.set_profile(**HOW, method=METHODS["ppjoin"])
    assert found.numbers == frame.simjoin.set_profile(**HOW, method="ppjoin").numbers
