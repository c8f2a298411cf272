"""Rows for every metric that the engines serve."""

import math

import numpy as np
import pytest
from hypothesis import strategies as st

from dask_simjoin.metrics import make_metric
from tests.support.oracle import distances
from tests.support.points import make_points

ENGINE = [
    ("sqeuclidean", 2),
    ("manhattan", 2),
    ("chebyshev", 2),
    ("minkowski", 3),
    ("minkowski", 2),
    ("cosine", 2),
    ("haversine", 2),
]
"""Metrics that the engines serve, with p."""

FORMULAS = [("hamming", 2), ("canberra", 2), ("braycurtis", 2)]
"""Metrics that are no norms, which verbs with conditions serve."""

EUCLIDEAN = [("sqeuclidean", 2), ("minkowski", 2)]
"""Those that kernels compute as they do euclidean."""


def of_all_norms(metrics):
    """Return parameters (metric, p); where euclidean is among them, what kernels compute
    alike is marked slow.
    """
    alike = EUCLIDEAN if ("euclidean", 2) in metrics else EUCLIDEAN[1:]
    return [
        pytest.param(*one, marks=pytest.mark.slow if one in alike else ())
        for one in metrics
    ]


def make_rows(metric, n, d, rng):
    """Draw rows that a metric accepts, many of them equal, opposite or on a boundary."""
    if metric == "haversine":
        ends = np.array([-180.0, 180, -90, 90, 0, -0.0, 45, 179.999999])
        spread = float(rng.choice([1e-9, 1e-3, 1, 90]))
        x = rng.uniform(-1, 1, (n, 2)) * [spread, 2 * spread]
        x[:, 0] = np.where(
            rng.uniform(size=n) < 0.3, rng.choice([90.0, -90, 0], n), x[:, 0]
        )
        x[:, 1] = np.where(rng.uniform(size=n) < 0.4, rng.choice(ends, n), x[:, 1])
        return x[rng.integers(0, max(n, 1), n)]
    kinds = ["uniform", "clusters", "lattice", "duplicates", "huge", "tiny"]
    x = make_points(str(rng.choice(kinds)), n, d, rng)
    if metric == "braycurtis":
        return np.abs(x)
    if metric == "cosine":
        x[rng.uniform(size=n) < 0.3] *= -(2.0**-20)
        x[(x == 0).all(axis=1)] = 1.0
    return x


@st.composite
def metric_cases(draw, most=60, metrics=ENGINE):
    """Draw a metric, rows, and an eps that equals some distances, or is one unit in the
    last place away.
    """
    metric, p = draw(st.sampled_from(metrics))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = make_rows(metric, draw(st.integers(0, most)), draw(st.integers(1, 12)), rng)
    eps = draw(st.sampled_from([0.0, 0.5, 1e4]))
    if len(x) > 1 and draw(st.booleans()):
        away = np.sort(distances(x, x, metric, p)[np.triu_indices(len(x), 1)])
        eps = float(
            away[
                int(draw(st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0])) * (len(away) - 1))
            ]
        )
        eps = min(
            math.nextafter(eps, draw(st.sampled_from([0.0, eps, math.inf]))),
            make_metric(metric, p).largest_eps(),
        )
    return metric, p, x, eps
