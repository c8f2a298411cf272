"""Joins in a periodic box return what brute force and SciPy find."""

import math

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

import dask_simjoin
from dask_simjoin.errors import ColumnError, CoordinateError, OptionError
from dask_simjoin.metrics.distances import Euclidean, Manhattan, Minkowski, Periodic
from dask_simjoin.metrics.norms import add
from tests.support.density import labels_of_neighbours
from tests.support.oracle import as_set
from tests.support.profiles import examples, in_turns


def totals_in_box(x, y, box, norm=2):
    """Return all totals of nearest images (n, m), by the definition."""
    found = np.zeros((len(x), len(y)))
    for k, length in enumerate(box):
        t = np.abs(x[:, None, k] - y[None, :, k])
        found = add(found, np.minimum(t, length - t) if length else t, norm)
    return found


def points(rows, box, seed=0):
    """Return rows on a lattice with ties, also at both sides of the box."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 17, (rows, len(box))) / 16 * [length or 1 for length in box]
    return pd.DataFrame(x, columns=list("xyz")[: len(box)])


def laid(frame, way):
    if way == "plain":
        return frame, {}
    lazy = dd.from_pandas(frame, npartitions=3)
    return lazy, {"partitioning": way, "blocksize": 60 * len(frame)}


def pairs_of(near):
    return set(zip(*(places.tolist() for places in np.nonzero(near)), strict=True))


BOXES = [(1.0, 1.0), (1.0, None), (2.0, 1.0, 3.0)]


@in_turns(1, box=BOXES, way=["plain", "entity", "spatial"])
@pytest.mark.parametrize("eps", [0.125, 0.75])
def test_verbs(box, way, eps):
    frame = points(120, box)
    x = frame.to_numpy()
    lazy, how = laid(frame, way)
    how |= {"on": list(frame), "box": list(box)}
    total = totals_in_box(x, x, box)
    near = (total <= eps * eps) & ~np.eye(120, dtype=bool)
    pairs, counts, labels, *nearest = dask.compute(
        lazy.simjoin.self_join(eps, keep="x", return_distance=True, **how),
        lazy.simjoin.neighbor_counts(eps, **how),
        lazy.simjoin.dbscan(eps, 4, **how),
        lazy.simjoin.knn_join(k=2, max_distance=eps, **how),
        lazy.simjoin.knn_join(k=2, **how),
    )
    assert as_set(pairs) == pairs_of(np.triu(near))
    assert (pairs["distance"] ** 2).to_numpy() == pytest.approx(
        total[pairs["left"], pairs["right"]], rel=1e-15
    )
    assert counts.tolist() == near.sum(1).tolist()
    want = labels_of_neighbours(near | np.eye(120, dtype=bool), 4)
    assert labels.tolist() == list(want)
    for some, allowed in zip(nearest, (near, ~np.eye(120, dtype=bool)), strict=True):
        away = np.where(allowed, total, np.inf)
        for i, order in enumerate(np.argsort(away, axis=1, kind="stable")[:, :2]):
            found = some.loc[some["left"] == i].sort_values("rank")["right"]
            assert found.tolist() == [j for j in order.tolist() if away[i, j] < np.inf]


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 99),
    size=st.sampled_from([1.0, 0.1, 1e-6, 3e9]),
    share=st.floats(0.01, 0.9),
)
def test_scipy_finds_the_same_pairs(seed, size, share):
    x = np.random.default_rng(seed).random((80, 3)) * size
    eps = share * size
    pairs = dask_simjoin.self_join(x, eps, box=size)
    tree = cKDTree(x, boxsize=size)
    assert as_set(pairs) == tree.query_pairs(eps)


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev"])
def test_two_tables_by_other_metrics(metric):
    box = (1.0, None)
    one, other = points(70, box, 1), points(60, box, 2)
    how = {"metric": metric, "box": box, "return_distance": True}
    pairs = one.simjoin.join(other, 0.25, **how)
    norm = 1 if metric == "manhattan" else np.inf
    total = totals_in_box(one.to_numpy(), other.to_numpy(), box, norm)
    assert as_set(pairs) == pairs_of(total <= 0.25)
    assert (pairs["distance"] == total[pairs["left"], pairs["right"]]).all()


@pytest.mark.parametrize("length", [5e-320, 1e-308, 1e-200, 1.7e308])
def test_boxes_of_any_size(length):
    frame = points(40, (length,))
    total = totals_in_box(frame.to_numpy(), frame.to_numpy(), (length,), 1)
    how = {"on": "x", "metric": "manhattan", "box": length}
    eps = total[total > 0].min()
    near = total <= eps
    pairs = frame.simjoin.self_join(eps, **how)
    assert as_set(pairs) == pairs_of(np.triu(near, 1))
    # chunks of one row, whose bounds are points in all coordinates
    one, other = np.argwhere(near & (total > 0))[0].tolist()
    pairs = frame[one : one + 1].simjoin.join(frame[other : other + 1], eps, **how)
    assert as_set(pairs) == {(one, other)}


def test_groups_tolerances_and_other_things():
    box = (1.0, 2.0)
    frame = points(100, box, 3).assign(
        g=np.arange(100) % 3, t=np.arange(100) % 7, s=np.arange(100) % 5
    )
    x = frame[["x", "y"]].to_numpy()
    near = totals_in_box(x, x, box) <= 0.3**2
    g, t, s = (frame[name].to_numpy() for name in "gts")
    near &= (g[:, None] == g) & (np.abs(t[:, None] - t) <= 2) & (s[:, None] != s)
    how = {"by": "g", "within": {"t": 2}, "different": "s", "box": box}
    pairs = frame.simjoin.self_join(0.3, on=["x", "y"], **how)
    assert as_set(pairs) == pairs_of(np.triu(near))


@settings(max_examples=examples(300))
@given(
    a=st.floats(0, 1),
    b=st.floats(0, 1) | st.none(),
    length=st.sampled_from([1.0, 1e-3, 7e8, 1e-200, 1e-308]),
    kind=st.sampled_from([Euclidean(), Manhattan(), Minkowski(3)]),
)
def test_pairs_are_candidates_on_the_circle(a, b, length, kind):
    metric = Periodic(kind, (length,), ("x",))
    b = min(1.0, math.nextafter(a, math.inf)) if b is None else b
    x = np.array([[a * length], [b * length]])
    embedded = metric.embed(x, np)
    assert embedded.shape == (2, metric.dims(1))
    total = 0.0
    for k in range(embedded.shape[1]):
        total = add(total, np.abs(embedded[0, k] - embedded[1, k]), kind.norm)
    own = totals_in_box(x[:1], x[1:], (length,), kind.norm)[0, 0]
    assert total <= metric.widened(own)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"box": [1.0]}, "a list with a length for each of the 2 columns ['x', 'y']"),
        ({"box": "1"}, "use a length, a list"),
        ({"box": [1.0, -2]}, "has -2; use finite lengths above 0"),
        ({"box": 1.0, "metric": "haversine"}, "use a metric of differences"),
        ({"box": 1.0, "approximate": True}, "not allowed with approximate=True"),
    ],
)
def test_what_is_refused_at_the_call(options, text):
    with pytest.raises(OptionError) as caught:
        points(5, (1, 1)).simjoin.self_join(0.1, on=["x", "y"], **options)
    assert text in str(caught.value)


def test_coordinates_outside_the_box():
    frame = points(6, (1, 1)).assign(x=[0.5, 1.0, -0.25, 1.5, 0.0, 0.75])
    for some in (frame, dd.from_pandas(frame, npartitions=2)):
        with pytest.raises(CoordinateError) as caught:
            dask.compute(some.simjoin.self_join(0.1, on=["x", "y"], box=1))
        text = str(caught.value)
        assert (
            "Column 'x' has 2 values outside the box, 0 to 1: for example -0.25" in text
        )
        assert text.endswith("To wrap them: df['x'] %= 1.0.")
    # an open box is no box
    pairs = frame.simjoin.self_join(0.5, on=["x", "y"], box=[None, None])
    assert as_set(pairs) == as_set(frame.simjoin.self_join(0.5, on=["x", "y"]))
    # columns that a dict leaves out are open
    some = points(30, (1, 1)).simjoin.self_join(0.2, on=["x", "y"], box={"y": 1})
    lengths = points(30, (1, 1)).simjoin.self_join(0.2, on=["x", "y"], box=[None, 1])
    assert as_set(some) == as_set(lengths)
    with pytest.raises(ColumnError, match="box= names 'z', which is not one of"):
        frame.simjoin.self_join(0.5, on=["x", "y"], box={"z": 1})
    plan = frame.assign(x=0.5).simjoin.plan(0.1, on=["x", "y"], box=1)
    assert "as points 'cos x', 'sin x', 'cos y', 'sin y' in a periodic box" in repr(
        plan
    )
