"""Checks of every method of joins, on CPUs and GPUs: each pair comes once, however the
work is cut.
"""

import itertools
import math

import numpy as np
import pytest

from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.distances import make_metric
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import frame_of

KEY = ["left", "right"]


def neighbours_of(pairs, rows):
    """Return the numbers of neighbors of some rows, as a list."""
    return np.bincount(
        np.array(sorted(pairs), np.int64).reshape(-1), minlength=rows
    ).tolist()


def check_norm(x, eps, options, p, power):
    """Check a join of a frame by a Minkowski distance; `power` is its order for the
    definition.
    """
    x = np.asarray(x, float)
    if math.isinf(make_metric("minkowski", p).threshold(eps)):
        return  # such an eps is refused
    found = frame_of(x).simjoin.self_join(eps, metric="minkowski", p=p, method=options)
    got = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert_same_pairs(got, brute_force(x, eps, "minkowski", power))


def check_cuts(joiner, x, eps, layout, cuts):
    """Check that queries between cuts give each pair once, and the predicted number of
    pairs.
    """
    built = joiner.build(x, layout)
    weights = joiner.weights(built, built, layout, is_self_join=True)
    found = []
    for rows in itertools.pairwise(cuts):
        pairs = joiner.pairs(built, built, layout, is_self_join=True, rows=rows)
        found += zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
        assert len(pairs.left) == weights[slice(*rows)].sum()
    assert len(found) == len(set(found))
    assert_same_pairs(set(found), brute_force(x, eps))


def check_all(joiner, x, eps, layout, cuts, asarray):
    """Check pairs, numbers of neighbors, queries between cuts, and two chunks;
    `asarray` makes the points.
    """
    expected = brute_force(x, eps)
    index = joiner.build(asarray(x), layout)
    pairs = joiner.pairs(index, index, layout, is_self_join=True)
    found = list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert_same_pairs(set(found), expected)
    assert joiner.counts(index, index, layout, is_self_join=True)[
        0
    ].tolist() == neighbours_of(expected, len(x))
    weights = to_host(joiner.weights(index, index, layout, is_self_join=True))
    for rows in itertools.pairwise(cuts):
        part = joiner.pairs(index, index, layout, is_self_join=True, rows=rows)
        assert len(part.left) == weights[slice(*rows)].sum()
    cut = len(x) // 3
    some, rest = (joiner.build(asarray(part), layout) for part in (x[:cut], x[cut:]))
    across = joiner.pairs(some, rest, layout, is_self_join=False)
    found = set(zip(across.left.tolist(), across.right.tolist(), strict=True))
    assert_same_pairs(found, {(a, b - cut) for a, b in expected if a < cut <= b})


def check_labels(how, methods, *, tables=True):
    """Check that clusters of a frame, plain or in partitions, and pairs of two tables
    equal the tiles'.
    """
    frame = frame_of(np.random.default_rng(3).exponential(1.0, (900, 3)))
    expected = frame.simjoin.dbscan(0.2, 4, method="tiles")
    left, right = frame.iloc[:400], frame.iloc[400:]
    pairs = left.simjoin.join(right, 0.2, method="tiles")
    lazy = frame
    if how != "pandas":
        dd = pytest.importorskip("dask.dataframe")
        lazy = dd.from_pandas(frame, npartitions=int(how[-1]))
    for method in methods:
        for partitioning in ("entity", "spatial") if how == "dask-3" else ("auto",):
            cut = {
                "partitioning": partitioning,
                "blocksize": "8 kB" if lazy is not frame else None,
            }
            labels = lazy.simjoin.dbscan(0.2, 4, method=method, **cut)
            labels = labels.compute() if lazy is not frame else labels
            assert labels.sort_index().tolist() == expected.tolist()
        if tables:
            assert_same_rows(left.simjoin.join(right, 0.2, method=method), pairs)


