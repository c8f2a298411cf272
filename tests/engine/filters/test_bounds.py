"""The float32 filter of Manhattan and Chebyshev distances loses no pair, and adds none."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.filters.bounds import make_rounded_filter
from tests.support.oracle import assert_same_pairs, brute_force, totals

METRICS = {"manhattan": 1, "chebyshev": math.inf}


def filter_of(x, eps, metric):
    return make_rounded_filter(x.min(0), x.max(0), x.mean(0), eps, METRICS[metric])


def rounded_totals(x, made, metric):
    """What the kernel compares: totals (n, n) of rounded coordinates, added in float32."""
    z = ((x - np.array(made.centre)) * made.scale).astype(np.float32)
    total = np.zeros((len(x), len(x)), np.float32)
    for k in range(x.shape[1]):
        away = np.abs(z[:, None, k] - z[None, :, k])
        total = total + away if metric == "manhattan" else np.maximum(total, away)
    assert total.dtype == np.float32
    return total


@st.composite
def clouds(draw):
    """Points of which many are exactly, or one unit in the last place from, a threshold
    apart.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d = draw(st.integers(2, 60)), draw(st.sampled_from([1, 2, 5, 16, 40]))
    kind = draw(st.sampled_from(["uniform", "lattice", "scales", "equal"]))
    x = (
        rng.uniform(-1, 1, (n, d))
        if kind != "lattice"
        else rng.integers(0, 3, (n, d)) / 3
    )
    x = x * 2.0 ** rng.integers(-30, 30, d) if kind == "scales" else x
    x = x[rng.integers(0, 3, n) % n] if kind == "equal" else x
    x = x * draw(st.sampled_from([1.0, 1e-200, 3e150, 0.1])) + draw(
        st.sampled_from([0.0, 1.0, 1e3])
    )
    metric = draw(st.sampled_from(list(METRICS)))
    away = totals(x, x, metric)
    eps = float(draw(st.sampled_from(sorted(set(away.ravel().tolist())))))
    return (
        x,
        draw(
            st.sampled_from(
                [eps, math.nextafter(eps, math.inf), math.nextafter(eps, 0.0)]
            )
        ),
        metric,
    )


@given(clouds())
def test_bounds(case):
    x, eps, metric = case
    made = filter_of(x, eps, metric) if eps > 0 else None
    if made is None:
        return
    pair, total = totals(x, x, metric) <= eps, rounded_totals(x, made, metric)
    assert (total[pair] <= made.reach).all() and pair[total <= made.sure].all()
    fewer = made.within(eps / 3)
    if fewer is not None:
        pair = totals(x, x, metric) <= eps / 3
        assert (total[pair] <= fewer.reach).all() and pair[total <= fewer.sure].all()


@pytest.mark.parametrize("metric", METRICS)
def test_it_decides_nearly_all(metric):
    x = np.random.default_rng(0).normal(0, 1, (400, 16)) + 1e3
    away = totals(x, x, metric)
    eps = float(np.quantile(away, 0.1))
    made = filter_of(x, eps, metric)
    total = rounded_totals(x, made, metric)
    left = (total <= made.reach) & (total > made.sure)
    assert np.count_nonzero(left) < 1e-4 * total.size


@pytest.mark.parametrize("metric", METRICS)
def test_it_is_not_taken_where_it_leaves_much_open(metric):
    x = np.random.default_rng(0).normal(0, 1, (50, 8))
    assert filter_of(x, 0.5, metric) is not None
    assert filter_of(x, 1e-6, metric) is None  # as coarse as the distance
    assert filter_of(x * 0, 1.0, metric) is None
    assert filter_of(np.array([[-1.7e308], [1.7e308]]), 1.0, metric) is None
    assert make_rounded_filter(x.min(0), x.max(0), x.mean(0), 0.5, 3) is None


@given(
    st.integers(0, 2**32),
    st.sampled_from(list(METRICS)),
    st.integers(5, 9),
    st.sampled_from([1 / 3, 0.1]),
)
def test_all_pairs_are_found(seed, metric, dims, step):
    """Of lattices, where most pairs are at the threshold, but for rounding."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (rng.integers(20, 200), dims)) * step + rng.choice(
        [0.0, 1.7]
    )
    away = totals(x[:5], x, metric)
    eps = float(rng.choice(away[away > 0]))  # at none the filter is not taken
    eps = float(np.nextafter(eps, rng.choice([0, np.inf, eps])))
    layout = JOINER.layout(
        "tiles", x.min(0), x.max(0), x.mean(0), x.var(0), eps, METRICS[metric]
    )
    assert layout.rounded is not None and layout.kind is np.float32
    index = JOINER.build(x, layout)
    left, right = JOINER.pairs(index, index, layout, is_self_join=True)[:2]
    assert_same_pairs(
        set(zip(left.tolist(), right.tolist(), strict=True)),
        brute_force(x, eps, metric),
    )
