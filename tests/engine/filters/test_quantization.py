"""The 8-bit filter and the float32 filter lose no pair, and are sure only of pairs."""

import functools
import math
import operator
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from dask_simjoin.engine.cpu import tiles as cpu_tiles
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.kernels import scan
from dask_simjoin.engine.cpu.kernels.product_simd import FILTERS, WAYS
from dask_simjoin.engine.filters.quantization import (
    MIN_DIMS,
    make_filter,
    make_int8_filter,
    open_filter,
    within,
)
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.planning.sample import moments
from tests.support.oracle import (
    assert_same_pairs,
    brute_force,
    squared_distances,
    totals,
)
from tests.support.profiles import in_turns

needs_avx2 = pytest.mark.skipif(
    not WAYS, reason="this machine does not multiply bytes in pairs"
)


@pytest.fixture(params=WAYS or [None])
def way(request, monkeypatch):
    """Each way in which this machine can sum up, as if it were the only one."""
    for module in (cpu_tiles, scan):
        monkeypatch.setattr(module, "WAYS", (request.param,))
    return request.param


def layout_for(x, eps):
    m = moments(np.asarray(x, float))
    return JOINER.layout("tiles", m.lower, m.upper, m.mean, m.variance, eps * eps)


def halves_of(values):
    """The sums over both halves of the dimensions, of values (..., steps, 4)."""
    return np.stack(
        [values[..., :2].sum(axis=(-2, -1)), values[..., 2:].sum(axis=(-2, -1))],
        axis=-1,
    )


def unwrapped(terms, near):
    """What differs from 16-bit terms by a multiple of 2**16 and is closest to numbers."""
    return terms + np.round((near - terms) / 2**16).astype(int) * 2**16


def sums(index):
    """What the kernel adds up for each query and point, (n, n, 2 or 1), as whole
    numbers that do not wrap.
    """
    n = len(index["y"])
    b = index["queries"].astype(int)
    a = index["tiles"].transpose(0, 2, 1, 3).reshape(-1, *b.shape[1:])[:n].astype(int)
    products = np.stack([halves_of(row * a) for row in b])
    take, first = (
        index["take"].astype(int),
        index["first"].reshape(-1, index["first"].shape[-1])[:n].astype(int),
    )
    if take.shape[1] == 1:
        products = products.sum(axis=-1, keepdims=True)
    else:
        take = unwrapped(take, halves_of(b * b + 128 * b))
        first = unwrapped(first, -halves_of((a - 128) ** 2 / 4))
    return products - take[:, None] + first


