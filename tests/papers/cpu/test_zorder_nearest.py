"""Nearest neighbours by lists in Z-order: those of the definition, or with the first
step alone near ones.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.nearest import SEARCHER, fresh, renamed
from dask_simjoin.errors import ApproximateWarning, OptionError
from dask_simjoin.methods import Grid, ZOrder
from dask_simjoin.metrics import norms
from dask_simjoin.papers.cpu.zorder import build_nearest, nearest
from tests.support.frames import computed, lay
from tests.support.nearest import oracle, searches
from tests.support.oracle import squared_distances
from tests.support.points import frame_of, make_points
from tests.support.profiles import chosen, examples

any_lists = st.builds(
    ZOrder,
    lists=st.sampled_from(["auto", 1, 3, 5, "log"]),
    shifts=st.sampled_from(["even", "random"]),
    words=st.sampled_from([1, 2]),
)


def layout_of(x, options=None, approximate=False, norm=2):
    x = x if len(x) else np.zeros((1, x.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = np.nan_to_num(x.mean(axis=0)), np.nan_to_num(x.var(axis=0))
    return SEARCHER.layout(
        x.min(axis=0),
        x.max(axis=0),
        mean,
        variance,
        x,
        norm,
        options or ZOrder(),
        approximate,
    )


def search(
    q, d, q_names, d_names, k, same, layout, bound2=math.inf, cuts=(), order=None
):
    """By chunks: both sides cut at `cuts`; each query chunk meets data chunks in
    `order`.
    """
    results = []

    def chunks(x, names):
        bounds = [0, *sorted(min(c, len(x)) for c in cuts), len(x)]
        return [
            renamed(build_nearest(x[a:b]), names[a:b])
            for a, b in itertools.pairwise(bounds)
        ]

    data = chunks(d, d_names)
    for chunk in data if q is d else chunks(q, q_names):
        state = fresh(len(chunk["names"]), k)
        for n in order if order is not None else range(len(data)):
            nearest(chunk, data[n], layout, *state, is_self_join=same, bound2=bound2)
        results.append(state)
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


@settings(max_examples=examples(200), deadline=None)
@given(searches(), any_lists)
def test_any_points(case, options):
    q, d, k, same, q_names, d_names, bound2, _, cuts, order = case
    layout = layout_of(np.concatenate([q, d]), options)
    d_names = q_names if q is d else d_names
    found = search(q, d, q_names, d_names, k, same, layout, bound2, cuts, order)
    expected = oracle(q, d, q_names, d_names, k, same, bound2)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])
    near, names = search(
        q,
        d,
        q_names,
        d_names,
        k,
        same,
        layout_of(np.concatenate([q, d]), options, True),
        bound2,
        cuts,
        order,
    )
    # the best of fewer rows, each at its own distance, each once
    assert (near >= expected[0]).all()
    place = {int(name): n for n, name in enumerate(d_names)}
    d2 = squared_distances(q, d)
    for row, (some, theirs) in enumerate(
        zip(near.tolist(), names.tolist(), strict=True)
    ):
        kept = [name for name in theirs if name >= 0]
        assert len(kept) == len(set(kept)) and theirs == kept + [-1] * (k - len(kept))
        assert some[: len(kept)] == [d2[row, place[name]] for name in kept]
        assert not same or q_names[row] not in kept


@pytest.mark.parametrize("dims", chosen([1, 2, 4, 8], [1, 4]))
def test_lattice_ties(dims):
    """Many rows at the same distance, and of one key: the smaller name wins."""
    side = {1: 60, 2: 9, 4: 3, 8: 2}[dims]
    x = np.array(list(itertools.product(range(side), repeat=dims)), float)
    rng = np.random.default_rng(dims)
    x, names = (
        np.repeat(rng.permutation(x), 2, axis=0) / 3,
        rng.permutation(2 * side**dims),
    )
    for k, approximate in (
        (1, False),
        (11, False),
        (40, False),
        (len(x) - 1, True),
        (len(x) + 5, False),
    ):
        found = search(
            x,
            x,
            names,
            names,
            k,
            True,
            layout_of(x, None, approximate),
            cuts=(len(x) // 3,),
        )
        expected = oracle(x, x, names, names, k, True)
        np.testing.assert_array_equal(found[1], expected[1])


def test_a_row_that_is_counted_twice_loses_neighbours():
    """What the paper's K_p would be if a row in several lists were several: too near a
    bound.
    """
    rng = np.random.default_rng(0)
    x, k = rng.uniform(size=(400, 8)), 6
    d2 = squared_distances(x, x)
    layout = layout_of(x, ZOrder(lists=5), True)
    alone = layout_of(x, ZOrder(lists=1), True)
    names = np.arange(400)
    few, _ = search(x, x, names, names, 2, True, alone)
    bound = few[:, -1]  # of the six places that three lists give two rows each
    near, _ = search(x, x, names, names, k, True, layout)
    lost = [
        int((row <= limit).sum()) - 1 < k for row, limit in zip(d2, bound, strict=True)
    ]
    assert np.mean(lost) > 0.2
    assert all(
        (row <= limit).sum() - 1 >= k
        for row, limit in zip(d2, near[:, -1], strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("norm", chosen([1, 3, math.inf], [3]))
def test_other_norms(norm):
    x = make_points("lattice", 150, 3, np.random.default_rng(1))
    names = np.arange(150)
    found = search(x, x, names, names, 5, True, layout_of(x, norm=norm), cuts=(40,))
    total = np.zeros((150, 150))
    for c in range(3):
        total = norms.add(total, np.abs(x[:, None, c] - x[None, :, c]), norm)
    np.fill_diagonal(total, np.inf)
    assert found[0].tolist() == np.sort(total, axis=1)[:, :5].tolist()


@pytest.mark.parametrize("norm", [1, 2, 3, 7, math.inf])
def test_each_bound_is_that_of_one_threshold(norm):
    rng = np.random.default_rng(0)
    some = np.concatenate(
        [[0.0, 5e-324, 2.0**-1022, 1e308, np.inf], 2.0 ** rng.uniform(-300, 300, 200)]
    )
    found = norms.reaches(norm, some)
    one = np.array([norms.reach(norm, float(value)) for value in some])
    assert (found >= one * (1 - 2.0**-52)).all() and (
        found <= one * (1 + 2.0**-50)
    ).all()


@pytest.mark.slow
def test_verbs_find_the_rows_that_tiles_find(how):
    x = np.random.default_rng(4).exponential(1.0, (500, 3))
    frame = lay(frame_of(np.concatenate([x, x[:50]])), how)
    cut = {} if how == "pandas" else {"blocksize": "6 kB"}
    for asked in ({"k": 3}, {"k": 2, "max_distance": 0.2}):
        expected, found = (
            computed(frame.simjoin.knn_join(method=method, **asked, **cut)).reset_index(
                drop=True
            )
            for method in ("auto", ZOrder(lists=3))
        )
        pd.testing.assert_frame_equal(found, expected)
    assert "lists in Z-order" in repr(frame.simjoin.plan(k=3, method="zorder"))
    two = computed(
        frame.simjoin.knn_join(frame, 2, method="zorder", **cut)
    ).reset_index(drop=True)
    every = computed(frame.simjoin.knn_join(frame, 2, **cut)).reset_index(drop=True)
    pd.testing.assert_frame_equal(two, every)


def test_the_first_step_alone_warns_and_tells_near_rows():
    frame = frame_of(np.random.default_rng(5).uniform(size=(600, 4)))
    exact = frame.simjoin.knn_join(k=5)
    with pytest.warns(ApproximateWarning, match="may miss nearer ones"):
        found = frame.simjoin.knn_join(k=5, method="zorder", approximate=True)
    assert found[["left", "rank"]].equals(exact[["left", "rank"]])
    assert (found.distance >= exact.distance).all()
    common = len(found.merge(exact, on=["left", "right"]))
    assert 0.5 * len(exact) < common < len(exact)
    with pytest.warns(ApproximateWarning):
        plan = frame.simjoin.plan(k=5, method="zorder", approximate=True)
    assert plan.recall == common / len(exact)


def test_methods_that_search_nothing_are_refused():
    frame = frame_of(np.random.default_rng(5).uniform(size=(9, 2)))
    with pytest.raises(
        OptionError,
        match=r"method='grid' is not allowed; use one of 'auto', 'tiles', 'zorder'",
    ):
        frame.simjoin.knn_join(k=1, method="grid")
    with pytest.raises(
        OptionError,
        match=r"method='grid' does not search nearest neighbors; .* 'tiles'",
    ):
        frame.simjoin.knn_join(k=1, method=Grid())
    with pytest.raises(
        OptionError,
        match=r"approximate=True .* method='tiles'.* or use method='zorder'",
    ):
        frame.simjoin.knn_join(k=1, method="tiles", approximate=True)
