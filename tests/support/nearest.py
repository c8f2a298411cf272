"""Nearest neighbors by their definition, and searches that Hypothesis draws."""

import math

import numpy as np
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.nearest import fresh
from tests.support.oracle import squared_distances
from tests.support.points import KINDS, make_points


def oracle(q, d, q_names, d_names, k, same, bound2=math.inf):
    """Search by the definition: all distances, sorted by (d2, name)."""
    best_d2, best_name = fresh(len(q), k)
    d2 = squared_distances(q, d)
    for i in range(len(q)):
        kept = np.flatnonzero((d2[i] <= bound2) & ~(same & (d_names == q_names[i])))
        if len(kept) > k:  # rows beyond the k-th distance need no sorting
            kept = kept[d2[i, kept] <= np.partition(d2[i, kept], k - 1)[k - 1]]
        kept = kept[np.lexsort((d_names[kept], d2[i, kept]))][:k]
        best_d2[i, : len(kept)], best_name[i, : len(kept)] = d2[i, kept], d_names[kept]
    return best_d2, best_name


@st.composite
def searches(draw):
    """Draw points of one side or two, names in any order, and chunks met in any order."""
    d = draw(st.one_of(st.integers(1, 7), st.integers(1, 40)))
    kind = draw(st.sampled_from(KINDS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    same = draw(st.booleans())
    n, m = (draw(st.integers(0, 300)) for _ in range(2))
    x = make_points(kind, n + (0 if same else m), d, rng)
    with np.errstate(over="ignore"):
        x = x if np.isfinite(x).all() else make_points("uniform", len(x), d, rng)
    q, data = (x, x) if same else (x[:n], x[n:])
    cuts = draw(st.lists(st.integers(0, 300), max_size=3))
    k = draw(st.sampled_from([1, 2, 3, 10, 32, 100]))
    bound2 = draw(st.sampled_from([math.inf, math.inf, "a distance", 0.0]))
    if bound2 == "a distance":
        d2 = squared_distances(q[:1], data).ravel()
        bound2 = float(rng.choice(d2)) if len(d2) else 1.0
    names = [rng.permutation(10 * len(side) + 1)[: len(side)] for side in (q, data)]
    order = draw(st.permutations(range(len(cuts) + 1)))
    filtered = draw(st.booleans())
    return q, data, k, same, *names, bound2, filtered, cuts, order