def points(kind, n, dims, rng):
    if kind == "exponential":
        return rng.exponential(1.0, (n, dims))
    if kind == "cauchy":
        return rng.standard_cauchy((n, dims))
    if kind == "far clusters":
        return rng.normal(size=(n, dims)) + 1e4 * rng.integers(0, 3, (n, 1))
    if kind == "one wide column":
        return rng.normal(size=(n, dims)) * np.append(np.ones(dims - 1), 1e3)
    if kind == "unit":
        x = rng.normal(size=(n, dims))
        return x / np.sqrt((x * x).sum(axis=1, keepdims=True))
    if kind == "lattice":
        return rng.integers(0, 3, (n, dims)) * 0.25 + 1e5
    return np.repeat(rng.normal(size=(max(1, n // 7), dims)), 8, axis=0)[:n]


KINDS = [
    "exponential",
    "cauchy",
    "far clusters",
    "one wide column",
    "unit",
    "lattice",
    "repeated",
]


@needs_avx2
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 300),
    dims=st.sampled_from([16, 17, 18, 19, 31, 64, 130]),
    rank=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
@pytest.mark.parametrize("way", WAYS)
def test_all_pairs_are_found(way, kind, n, dims, rank, seed):
    """At distances that some pair has exactly."""
    x = points(kind, n, dims, np.random.default_rng(seed))
    d2 = np.sort(squared_distances(x, x)[np.triu_indices(len(x), 1)])
    eps = math.sqrt(d2[int(rank**4 * (len(d2) - 1))]) if len(d2) else 1.0
    layout = layout_for(x, eps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_tiles, "WAYS", (way,))
        index = JOINER.build(x, layout)
        found = JOINER.pairs(index, index, layout, is_self_join=True)
    assert_same_pairs(
        set(zip(found.left.tolist(), found.right.tolist(), strict=True)),
        brute_force(x, eps),
    )


@needs_avx2
@in_turns(1, kind=KINDS, dims=[16, 50, 384])
def test_the_sums_of_pairs_do_not_wrap(kind, dims, way):
    """Of every pair each half stays in 16 bits, where sums are such, and both together
    reach the bound.
    """
    x = points(kind, 5 * TILE, dims, np.random.default_rng(dims))
    d2 = squared_distances(x, x)
    eps = math.sqrt(np.quantile(d2, 0.05)) or 0.5
    layout = layout_for(x, eps)
    if layout.quantized is None:
        pytest.skip("float64 or float32 alone serves these data")
    index = JOINER.build(x, layout)
    totals = sums(index)
    order = index["order"][: len(x)]
    near = d2[np.ix_(order, order)] <= eps * eps
    bits = (index["marked"][:, None] >> np.arange(TILE, dtype=np.uint64)) & np.uint64(1)
    plain = bits.ravel()[: len(x)] == 0
    near &= plain[:, None] & plain[None]
    assert near.any()
    bits = 31 if way == "longs" else 15
    assert (totals[near] >= -(2**bits)).all()
    assert (totals[near] < 2**bits).all()
    assert (totals[near].sum(axis=1) >= 2 * layout.quantized.bias).all()


@needs_avx2
@pytest.mark.parametrize("dims", [16, 19, 130])
def test_masks_are_those_of_the_sums(dims, way):
    """Bit by bit, with places that no point has and queries more than once."""
    coarse = FILTERS[way]

    @njit
    def masks(tiles, first, steps, queries, take, chosen, least, passing, out):
        return coarse(
            tiles,
            first,
            steps,
            queries,
            take,
            (chosen[0], chosen[1], chosen[2], chosen[3]),
            least,
            passing,
            out,
        )

    rng = np.random.default_rng(dims)
    x = points("exponential", 2 * TILE, dims, rng)
    layout = layout_for(x, math.sqrt(np.quantile(squared_distances(x, x), 0.2)))
    index = JOINER.build(x, layout)
    least = 2 * layout.quantized.bias
    totals = sums(index)
    if way == "words":
        totals = (totals + 2**15) % 2**16 - 2**15
    near = totals.sum(axis=-1) >= least
    assert 0.05 < near.mean() < 0.95
    out = np.zeros(4, np.uint64)
    for tile in range(2):
        for passing in (0, 1 << 63 | 5):
            chosen = rng.integers(0, len(x), 4)
            union = masks(
                index["tiles"][tile].ctypes.data,
                index["first"][tile].ctypes.data,
                index["queries"].shape[1],
                index["queries"].ctypes.data,
                index["take"].ctypes.data,
                chosen,
                np.int32(least),
                np.uint64(passing),
                out.ctypes.data,
            )
            columns = near[chosen, tile * TILE : (tile + 1) * TILE]
            want = [
                int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")
                for row in columns
            ]
            assert [int(mask) for mask in out] == [mask | passing for mask in want]
            assert int(union) == functools.reduce(operator.or_, want) | passing


@needs_avx2
def test_chunks_of_machines_that_sum_up_otherwise_meet():
    """By the float32 filter alone."""
    x = np.random.default_rng(6).exponential(size=(500, 20))
    layout = layout_for(x, 2.5)
    indexes = []
    for way in ("longs", "words"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpu_tiles, "WAYS", (way,))
            indexes.append(JOINER.build(x, layout))
    found = JOINER.pairs(*indexes, layout, is_self_join=False)
    pairs = {
        (a, b)
        for a, b in zip(found.left.tolist(), found.right.tolist(), strict=True)
        if a < b
    }
    assert_same_pairs(pairs, brute_force(x, 2.5))


@needs_avx2
def test_points_that_are_cut_off_meet_all(way):
    x = np.random.default_rng(4).normal(size=(47 * TILE, 20))
    x[7::500] = 100 + 0.2 * x[7::500]
    eps = 3.0
    layout = layout_for(x, eps)
    index = JOINER.build(x, layout)
    assert 0 < np.unpackbits(index["marked"].view(np.uint8)).sum() < 100
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    want = brute_force(x, eps)
    assert any(i % 500 == 7 for i, _ in want)
    assert_same_pairs(
        set(zip(found.left.tolist(), found.right.tolist(), strict=True)), want
    )


@needs_avx2
@pytest.mark.parametrize("dims", [16, 64])
def test_it_serves_and_refuses_most(dims, way):
    x = np.random.default_rng(1).exponential(size=(4000, dims))
    d2 = squared_distances(x[:500], x)
    eps = math.sqrt(np.quantile(d2, 0.001))
    layout = layout_for(x, eps)
    index = JOINER.build(x, layout)
    assert not index["marked"][:-1].any()
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    assert len(found.left) < found.decided < 0.02 * len(x) ** 2 / 2


@needs_avx2
def test_where_it_lets_all_through_it_pauses(way):
    """All points are near each other: decided by the float32 filter, hardly any in
    float64.
    """
    x = np.random.default_rng(2).normal(size=(3000, 32))
    layout = layout_for(x, 20.0)
    assert layout.quantized is not None
    index = JOINER.build(x, layout)
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    assert len(found.left) == 3000 * 2999 // 2
    assert found.decided < 1000


def test_other_machines_do_without(monkeypatch):
    """An index with 8-bit vectors serves where they cannot be read, and one without
    where they can.
    """
    x = np.random.default_rng(3).exponential(size=(1000, 20))
    want = brute_force(x, 2.5)
    layout = layout_for(x, 2.5)
    assert layout.quantized is not None
    indexes = [JOINER.build(x, layout)]
    monkeypatch.setattr(cpu_tiles, "WAYS", ())
    indexes.append(JOINER.build(x, layout))
    assert "queries" not in indexes[1]
    for ways in ((), WAYS):
        monkeypatch.setattr(cpu_tiles, "WAYS", ways)
        for index in indexes:
            found = JOINER.pairs(index, index, layout, is_self_join=True)
            assert_same_pairs(
                set(zip(found.left.tolist(), found.right.tolist(), strict=True)), want
            )


@pytest.mark.slow
@pytest.mark.processes
def test_code_for_any_machine(tmp_path):
    """Where Numba is told to make such code, as for a cache that many machines share."""
    code = (
        "import numpy, pandas, dask_simjoin\n"
        "x = numpy.random.default_rng(0).normal(size=(300, 20))\n"
        "print(len(pandas.DataFrame(x).simjoin.self_join(4.0)))"
    )
    told = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | told,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    x = np.random.default_rng(0).normal(size=(300, 20))
    assert int(ran.stdout) == len(brute_force(x, 4.0))


@pytest.mark.parametrize(
    ("dims", "scale", "eps"),
    [(MIN_DIMS - 1, 1.0, 1.0), (5000, 1.0, 1.0), (20, 1e300, 1e299), (20, 1.0, 1e300)],
)
def test_what_it_does_not_serve(dims, scale, eps):
    ones = np.full(dims, scale)
    with np.errstate(over="ignore"):
        assert make_int8_filter(-ones, ones, 0 * ones, ones, eps * eps) is None


def float32_sums(x, made):
    """What the kernel adds up: start_j - h_i + <z_i, z_j>, in float32."""
    z = ((x - np.array(made.centre)) * made.scale).astype(np.float32)
    norm = (z.astype(np.float64) ** 2).sum(axis=1)
    start = (-norm * (1 - made.kappa) / 2).astype(np.float32)
    h = ((norm * (1 - made.kappa) - made.eps2) / 2).astype(np.float32)
    total = start[None, :] - h[:, None]
    for column in z.T:
        total = total + column[:, None] * column[None, :]
    return total, norm


@pytest.mark.parametrize("dims", [2, 9, 40])
@pytest.mark.parametrize("shift", [0.0, 1e3])
@pytest.mark.parametrize("rank", [0.05, 0.3])
def test_no_pair_is_lost_and_what_is_sure_is_a_pair(dims, shift, rank):
    x = np.random.default_rng(dims).normal(size=(150, dims)) + shift
    away = totals(x, x, "euclidean")
    eps2 = float(np.sort(away.ravel())[int(rank * away.size)])
    made = make_filter(x.min(0), x.max(0), x.mean(0), x.var(0), eps2)
    total, norm = float32_sums(x, made)
    pair = away <= eps2
    # this rounds h and start to the nearest, the kernel towards passing
    slack = 4 * 2.0**-24 * norm.max()
    assert (total[pair] >= -slack).all()
    sure = made.sure + 2 * made.kappa * (norm[:, None] + norm[None, :])
    assert pair[total >= sure].all()
    open_ = (total >= 0) & (total < sure)
    assert open_.mean() < 0.01 and (total < 0).any()


def test_boxes_of_a_pair_are_within_reach_and_sure_ones_hold_nothing_else():
    made = make_filter(np.zeros(3), np.ones(3), np.full(3, 0.5), np.full(3, 0.1), 0.25)
    scaled = 0.25 * made.scale**2
    assert scaled < made.box_reach(1.0) < scaled * (1 + 1e-5)
    assert scaled * (1 - 1e-5) < made.box_sure(1.0) < scaled
    assert made.box_sure(1.0, rest=0.25) == -1


def test_where_float64_serves_better():
    box = np.zeros(2), np.ones(2), np.full(2, 0.5)
    assert make_filter(*box, np.full(2, 0.1), 0.25) is not None
    # far less than what rounding takes away
    assert make_filter(*box, np.full(2, 0.1), 1e-9) is None
    assert open_filter(np.full(2, -1e300), np.full(2, 1e300), np.zeros(2)) is None
    made = within(make_filter(*box, np.full(2, 0.1), 0.25), 0.01)
    assert (
        np.isclose(made.eps2, 0.01 * made.scale**2, rtol=1e-6)
        and made.eps2 > 0.01 * made.scale**2
    )
