"""`neighbor_counts` with `other=` counts what brute force counts."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import OptionError, UnsupportedFrameError
from tests.support.frames import split
from tests.support.oracle import squared_distances
from tests.support.points import cases, frame_of
from tests.support.profiles import examples, in_turns

WAYS = ["plain", "entity", "spatial", "replicated"]


def table(rows, seed):
    """Return rows on a lattice with ties, conditions and a radius for each row."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(0, 17, (rows, 2)) / 8, columns=["x", "y"])
    return frame.assign(
        t=rng.integers(0, 9, rows),
        ship=rng.choice(list("abc"), rows),
        far=rng.integers(0, 5, rows) / 8,
    )


def laid(frame, way):
    """Return the frame, or a Dask DataFrame and options that divide its rows."""
    if way == "plain":
        return frame, {}
    options = {"partitioning": way, "blocksize": 40 * len(frame)}
    return dd.from_pandas(frame, npartitions=3), options


def conditions(left, right):
    """Return for some options which rows they allow (n, m)."""
    sides = [frame.to_dict("series") for frame in (left, right)]

    def compared(name):
        first, second = (side[name].to_numpy() for side in sides)
        return first[:, None], second[None]

    t, u = compared("t")
    ship, other = compared("ship")
    return [
        ({}, True),
        ({"by": "ship"}, ship == other),
        ({"different": "ship"}, ship != other),
        ({"within": {"t": 2}}, abs(t - u) <= 2),
        ({"within": {"t": (-3, 0)}}, (u - t >= -3) & (u - t <= 0)),
    ]


@in_turns(1, case=range(5), way=WAYS)
def test_counts_by_definition(case, way):
    left, right = table(130, 1), table(90, 2)
    options, allowed = conditions(left, right)[case]
    if way == "replicated" and options:
        pytest.skip("the same road as the other conditions")
    squared = squared_distances(
        *(frame[["x", "y"]].to_numpy() for frame in (left, right))
    )
    (lazy, how), several = laid(left, way), [0.25, 0.5, 0.0]
    how |= {"on": ["x", "y"], "other": right} | options
    with dask.config.set({"simjoin.threads": 3}):
        one, many = dask.compute(
            lazy.simjoin.neighbor_counts(0.5, **how),
            lazy.simjoin.neighbor_counts(several, **how),
        )
    assert one.name == "neighbors" and one.dtype == np.int64
    assert one.index.tolist() == many.index.tolist() == left.index.tolist()
    assert one.tolist() == ((squared <= 0.25) & allowed).sum(1).tolist()
    assert many.columns.tolist() == several
    for eps in several:
        want = ((squared <= eps * eps) & allowed).sum(1)
        assert many[eps].tolist() == want.tolist()
    if "by" not in options:
        radii = left["far"].to_numpy()[:, None] ** 2
        (own,) = dask.compute(lazy.simjoin.neighbor_counts("far", **how))
        assert own.tolist() == ((squared <= radii) & allowed).sum(1).tolist()


@pytest.mark.parametrize("way", ["plain", "spatial"])
def test_nearest_images_in_a_box(way):
    left, right = table(60, 3), table(50, 4)
    x, y = (frame[["x", "y"]].to_numpy() for frame in (left, right))
    apart = np.abs(x[:, None] - y[None])
    apart = np.minimum(apart, 2.5 - apart)
    lazy, how = laid(left, way)
    found = lazy.simjoin.neighbor_counts(
        0.375, other=right, on=["x", "y"], box=2.5, **how
    )
    (found,) = dask.compute(found)
    assert found.tolist() == ((apart**2).sum(2) <= 0.375**2).sum(1).tolist()


@settings(max_examples=examples(60))
@given(
    cases(max_dims=3, max_points=50),
    cases(max_dims=3, max_points=50),
    st.sampled_from(["plain", "entity", "spatial"]),
)
def test_any_points(case, more, way):
    dims = min(case.x.shape[1], more.x.shape[1])
    x, y = case.x[:, :dims], more.x[:, :dims]
    usable = [np.isfinite(side).all(1) for side in (x, y)]
    with np.errstate(invalid="ignore", over="ignore"):
        near = squared_distances(x, y) <= case.eps * case.eps
    near &= usable[0][:, None] & usable[1]
    left, how = frame_of(x), {"dropna": True}
    if way != "plain":
        left = split(left, case.cuts)
        how |= {"partitioning": way, "blocksize": 400}
    found = left.simjoin.neighbor_counts(case.eps, other=frame_of(y), **how)
    with dask.config.set(scheduler="sync"):
        (found,) = dask.compute(found)
    assert found.tolist() == near.sum(1).tolist()


def test_a_row_of_both_tables_counts_itself():
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0]}, index=["a", "b", "b"])
    found = frame.simjoin.neighbor_counts(1.0, other=frame)
    assert found.to_dict() == {"a": 2, "b": 1} and found.tolist() == [2, 2, 1]


def test_columns_of_other_names_and_ids_that_are_not_coordinates():
    left = pd.DataFrame({"x": [0.0, 4.0], "key": [7, 7]})
    right = pd.DataFrame({"z": [0.5, 1.0, 9.0], "key": [1, 2, 3]})
    how = {"left_on": "x", "right_on": "z"}
    assert left.simjoin.neighbor_counts(1.0, other=right, **how).tolist() == [2, 0]
    renamed = right.rename(columns={"z": "x"})
    found = left.simjoin.neighbor_counts(1.0, other=renamed, id="key")
    assert found.tolist() == [2, 0]


@in_turns(1, way=["plain", "entity", "spatial"], eps=[0.5, [0.5, 1.0]])
def test_empty_tables_and_tables_that_do_not_meet(way, eps):
    left, right = table(20, 5), table(10, 6).assign(x=50.0)
    for first, second in ((left, right), (left, right[:0]), (left[:0], right)):
        lazy, how = laid(first, way)
        found = lazy.simjoin.neighbor_counts(
            eps, other=second, on=["x", "y"], **how | {"blocksize": "1 MB"}
        )
        (found,) = dask.compute(found)
        assert not found.to_numpy().any() and len(found) == len(first)


def test_refusals():
    frame = table(5, 7)
    with pytest.raises(OptionError, match="joins of two tables"):
        frame.simjoin.neighbor_counts(1.0, left_on="x", right_on="y")
    with pytest.raises(UnsupportedFrameError, match="other=3 is not a data frame"):
        frame.simjoin.neighbor_counts(1.0, other=3)
