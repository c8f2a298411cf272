"""Partitions of one frame are summarized at once, with the same statistics."""

import itertools

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.planning.partition import summarise, summarise_parts
from dask_simjoin.request.requests import SelfJoinRequest
from tests.support.points import frame_of


@pytest.mark.parametrize("kind", ["float64", "float32", "lists", "with NaN", "wide"])
def test_partitions_of_one_frame_are_summarised_as_each_alone(kind):
    x = np.random.default_rng(0).uniform(size=(90, 20 if kind == "wide" else 2))
    bounds = [0, 40, 40, 41, 90]
    frame = frame_of(x).astype("float32" if kind == "float32" else "float64")
    if kind == "with NaN":
        frame.iloc[50, 1] = np.nan
    if kind == "lists":
        frame = pd.DataFrame({"v": list(x)})
    spec = (
        SelfJoinRequest(eps=0.1).spec(frame)
        if kind != "lists"
        else SelfJoinRequest(0.1, on="v").spec(frame)
    )
    found = summarise_parts(frame, bounds, 7, spec, True)
    for n, (start, stop) in enumerate(itertools.pairwise(bounds)):
        alone = summarise(frame.iloc[start:stop], 7 + n, spec, True, 4)
        for name in (
            "source_rows",
            "bad",
            "inexact",
            "beyond",
            "zero",
            "box",
            "ids",
            "id_bytes",
        ):
            assert getattr(found[n], name) == getattr(alone, name)
        assert found[n].moments.rows == alone.moments.rows == stop - start
        if stop > start and kind != "with NaN":
            np.testing.assert_allclose(
                found[n].moments.squares, alone.moments.squares, rtol=1e-12
            )
        assert (found[n].sample is None) == (alone.sample is None)
        if alone.sample is not None:
            assert np.array_equal(
                found[n].sample.x.reshape(-1), alone.sample.x.reshape(-1)
            )


def test_a_value_that_is_not_a_list_is_found_in_its_partition():
    frame = pd.DataFrame({"v": [[0.0, 1.0], [1.0, 2.0], [3.0, 1.0], 7.0]})
    spec = SelfJoinRequest(0.1, on="v").spec(frame)
    found = summarise_parts(frame, [0, 2, 4], 0, spec, False)
    assert found[0].unlike is None and found[1].unlike is not None
