"""Clusterings of cuDF frames say what they say of pandas frames."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cudf = pytest.importorskip("dask_cudf")

import dask_simjoin
from dask_simjoin.cluster import cluster_optics_dbscan
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.index.gpu import ENGINES, make_device_layout
from dask_simjoin.tasks.counts import new_nodes
from tests.support.density import SETS
from tests.support.gpu_frames import computed, lay
from tests.support.gpu_kernels import layout_for
from tests.support.gpu_programs import SINKS, join_programs, search_programs
from tests.support.oracle import brute_force, squared_distances
from tests.support.points import cases, frame_of
from tests.support.profiles import chosen, examples

pytestmark = pytest.mark.gpu


DIMS = chosen([*range(1, 13)], [1, 2, 3, 5, 9, 12])
"""Every number of dimensions is compiled by itself, which takes longer than these
tests: so, some.
"""

WAYS = [(1, "auto"), (7, "entity"), (5, "spatial"), (40, "entity")]


def programs():
    few = (
        join_programs([1, 2, 3, 4])
        + join_programs([17], ["float16"])
        + search_programs([1, 2, 3, 4, 16, 17])
    )
    return few + join_programs(DIMS, ENGINES, SINKS, labels=[True])


@pytest.mark.parametrize("name", SETS)
def test_labels_are_those_of_pandas(name):
    x, eps, min_samples = SETS[name]
    frame = frame_of(np.random.default_rng(1).permutation(x))
    want = frame.simjoin.dbscan(eps, min_samples).tolist()
    assert (
        computed(lay(frame, "cudf").simjoin.dbscan(eps, min_samples)).tolist() == want
    )
    for partitions, partitioning in WAYS:
        ddf = dask_cudf.from_cudf(
            cudf.from_pandas(frame), npartitions=partitions, sort=False
        )
        how = {"partitioning": partitioning, "blocksize": max(1, len(x) // 8) * 64}
        labels = ddf.simjoin.dbscan(
            eps, min_samples, **({} if partitioning == "auto" else how)
        )
        assert computed(labels).tolist() == want
    assert computed(ddf.assign(label=labels).label).tolist() == want


def test_labels_of_many_rows_are_those_of_pandas():
    """Threads that meet: of a few hundred rows most are tied one after the other."""
    rng = np.random.default_rng(0)
    for x, eps, min_samples in (
        (rng.random((1_000_000, 2), np.float32), 0.00178, 11),
        (rng.normal(size=(300_000, 2)) * 0.01, 0.0002, 5),
        (rng.permutation(np.arange(500_000.0))[:, None], 1.0, 3),
    ):
        frame = frame_of(x)
        want = frame.simjoin.dbscan(eps, min_samples).to_numpy()
        for _ in range(3):
            found = lay(frame, "cudf").simjoin.dbscan(eps, min_samples).to_numpy()
            assert (found != want).sum() == 0


@pytest.mark.parametrize(
    "name", [name for name in SETS if SETS[name][2] > 1 and "border" not in name]
)
@pytest.mark.parametrize("mode", ["edges", "forest"])
def test_orders_are_those_of_pandas(name, mode):
    x, eps, min_samples = SETS[name]
    frame = frame_of(np.random.default_rng(1).permutation(x)[:700])
    want = frame.simjoin.optics(2 * eps, min_samples, mode=mode)
    found = lay(frame, "cudf").simjoin.optics(2 * eps, min_samples, mode=mode)
    assert isinstance(found, cudf.DataFrame)
    pd.testing.assert_frame_equal(found.to_pandas(), want)
    labels = cluster_optics_dbscan(found, eps)
    assert labels.to_pandas().tolist() == cluster_optics_dbscan(want, eps).tolist()
    for partitions, partitioning in WAYS[:3]:
        ddf = dask_cudf.from_cudf(
            cudf.from_pandas(frame), npartitions=partitions, sort=False
        )
        how = (
            {}
            if partitioning == "auto"
            else {"partitioning": partitioning, "blocksize": 150 * 150}
        )
        order = ddf.simjoin.optics(2 * eps, min_samples, mode=mode, **how)
        pd.testing.assert_frame_equal(computed(order), want)
    assert (
        computed(cluster_optics_dbscan(order, eps)).tolist()
        == labels.to_pandas().tolist()
    )


@settings(max_examples=examples(150), deadline=None)
@given(
    cases(max_dims=12, max_points=60), st.integers(1, 8), st.sampled_from([*ENGINES])
)
def test_any_points_on_every_engine(case, min_samples, engine):
    """Ties, borders and roots, of one index and of two, with both types of nodes."""
    x = case.x[:, : max(d for d in DIMS if d <= case.x.shape[1])].astype(np.float64)
    n = len(x)
    near = squared_distances(x, x) <= case.eps * case.eps
    core = near.sum(1) >= min_samples
    edges = near & core[:, None] & core
    want = np.arange(n)
    for _ in range(n):
        want = np.array(
            [
                want[row].min() if row.any() else i
                for i, row in zip(want, edges, strict=True)
            ],
            int,
        )
    low = np.array([np.flatnonzero(row & core).min(initial=n) for row in near], int)
    layout = layout_for(x, case.eps, engine)
    ends = [0, *case.cuts, n]
    parts = [
        (a, JOINER.build(cupy.asarray(x[a:b]), layout))
        for a, b in itertools.pairwise(ends)
    ]
    taking, labels = (
        cupy.asarray(core),
        cupy.where(cupy.asarray(core), cupy.arange(n), -1),
    )
    for kind in (np.int32, np.int64):
        parent = new_nodes(n, cupy).astype(kind)
        lowest = cupy.full(n, n)
        for k, (a, q) in enumerate(parts):
            for b, d in parts[k:]:
                same = a == b and q is d
                sides = [
                    slice(s, s + len(index["order"])) for s, index in ((a, q), (b, d))
                ]
                sets = (taking[sides[0]], taking[sides[1]])
                if same:
                    some = new_nodes(len(sets[0]), cupy).astype(kind)
                    JOINER.connect(q, q, layout, some, sets, 0, is_self_join=True)
                    JOINER.link(parent, cupy.arange(len(some)) + a, some + a)
                else:
                    some = new_nodes(len(sets[0]) + len(sets[1]), cupy).astype(kind)
                    JOINER.connect(
                        q, d, layout, some, sets, len(sets[0]), is_self_join=False
                    )
                    name = cupy.concatenate(
                        [cupy.arange(s.start, s.stop) for s in sides]
                    )
                    JOINER.link(parent, name, name[some])
                JOINER.lowest(
                    q,
                    d,
                    layout,
                    [labels[s] for s in sides],
                    [lowest[s] for s in sides],
                    is_self_join=same,
                )
        JOINER.roots(parent)
        assert parent[taking].tolist() == want[core].tolist()
        assert lowest[~taking].tolist() == low[~core].tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_dense_points_through_full_stages(engine):
    """Far more pairs than a warp stages, in sets of all sizes."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(k * 9, 0.2, (300 * (k + 1), 9)) for k in range(5)])
    x = rng.permutation(x)
    layout = make_device_layout(x.min(0), x.max(0), x.mean(0), x.var(0), 2.25, engine)
    index = JOINER.build(cupy.asarray(x), layout)
    every = cupy.ones(len(x), bool)
    parent = new_nodes(len(x), cupy)
    JOINER.connect(index, index, layout, parent, (every, every), 0, is_self_join=True)
    JOINER.roots(parent)
    group = np.rint(x.mean(1) / 9).astype(int)
    first = np.array([np.flatnonzero(group == k)[0] for k in range(5)])
    assert parent.tolist() == first[group].tolist()
    shown = []

    def visitor(left, right, squared):
        shown.append(cupy.stack([left, right, squared]).get())

    JOINER.visit(index, index, layout, visitor, is_self_join=True)
    left, right, squared = np.concatenate(shown, axis=1)
    places = np.stack([left, right], axis=1).astype(int)
    assert {tuple(sorted(p)) for p in places.tolist()} == brute_force(x, 1.5) and len(
        left
    ) > 200_000
    assert (squared == squared_distances(x, x)[tuple(places.T)]).all()


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("k", [1, 12])
def test_k_distances_are_those_of_pandas(name, k):
    x = SETS[name][0]
    frame = frame_of(np.random.default_rng(1).permutation(x))
    want = frame.simjoin.k_distances(k)
    found = lay(frame, "cudf").simjoin.k_distances(k)
    assert isinstance(found, cudf.Series)
    pd.testing.assert_series_equal(found.to_pandas(), want)
    for partitions, partitioning in WAYS[:3]:
        ddf = dask_cudf.from_cudf(
            cudf.from_pandas(frame), npartitions=partitions, sort=False
        )
        how = {"partitioning": partitioning, "blocksize": max(1, len(x) // 5) * 200}
        distances = ddf.simjoin.k_distances(
            k, **({} if partitioning == "auto" else how)
        )
        pd.testing.assert_series_equal(computed(distances), want)


def test_k_distances_of_many_rows_are_those_of_pandas():
    rng = np.random.default_rng(0)
    for x in (
        rng.random((300_000, 2)),
        rng.standard_cauchy((100_000, 3)),
        rng.exponential(size=(20_000, 16)),
    ):
        frame = frame_of(x)
        found = lay(frame, "cudf").simjoin.k_distances(10).to_pandas()
        pd.testing.assert_series_equal(found, frame.simjoin.k_distances(10))


def test_rows_left_out_have_no_label():
    frame = frame_of(SETS["moons"][0])
    frame.loc[::9, "c0"] = np.nan
    want = frame.simjoin.dbscan(0.1, 5, dropna=True)
    for how in ("cudf", "dask-1", "dask-4"):
        labels = computed(lay(frame, how).simjoin.dbscan(0.1, 5, dropna=True))
        assert (
            labels.tolist() == want.tolist()
            and labels.index.tolist() == want.index.tolist()
        )


@pytest.mark.parametrize("text", [False, True])
def test_connected_components(text):
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 400, (300, 2))
    pairs = pd.DataFrame(numbers, columns=["left", "right"])
    if text:
        pairs = pairs.map(lambda k: f"id {k:03}")
    want = dask_simjoin.connected_components(pairs)
    for how in ("cudf", "dask-1", "dask-4"):
        found = computed(dask_simjoin.connected_components(lay(pairs, how)))
        assert found.id.tolist() == want.id.tolist()
        assert found.component.tolist() == want.component.tolist()


@pytest.mark.parametrize("grouping", ["greedy", "connected"])
@pytest.mark.parametrize("keep", ["first", "last", "v", False])
def test_near_duplicates_are_those_of_pandas(keep, grouping):
    rng = np.random.default_rng(7)
    frame = frame_of(rng.uniform(size=(3000, 2))).assign(v=rng.integers(0, 9, 3000) / 2)
    frame.loc[::11, "v"] = np.nan
    how = {"keep": keep, "grouping": grouping, "on": ["c0", "c1"]}
    want = frame.simjoin.near_duplicated(0.02, **how).tolist()
    assert 0 < sum(want) < 3000
    assert (
        computed(lay(frame, "cudf").simjoin.near_duplicated(0.02, **how)).tolist()
        == want
    )
    for partitions, partitioning in WAYS[1:3]:
        ddf = dask_cudf.from_cudf(
            cudf.from_pandas(frame), npartitions=partitions, sort=False
        )
        cut = {"partitioning": partitioning, "blocksize": 400 * 64}
        assert (
            computed(ddf.simjoin.near_duplicated(0.02, **how, **cut)).tolist() == want
        )
        once = computed(ddf.simjoin.drop_near_duplicates(0.02, **how, **cut))
        assert once.index.tolist() == np.flatnonzero(~np.array(want)).tolist()