def check_frames(on_gpu, methods, *, profiles=True):
    """Check that clusters, pairs and profiles of a frame that `on_gpu` makes equal the
    tiles' on CPUs.
    """
    frame = frame_of(np.random.default_rng(3).exponential(1.0, (3000, 2)))
    device = on_gpu(frame)
    expected = frame.simjoin.dbscan(0.1, 4, method="tiles")
    pairs = frame.simjoin.self_join(0.1, method="tiles", return_distance=True)
    for method in methods:
        assert (
            device.simjoin.dbscan(0.1, 4, method=method).to_pandas().tolist()
            == expected.tolist()
        )
        found = device.simjoin.self_join(
            0.1, method=method, return_distance=True
        ).to_pandas()
        assert_same_rows(found, pairs)
        if profiles:
            assert device.simjoin.profile(0.1, method=method).numbers["pairs"] == len(
                pairs
            )


def assert_same_rows(found, expected):
    assert (
        found.sort_values(KEY).to_numpy().tolist()
        == expected.sort_values(KEY).to_numpy().tolist()
    )


def found_of(method, index, other, layout, same, rows=None):
    """Return pairs of positions, each once; within one index the smaller position comes
    first.
    """
    pairs = []
    for found in method.batches(index, other, layout, is_self_join=same, rows=rows):
        left, right = (
            index["order"][found.places[:, 0]],
            other["order"][found.places[:, 1]],
        )
        pairs += zip(left.tolist(), right.tolist(), strict=True)
    pairs = [(min(pair), max(pair)) if same else pair for pair in pairs]
    assert len(pairs) == len(set(pairs))
    return set(pairs)


def check_kernels(method, x, eps, layout, cuts, cut, asarray):
    """Check a method on GPUs like `check_all`; chunks end and begin at `cut`."""
    expected = brute_force(x, eps)
    index = method.build(asarray(x), layout)
    assert_same_pairs(found_of(method, index, index, layout, True), expected)
    counts = np.empty(len(x), np.int64)
    counts[index["order"][: len(x)]] = method.count(
        index, index, layout, is_self_join=True
    )[0]
    assert counts.tolist() == neighbours_of(expected, len(x))
    weights = method.count(index, index, layout, is_self_join=True, both=False)[0]
    parts = [
        found_of(method, index, index, layout, True, part)
        for part in itertools.pairwise(cuts)
    ]
    assert [len(part) for part in parts] == [
        weights[a:b].sum() for a, b in itertools.pairwise(cuts)
    ]
    assert_same_pairs(set.union(*parts), expected)
    some, rest = (method.build(asarray(part), layout) for part in (x[:cut], x[cut:]))
    across = {(a, b - cut) for a, b in expected if a < cut <= b}
    assert_same_pairs(found_of(method, some, rest, layout, False), across)
    assert [c.sum() for c in method.count(some, rest, layout, is_self_join=False)] == [
        len(across)
    ] * 2


def assert_ties(parent, pairs):
    """Check that a forest has the sets that pairs tie together, each under its smallest
    node.
    """
    sets = list(range(len(parent)))
    for a, b in sorted(pairs):
        one, other = sets[a], sets[b]
        sets = [min(one, other) if s in (one, other) else s for s in sets]
    for i in range(len(parent)):
        while parent[i] != parent[parent[i]]:
            parent[i] = parent[parent[i]]
    assert parent.tolist() == sets


def check_ties(method, link, x, eps, layout, cupy):
    """Check the rows that a method ties together, by a kernel that it passes pairs to
    as `link`, against pairs.
    """
    index = method.build(cupy.asarray(x), layout)
    parent, every = (
        cupy.asarray(np.arange(len(x), dtype=np.int32)),
        cupy.ones(len(x), bool),
    )
    method.pass_to(
        link, index, index, layout, [every, every, parent, 0], is_self_join=True
    )
    assert_ties(parent, brute_force(x, eps))
