"""What is resolved of a join: columns that are read, names of the result, and
thresholds.
"""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import OptionError
from dask_simjoin.request.requests import JoinRequest, SelfJoinRequest
from dask_simjoin.request.spec import check_dims, without_ids

FRAME = pd.DataFrame(
    {"key": [1, 2], "x": [0.0, 1.0], "y": [0.0, 1.0], "text": ["a", "b"]}
)


def test_only_columns_of_the_join_are_read():
    spec = SelfJoinRequest(eps=1.0, on=["y", "x"], id="key", keep=["text"]).spec(FRAME)
    assert set(spec.columns) == {"key", "x", "y", "text"} and spec.on == ("y", "x")
    bare = without_ids(SelfJoinRequest(eps=1.0, on=["x"], id="key").spec(FRAME))
    assert bare.id is None and "key" not in bare.columns
    assert spec.kept_left == {"text_left": "text"} and spec.kept_right == {
        "text_right": "text"
    }


@pytest.mark.parametrize(
    ("metric", "p", "norm", "threshold"),
    [
        ("euclidean", 2, 2, 9.0),
        ("manhattan", 2, 1, 3.0),
        ("chebyshev", 2, np.inf, 3.0),
        ("minkowski", 3, 3, 27.0),
    ],
)
def test_thresholds_are_those_of_the_metric(metric, p, norm, threshold):
    more = {"p": p} if metric == "minkowski" else {}
    spec = SelfJoinRequest(eps=3.0, on=["x", "y"], metric=metric, **more).spec(FRAME)
    assert (spec.norm, spec.threshold) == (norm, threshold)
    assert np.isclose(
        spec.measure.distance(np.array([threshold]), np)[0], 3.0, rtol=1e-15
    )


def test_the_score_is_a_column_only_where_it_is_asked_for():
    assert (
        SelfJoinRequest(eps=1.0, on=["x"], return_distance=True).spec(FRAME).score
        == "distance"
    )
    assert SelfJoinRequest(eps=1.0, on=["x"]).spec(FRAME).score is None


def test_two_tables_have_columns_of_their_own():
    right = FRAME.rename(columns={"text": "other"})
    spec = JoinRequest(right, 1.0, on=["x"], keep=["text", "other"]).spec(FRAME, right)
    assert spec.right is spec.other and spec.right.columns != spec.columns
    assert list(spec.kept_left.values()) == ["text"] and list(
        spec.kept_right.values()
    ) == ["other"]


def test_methods_of_few_dimensions_refuse_more():
    wide = pd.DataFrame(np.zeros((2, 5)), columns=list("abcde"))
    check_dims(SelfJoinRequest(eps=1.0, method="sweep", on=list("abcd")).spec(wide))
    with pytest.raises(OptionError, match="sweep"):
        check_dims(
            SelfJoinRequest(eps=1.0, method="sweep", on=list("abcde")).spec(wide)
        )
