"""The float16 filter of the tensor cores loses no pair and no neighbor."""

import numpy as np

from dask_simjoin.engine.filters import float16 as half
from tests.engine.index.test_gpu import (
    DIMS,
    RANKS,
    indexed,
    indexes,
    nearest_indexes,
    outer_of,
)
from tests.support.oracle import squared_distances
from tests.support.profiles import chosen, every_nth, in_turns

WIDE = {201: 0.3, 256: 0.0, 384: 0.01, 768: 0.3, 1024: 1.0, 2048: 0.01}
"""Dimensions in which vectors are read slice by slice, and ranks of distances."""


def both_sides(vectors):
    """What queries and points are read as: of queries the halves of the last eight
    numbers are swapped.
    """
    right = vectors.astype(np.float64)
    left = right.copy()
    left[:, -8:-4], left[:, -4:] = right[:, -4:], right[:, -8:-4]
    return left, right


@in_turns(
    1,
    lambda dims, rank: WIDE.get(dims, rank) == rank,
    dims=every_nth(2, [*DIMS, *WIDE]),
    rank=RANKS,
)
def test_float16_loses_no_pair(dims, rank):
    """Without the tensor cores' own rounding, which only makes sums that are above 0
    smaller.
    """
    used = 0
    sizes = chosen([2, 130, 300], [2, 130]) if dims <= 200 else [2, 70]
    for _, index, near in indexes("float16", dims, rank, sizes):
        used += 1
        n = len(near)
        left, right = both_sides(index["vectors"])
        width = half.width(dims)
        product, sure = left @ right.T, index["vectors_sure"]
        norm = (right[:n, :dims] ** 2).sum(1)
        error = 1.5 * width * 2.0**-23 * (norm[:, None] + norm[None, :])
        assert (product[:n, :n][near] > error[near]).all()
        assert near[(product >= sure[:, None] + sure[None, :])[:n, :n]].all()
        assert not (product[n:] >= 0).any() and not (product[:, n:] >= 0).any()
    assert used > 10


def cut(x, bits):
    """Numbers cut off below so many bits after the one of `2**exponent`, towards 0."""
    return np.trunc(np.ldexp(x, bits)) * np.ldexp(1.0, -bits)


def as_tensor_cores_round(left, right, group):
    """Products of two sides, `group` of each at a time, as in section 4 of what
    engine/filters/float16.py cites."""
    sums = np.zeros((len(left), len(right)))
    for k in range(0, left.shape[1], group):
        summands = left[:, None, k : k + group] * right[None, :, k : k + group]
        summands = np.concatenate([summands, sums[:, :, None]], axis=2)
        kept = 24 - np.frexp(np.abs(summands).max(axis=2))[1]
        sums = cut(summands, kept[:, :, None]).sum(axis=2)
        sums = cut(sums, 24 - np.frexp(sums)[1])
    return sums


def hard_to_add(kind, n, dims, rng):
    """Points far from their mean, in pairs that differ little: products that all add
    up, then cancel.
    """
    size = {
        "equal": np.ones(dims),
        "growing": np.linspace(0.01, 1, dims),
        "one": np.eye(dims)[0] * dims,
    }[kind]
    x = rng.choice([-1.0, 1.0], (n, dims)) * size * rng.uniform(0.9, 1, (n, 1))
    x[n // 2 :] = x[: n - n // 2] + rng.normal(size=(n - n // 2, dims)) * rng.choice(
        [1e-4, 1e-2], (n - n // 2, 1)
    )
    return x


@in_turns(1, dims=[9, 200, 256, 384, 768, 1024, 2048], kind=["equal", "growing", "one"])
def test_what_tensor_cores_round_loses_no_pair(kind, dims):
    """With their rounding, imitated: pairs keep their signs, and nothing is surer than
    it is.
    """
    rng = np.random.default_rng(dims)
    x = hard_to_add(kind, 24, dims, rng)
    distances = np.sort(squared_distances(x, x)[np.triu_indices(len(x), 1)])
    worst = 0.0
    for eps in np.sqrt(distances[[0, 6, 11, len(distances) // 2]]):
        layout, index = indexed(x, eps, "float16")
        assert layout.engine == "float16"
        near = (squared_distances(x, x) <= eps * eps)[
            np.ix_(index["order"], index["order"])
        ]
        left, right = (side[: len(x)] for side in both_sides(index["vectors"]))
        sure = index["vectors_sure"][: len(x)]
        for group in (4, 8, 16):
            product = as_tensor_cores_round(left, right, group)
            assert (product[near] > 0).all()
            assert near[product >= sure[:, None] + sure[None, :]].all()
            most = np.abs(left) @ np.abs(right).T
            worst = max(worst, float((np.abs(product - left @ right.T) / most).max()))
    assert 0 < worst <= 1.5 * half.width(dims) * 2.0**-23


@in_turns(1, dims=DIMS, rank=[1, 10, 199])
def test_float16_loses_no_neighbour(dims, rank):
    """Without the tensor cores' own rounding, for which there must be room."""
    used = 0
    for layout, index, d2, ranked in nearest_indexes("float16", dims):
        used += 1
        n, width = len(d2), half.width(dims)
        norm, error = index["norm"], index["error"]
        outer = outer_of(ranked[:, rank], layout) * (1 + 2.0**-50)
        assert outer.max() ** 2 < 32768
        term = half.query_term(outer, norm, error, index["most_error"][0], width)
        assert np.abs(term).max() < 30_000
        vectors = index["vectors"].astype(np.float64)
        own = vectors[:, width - 8 : width - 4].sum(axis=1)
        product = vectors[:n, :dims] @ vectors[:, :dims].T + own
        assert (product[:, :n] + 30_000 >= 0).all() and not (
            product[:, n:] + 30_000 >= 0
        ).any()
        added = own[:n] - (2 * error**2 - norm) / 2
        assert (added > 0).all() and (added <= 4 * width * 2.0**-23 * (norm + 1)).all()
        room = 1.5 * width * 2.0**-23 * (norm[:, None] + norm[None, :])
        near = d2 <= ranked[:, rank, None]
        assert (term[:, None] + product[:, :n])[near].min() > 0
        assert (term[:, None] + product[:, :n] > room)[near].all()
    assert used > 7
