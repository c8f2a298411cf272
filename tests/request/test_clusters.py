"""Options of clusterings without a distance."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import OptionError
from tests.support.density import SETS
from tests.support.frames import computed
from tests.support.points import frame_of


def test_units():
    frame = pd.DataFrame(SETS["moons"][0][:200], columns=["latitude", "longitude"])
    found, want = (
        frame.simjoin.hdbscan(4, metric="haversine", cluster_selection_epsilon=eps)
        for eps in ("20 km", 20_000)
    )
    pd.testing.assert_frame_equal(found, want)


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_more_rows_near_a_core_row_than_there_are(parts):
    """As scikit-learn, by rows that take part; as many as a cluster has at least are
    not asked for.
    """
    frame = frame_of(np.arange(12.0).reshape(6, 2)).assign(z=[np.nan, *range(5)])
    data = dd.from_pandas(frame, npartitions=parts) if parts else frame
    how = {"dropna": True, "on": list(frame.columns)}
    for verb, least in (("spanning_tree", {}), ("hdbscan", {"min_cluster_size": 2})):
        ask = getattr(data.simjoin, verb)
        with pytest.raises(
            OptionError,
            match=r"min_samples=6 is more than the 5 rows with coord.*most 5",
        ):
            computed(ask(min_samples=6, **least, **how))
        assert len(computed(ask(min_samples=5, **least, **how))) == (
            4 if verb == "spanning_tree" else 6
        )
    assert computed(data.simjoin.hdbscan(9, **how))["label"].tolist() == [-1] * 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"min_cluster_size": 1},
            r"min_cluster_size=1 is not allowed; use a whole number >= 2",
        ),
        ({"min_samples": 0}, r"min_samples=0 is not allowed"),
        (
            {"max_cluster_size": 4},
            r"max_cluster_size=4 is less than min_cluster_size=5",
        ),
        ({"cluster_selection_method": "dbscan"}, r"use one of 'eom', 'leaf'"),
        (
            {"cluster_selection_epsilon": -1.0},
            r"cluster_selection_epsilon=-1.0 is not allowed",
        ),
        ({"allow_single_cluster": 1}, r"use True or False"),
    ],
)
def test_options(given, message):
    with pytest.raises((OptionError, TypeError), match=message):
        frame_of(np.zeros((9, 2))).simjoin.hdbscan(**given)
