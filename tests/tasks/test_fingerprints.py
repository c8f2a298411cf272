"""Rows are known again in another order; others are refused."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import SourceChangedError
from dask_simjoin.request.spec import Coordinates, JoinSpec, Limit
from dask_simjoin.tasks.counts import earlier_positions, fingerprints, values_beside

ROWS = 200


@pytest.fixture
def frame():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {name: rng.integers(-3, 3, ROWS) * 1.0 for name in ("x", "y", "r")}
    )
    return frame.set_axis(rng.integers(0, 5, ROWS))


@pytest.mark.parametrize(
    "groups", [(("x", "y"),), (("x",), ("r",)), (("x", "y"), ("r",))]
)
def test_values_follow_their_rows(frame, groups):
    columns = [name for group in groups for name in group]
    values = pd.Series(
        frame[columns].to_numpy() @ 7.0 ** np.arange(len(columns)), name="v"
    )
    then = fingerprints(frame, groups, None)
    moved = frame.iloc[np.random.default_rng(0).permutation(ROWS)]
    got = values_beside(moved, values, then, groups, None)
    want = moved[columns].to_numpy() @ 7.0 ** np.arange(len(columns))
    assert got.tolist() == want.tolist() and got.index.tolist() == moved.index.tolist()


def test_rows_differ_by_the_columns_their_values_depend_on(frame):
    then = fingerprints(frame, (("x", "y"),), None)
    assert len(np.unique(then)) == len(frame[["x", "y"]].drop_duplicates())
    assert (
        earlier_positions(fingerprints(frame.assign(r=0.0), (("x", "y"),), None), then)
        is None
    )
    assert (
        len(
            np.unique(
                fingerprints(
                    pd.DataFrame({"x": [1.0, 2], "y": [2.0, 1]}), (("x", "y"),), None
                )
            )
        )
        == 2
    )


def test_equal_numbers_are_equal_rows():
    odd = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    one = pd.DataFrame({"x": [0.0, np.nan], "y": [1, 2]})
    other = pd.DataFrame({"x": [-0.0, odd], "y": [1.0, 2.0]})
    both = [fingerprints(frame, (("x", "y"),), None).tolist() for frame in (one, other)]
    assert both[0] == both[1]


def test_lists():
    lists = pd.DataFrame({"e": [[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]})
    found = fingerprints(lists, (("e",),), None)
    assert found[0] == found[2] != found[1]


def test_rows_left_out(frame):
    frame["x"] = frame.x.where(frame.x != 1)
    spec = JoinSpec(Limit(1.0), ("x", "y"), coordinates=Coordinates(dropna=True))
    kept = frame[frame.x.notna()]
    values, then = kept.x * 7 + kept.y, fingerprints(frame, (("x", "y"),), spec)
    moved = frame.iloc[::-1]
    got = values_beside(moved, values, then, (("x", "y"),), spec)
    want = moved[moved.x.notna()]
    assert (
        got.tolist() == (want.x * 7 + want.y).tolist()
        and got.index.tolist() == want.index.tolist()
    )


def test_other_rows_are_refused(frame):
    then = fingerprints(frame, (("x", "y"),), None)
    changed = frame.assign(x=frame.x.where(np.arange(ROWS) != 5, 17.0))
    for now in (changed, frame.iloc[1:]):
        with pytest.raises(SourceChangedError, match=r"persist\(\) the frame"):
            earlier_positions(fingerprints(now, (("x", "y"),), None), then)
