"""HDBSCAN and spanning trees, by their definition, and equal to scikit-learn's where ties leave no choice."""

import gc
import math
import time
import tracemalloc

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster import HDBSCAN, choose_clusters, condensed_tree
from dask_simjoin.cluster.algorithms import spanning as algorithms
from dask_simjoin.cluster.algorithms.condense import condense, tell_some, told_of_all
from dask_simjoin.cluster.algorithms.spanning import SPREAD, _rows_of, in_order, merge_trees
from dask_simjoin.cluster.expressions import spanning as expressions
from dask_simjoin.cluster.expressions import spanning as tree_tasks
from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.cpu.spanning import CpuSpanner
from dask_simjoin.errors import BudgetError, ColumnError, OptionError
from dask_simjoin.graph.workers import worker_of
from dask_simjoin.planning import searches
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import TREE_SHARE
from dask_simjoin.planning.costs import Costs
from dask_simjoin.request.clusters import Choice
from tests.support.density import SETS
from tests.support.frames import computed, split
from tests.support.hierarchy import (
    Doubtful,
    clusters_by_definition,
    merges,
    numbered,
    reachability,
    tree_by_definition,
)
from tests.support.points import frame_of
from tests.support.profiles import examples

sklearn_cluster = pytest.importorskip("sklearn.cluster")


@st.composite
def points(draw, most=40):
    """Points, many of them with ties, some of them equal, some far from the origin."""
    n, d = draw(st.integers(2, most)), draw(st.sampled_from([1, 2, 3, 10]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["blobs", "lattice", "tenths", "equal", "offset", "spread", "huge"]))
    x = rng.normal(size=(n, d)) + 6 * rng.integers(0, 3, (n, 1))
    if kind in ("lattice", "tenths"):
        x = rng.integers(0, 4, (n, d)) * (0.1 if kind == "tenths" else 1.0)
    made = {"equal": np.round(x / 20), "offset": x + 1e6, "spread": np.exp(x), "huge": x * 3e153}
    return made.get(kind, x)


@st.composite
def choices(draw):
    """Which clusters are chosen, as options of the verb."""
    return {
        "cluster_selection_method": draw(st.sampled_from(["eom", "leaf"])),
        "cluster_selection_epsilon": draw(st.sampled_from([0.0, 0.0, 0.5, 2.0])),
        "max_cluster_size": draw(st.sampled_from([None, None, 8])),
        "allow_single_cluster": draw(st.booleans()),
    }


def by_definition(x, least, samples, choice, metric="euclidean"):
    most = choice["max_cluster_size"] or math.inf
    how = choice["cluster_selection_method"], choice["cluster_selection_epsilon"], most
    try:
        return clusters_by_definition(x, least, samples, *how, choice["allow_single_cluster"], metric)
    except Doubtful:
        assume(False)


def assert_same(found, want):
    label, probability, score = want
    assert found["label"].tolist() == label
    np.testing.assert_allclose(found["probability"], probability, rtol=1e-12)
    np.testing.assert_allclose(found["outlier_score"], score, rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(300))
@given(points(), st.integers(2, 8), st.integers(1, 6), choices())
def test_any_points(x, least, samples, choice):
    samples = min(samples, len(x))
    found = frame_of(x).simjoin.hdbscan(least, min_samples=samples, **choice)
    assert_same(found, by_definition(x, least, samples, choice))


@settings(max_examples=examples(50))
@given(points(), st.integers(1, 6), st.sampled_from([4, 9]), st.sampled_from(["entity", "spatial"]))
def test_any_tree_on_any_partitions(x, samples, rows, partitioning):
    """The same tree, edge by edge, and so all that is made of it; merges at each height are all there are."""
    samples = min(samples, len(x))
    edges, far = tree_by_definition(x, samples)
    frame = frame_of(x)
    tree = frame.simjoin.spanning_tree(min_samples=samples)
    assert list(zip(tree["left"], tree["right"], strict=True)) == edges
    assert tree["distance"].tolist() == far.tolist()
    dense = np.full((len(x), len(x)), np.inf)
    dense[tree["left"], tree["right"]] = dense[tree["right"], tree["left"]] = tree["distance"]
    assert merges(np.sqrt(reachability(x, samples))) == merges(dense) - {frozenset()}
    how = {"partitioning": partitioning, "blocksize": rows * (8 * x.shape[1] + 400)}
    lazy = split(frame, [len(x) // 3, len(x) // 2]).simjoin
    with dask.config.set(scheduler="sync"):
        pd.testing.assert_frame_equal(lazy.spanning_tree(min_samples=samples, **how).compute(), tree)


@pytest.mark.parametrize("samples", [1, 4, 12])
def test_nearest_rows_that_are_far_behind(samples, monkeypatch):
    x = np.random.default_rng(samples).normal(size=(70_000, 2)).round(3)
    lost = []
    behind = algorithms._behind

    def counted(near, start, beyond):
        found = behind(near, start, beyond)
        lost.append(np.count_nonzero((found[0] == 0) & (near >= 0)))
        return found

    monkeypatch.setattr(algorithms, "_behind", counted)
    found = frame_of(x).simjoin.spanning_tree(min_samples=samples)
    assert sum(lost) > 0
    parts = dd.from_pandas(frame_of(x), npartitions=3)
    pd.testing.assert_frame_equal(parts.simjoin.spanning_tree(min_samples=samples).compute(), found)
    monkeypatch.setattr(algorithms, "CLOSE_DIMS", 0)
    pd.testing.assert_frame_equal(frame_of(x).simjoin.spanning_tree(min_samples=samples), found)


def test_what_is_not_needed_any_more_is_let_go_of():
    frame = frame_of(np.random.default_rng(3).normal(size=(300_000, 2)))
    frame.iloc[:1000].simjoin.hdbscan(50, min_samples=10)
    gc.collect()
    tracemalloc.start()
    frame.simjoin.hdbscan(50, min_samples=10)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 85 * len(frame)


@pytest.mark.parametrize("apart", [1, 3, 2 * SPREAD, 2**30])
def test_rows_are_found_by_their_numbers(apart):
    own = 5 + apart * np.arange(7)
    numbers = np.array([[own[0], own[6], own[3], own[0] - 1], [own[6] + 1, own[2] + apart // 2, -1, own[1]]])
    where = {number: row for row, number in enumerate(own.tolist())}
    assert _rows_of(own, numbers).tolist() == [[where.get(n, -1) for n in row] for row in numbers.tolist()]
    assert _rows_of(own[:0], numbers).tolist() == [[-1] * 4] * 2


@settings(max_examples=examples(300))
@given(st.integers(0, 2**32), st.integers(2, 12), st.sampled_from([1, 2]), choices())
def test_equal_to_scikit_learn(seed, least, samples, choice):
    """Of points in general position with at most two samples no two edges of the tree are of one weight."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 90)), int(rng.integers(1, 10))
    x = rng.normal(size=(n, d)) + 3 * rng.integers(0, 4, (n, 1))
    choice |= {"cluster_selection_epsilon": 0.0, "max_cluster_size": None}  # which fails with NumPy 2.4
    found = frame_of(x).simjoin.hdbscan(least, min_samples=samples, **choice)
    model = sklearn_cluster.HDBSCAN(min_cluster_size=least, min_samples=samples, copy=True, **choice).fit(x)
    assert found["label"].tolist() == numbered(model.labels_)
    np.testing.assert_allclose(found["probability"], model.probabilities_, rtol=1e-9)


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32), st.integers(2, 9), st.sampled_from([None, 20]))
def test_scikit_learn_chooses_the_same_of_a_tree(seed, least, most):
    """Any tree of different distances, as deep ones are."""
    hidden = pytest.importorskip("sklearn.cluster._hdbscan._tree")
    linkage = pytest.importorskip("sklearn.cluster._hdbscan._linkage")
    rng = np.random.default_rng(seed)
    n = int(rng.integers(least, 200))
    end = np.arange(1, n)
    start = (end * rng.uniform(rng.choice([0.0, 0.9]), 1, n - 1)).astype(np.int64)
    far = np.sort(rng.exponential(size=n - 1))
    mixed = rng.permutation(n - 1)
    start, end = start[mixed], end[mixed]
    edges = np.empty(n - 1, linkage.MST_edge_dtype)
    edges["current_node"], edges["next_node"], edges["distance"] = start, end, far
    for method in ("eom", "leaf"):
        how = method, False, 0.0, most
        want = hidden.tree_to_labels(linkage.make_single_linkage(edges), least, *how)
        choice = Choice(method, max_cluster_size=most or math.inf)
        label, probability, _ = told_of_all(condense(start, end, far, least, pd.DataFrame()), choice)
        assert label.tolist() == numbered(want[0])
        np.testing.assert_allclose(probability, want[1], rtol=1e-12)


@pytest.mark.parametrize("name", ["moons", "varied", "wide", "lattice", "identical points"])
def test_any_order_of_rows_and_any_partitions(name):
    """Clusters depend neither on partitions nor, unlike those of other packages, on the order of rows."""
    x = np.random.default_rng(1).permutation(SETS[name][0])[:400]
    frame = frame_of(x)
    frame.index = frame.index + 100
    how = {"min_samples": 4, "allow_single_cluster": name == "identical points"}
    found = frame.simjoin.hdbscan(15, **how)
    mixed = np.random.default_rng(2).permutation(len(x))
    other = frame.iloc[mixed].simjoin.hdbscan(15, **how).loc[frame.index]
    assert numbered(other["label"]) == found["label"].tolist()
    assert other["probability"].tolist() == found["probability"].tolist()
    assert other["outlier_score"].tolist() == found["outlier_score"].tolist()
    ddf = dd.from_pandas(frame, npartitions=5)
    for partitioning in ("entity", "spatial"):
        size = {"partitioning": partitioning, "blocksize": 100 * (8 * x.shape[1] + 360)}
        lazy = ddf.simjoin.hdbscan(15, **how, **size)
        assert len(lazy.expr.plan.chunks) > 3 and lazy.npartitions == 5
        pd.testing.assert_frame_equal(lazy.compute(scheduler="sync"), found)


@pytest.mark.parametrize("name", ["varied", "wide", "lattice", "identical points"])
def test_rounds_that_threads_share(name, monkeypatch):
    """The tree of one chunk is the same, however its rounds are cut, and whoever finds the rest of it."""
    share_all(monkeypatch)
    x = np.random.default_rng(1).permutation(SETS[name][0])
    frame = frame_of(np.concatenate([x, x + 3]))
    want = frame.simjoin.spanning_tree(min_samples=4)
    for rounds, threads in ((1, 3), (8, 2)):
        monkeypatch.setattr(tree_tasks, "SHARED_ROUNDS", rounds)
        with dask.config.set(num_workers=threads):
            ddf = dd.from_pandas(frame, npartitions=threads)
            lazy = ddf.simjoin.spanning_tree(min_samples=4, blocksize="1 GB")
            assert len(lazy.expr.plan.chunks) == 1 and lazy.expr.plan.sharing == (threads, 1)
            pd.testing.assert_frame_equal(lazy.compute(scheduler="threads"), want)


def share_all(monkeypatch):
    """Let rounds of trees be shared, however few rows and columns there are."""
    for limit in ("SHARED_DIMS", "SHARED_ROWS", "SHARED_SECONDS", "PART_ROWS"):
        monkeypatch.setattr(searches, limit, 0 if limit == "SHARED_SECONDS" else 1)


@pytest.mark.parametrize("copies", [1, 2])
def test_rounds_that_workers_share(client, copies, monkeypatch):
    """Each makes the components for itself, does its own part each time, and tells the others of edges.

    Chunks are copied on GPUs, each of which makes its own.
    """
    share_all(monkeypatch)
    monkeypatch.setattr(Costs, "copies", lambda costs, chunks, parts: copies)
    client.get_task_stream(count=1)  # from now on tasks are noted
    since = time.time()
    x = np.random.default_rng(copies).permutation(SETS["varied"][0])
    frame = frame_of(np.concatenate([x, x + 3]))
    lazy = dd.from_pandas(frame, npartitions=2).simjoin.hdbscan(9, blocksize="1 GB")
    assert len(lazy.expr.plan.chunks) == 1 and lazy.expr.plan.sharing == (2, 2)
    pd.testing.assert_frame_equal(lazy.compute(), frame.simjoin.hdbscan(9))
    steps = ("search", "joined", "begin", "share", "round", *("index",) * (copies > 1))
    done = {step: set() for step in steps}
    for task in client.get_task_stream(start=since):
        if (step := key_split(task["key"]).rpartition("_")[2]) in done:
            done[step].add((worker_of(task["key"]) or 0, task["worker"]))
    there = sorted(client.scheduler_info(n_workers=-1)["workers"])
    assert all(each == {(0, there[0]), (1, there[1])} for each in done.values()), done


def test_on_a_cluster(client):
    frame = frame_of(SETS["moons"][0][:300])
    lazy = dd.from_pandas(frame, npartitions=2).simjoin.hdbscan(9, partitioning="entity", blocksize="50 kB")
    assert len(lazy.expr.plan.chunks) > 1
    pd.testing.assert_frame_equal(lazy.compute(), frame.simjoin.hdbscan(9))


@pytest.mark.parametrize("kind", ["even", "apart"])
def test_far_chunks_do_not_meet(kind):
    """Nor is an edge lost, where groups of chunks are far apart."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(2000, 2)) + (10 * rng.integers(0, 3, (2000, 1)) if kind == "apart" else 0)
    lazy = dd.from_pandas(frame_of(x), npartitions=3).simjoin
    tree = lazy.spanning_tree(partitioning="spatial", blocksize="30 kB", min_samples=3)
    chunks, joined = len(tree.expr.plan.chunks), len(tree.expr.plan.joined)
    assert chunks > 20 and joined < 0.8 * chunks * (chunks - 1) / 2
    want = frame_of(x).simjoin.spanning_tree(min_samples=3)
    pd.testing.assert_frame_equal(tree.compute(scheduler="sync"), want)


@pytest.mark.parametrize(
    "metric",
    ["haversine", "cosine", *(pytest.param(m, marks=pytest.mark.slow) for m in ("manhattan", "chebyshev"))],
)
def test_metrics(metric):
    x = np.random.default_rng(3).uniform(-60, 60, (120, 2))
    edges, far = tree_by_definition(x, 4, metric)
    frame = frame_of(x)
    tree = frame.simjoin.spanning_tree(min_samples=4, metric=metric, on=list(frame.columns))
    assert list(zip(tree["left"], tree["right"], strict=True)) == edges
    np.testing.assert_allclose(tree["distance"], far, rtol=1e-12)


def test_a_tree_that_fits_no_worker(monkeypatch):
    frame = frame_of(SETS["moons"][0][:200])
    lazy = dd.from_pandas(frame, npartitions=2).simjoin
    for one, each in ((lazy.hdbscan(7), 64), (lazy.hdbscan(2), 120), (lazy.spanning_tree(), 64)):
        limit = math.ceil(len(frame) * each / TREE_SHARE)
        monkeypatch.setattr(
            expressions, "resources_for", lambda library, limit=limit: Resources(limit=limit - 1)
        )
        with pytest.raises(BudgetError, match=r"spanning tree of all 200 rows, .* the smallest worker has"):
            one.compute(scheduler="sync")
        monkeypatch.setattr(expressions, "resources_for", lambda library, limit=limit: Resources(limit=limit))
        one.compute(scheduler="sync")


def test_units():
    frame = pd.DataFrame(SETS["moons"][0][:200], columns=["latitude", "longitude"])
    found, want = (
        frame.simjoin.hdbscan(4, metric="haversine", cluster_selection_epsilon=eps)
        for eps in ("20 km", 20_000)
    )
    pd.testing.assert_frame_equal(found, want)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows(rows):
    frame = frame_of(np.arange(2.0 * rows).reshape(rows, 2))
    for one in (frame, dd.from_pandas(frame, npartitions=1)):
        found, tree = one.simjoin.hdbscan(2), one.simjoin.spanning_tree(min_samples=max(rows, 1))
        if one is not frame:
            found, tree = (some.compute(scheduler="sync") for some in (found, tree))
        assert found["label"].tolist() == [-1] * rows and found["probability"].tolist() == [0.0] * rows
        assert len(tree) == max(0, rows - 1)


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_more_rows_near_a_core_row_than_there_are(parts):
    """As scikit-learn, by rows that take part; as many as a cluster has at least are not asked for."""
    frame = frame_of(np.arange(12.0).reshape(6, 2)).assign(z=[np.nan, *range(5)])
    data = dd.from_pandas(frame, npartitions=parts) if parts else frame
    how = {"dropna": True, "on": list(frame.columns)}
    for verb, least in (("spanning_tree", {}), ("hdbscan", {"min_cluster_size": 2})):
        ask = getattr(data.simjoin, verb)
        with pytest.raises(OptionError, match=r"min_samples=6 is more than the 5 rows that take.*most 5"):
            computed(ask(min_samples=6, **least, **how))
        assert len(computed(ask(min_samples=5, **least, **how))) == (4 if verb == "spanning_tree" else 5)
    assert computed(data.simjoin.hdbscan(9, **how))["label"].tolist() == [-1] * 5


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_edges_of_one_distance_are_in_the_order_of_their_rows(parts):
    """Chords whose last digits differ may be of one distance on the sphere."""
    latitude, longitude = np.meshgrid([-80.0, -60, 0, 20, 40], [-160.0, -40, 0, 80, 160], indexing="ij")
    frame = pd.DataFrame({"latitude": latitude.ravel(), "longitude": longitude.ravel()})
    data = dd.from_pandas(frame, npartitions=parts) if parts else frame
    for samples in (1, 2, 3):
        tree = computed(data.simjoin.spanning_tree(min_samples=samples, metric="haversine"))
        edges = list(zip(tree["distance"], tree["left"], tree["right"], strict=True))
        assert edges == sorted(edges) and len(edges) == 24


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_edges_are_put_in_order(edges):
    away, start, end = np.array(sorted(edges, key=lambda edge: edge[0])).reshape(-1, 3).T
    found = in_order(start, end, away.astype(float))
    assert list(zip(found[2], *found[:2], strict=True)) == sorted(edges)


@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_one_row_that_may_be_a_cluster(eps):
    for rows in (1, 2):
        x = np.zeros((rows, 2))
        found = frame_of(x).simjoin.hdbscan(2, cluster_selection_epsilon=eps, allow_single_cluster=True)
        assert_same(found, clusters_by_definition(x, 2, 2, eps=eps, single=True))


@pytest.mark.parametrize("partitioning", ["entity", "spatial"])
def test_partitions_without_rows(partitioning):
    frame = frame_of(np.random.default_rng(0).normal(size=(40, 2)))
    left_out = frame.iloc[10:20] * np.nan
    parts = [frame.iloc[:0], frame.iloc[:10], left_out, frame.iloc[20:]]
    lazy = dd.from_map(lambda part: part, parts, meta=frame.iloc[:0])
    how = {"min_samples": 5, "dropna": True}
    found = lazy.simjoin.hdbscan(3, partitioning=partitioning, blocksize=600, **how).compute()
    pd.testing.assert_frame_equal(found, pd.concat(parts).simjoin.hdbscan(3, **how))


def test_rows_left_out():
    x = np.random.default_rng(0).normal(size=(60, 2))
    frame = frame_of(x)
    frame.iloc[::7, 0] = np.nan
    kept = frame.dropna()
    found = frame.simjoin.hdbscan(4, dropna=True)
    assert found.index.tolist() == kept.index.tolist()
    assert found["label"].tolist() == kept.simjoin.hdbscan(4)["label"].tolist()
    tree = kept.simjoin.spanning_tree()
    pd.testing.assert_frame_equal(frame.simjoin.spanning_tree(dropna=True), tree)
    for partitioning in ("entity", "spatial"):
        lazy, how = split(frame, [10, 14]).simjoin, {"dropna": True, "partitioning": partitioning}
        pd.testing.assert_frame_equal(
            lazy.spanning_tree(blocksize=9_000, **how).compute(scheduler="sync"), tree
        )
        labels = lazy.hdbscan(4, blocksize=9_000, **how).compute(scheduler="sync")
        pd.testing.assert_frame_equal(labels, found)


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(1, 4))
def test_merged_trees(seed, rows, parts):
    """What is left of any edges, in parts that are in order, is what Kruskal's algorithm keeps of all."""
    rng = np.random.default_rng(seed)
    every = [[]]  # an empty forest first: the others may have circles
    for _ in range(parts):
        edges = {
            tuple(sorted(rng.choice(rows, 2, replace=False).tolist())) for _ in range(rng.integers(0, 60))
        }
        every.append(sorted((float(rng.integers(0, 5)), *edge) for edge in edges))
    columns = [
        tuple(np.array([e[k] for e in part], kind) for k, kind in enumerate(("f8", "i4", "i4")))
        for part in every
    ]
    component, want = list(range(rows)), []
    for weight, low, high in sorted(edge for part in every for edge in part):
        a, b = component[low], component[high]
        if a != b:
            want.append((weight, low, high))
            component = [a if one == b else one for one in component]
    assert (
        list(zip(*(some.tolist() for some in merge_trees(rows, pd.DataFrame(), *columns)), strict=True))
        == want
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_cluster_size": 1}, r"min_cluster_size=1 is not allowed; use a whole number >= 2"),
        ({"min_samples": 0}, r"min_samples=0 is not allowed"),
        ({"max_cluster_size": 4}, r"max_cluster_size=4 is less than min_cluster_size=5"),
        ({"cluster_selection_method": "dbscan"}, r"use one of 'eom', 'leaf'"),
        ({"cluster_selection_epsilon": -1.0}, r"cluster_selection_epsilon=-1.0 is not allowed"),
        ({"allow_single_cluster": 1}, r"use True or False"),
    ],
)
def test_options(given, message):
    with pytest.raises((OptionError, TypeError), match=message):
        frame_of(np.zeros((9, 2))).simjoin.hdbscan(**given)


@settings(max_examples=examples(50))
@given(points(), st.integers(2, 8), st.integers(1, 6), choices())
def test_condensed_trees_are_those_that_clusters_are_of(x, least, samples, choice):
    frame = frame_of(x)
    tree = frame.simjoin.spanning_tree(min_samples=samples)
    condensed = condensed_tree(tree, least)
    if choice["max_cluster_size"] is not None and choice["max_cluster_size"] < least:
        return
    chosen = choose_clusters(condensed, **choice)
    want = frame.simjoin.hdbscan(least, min_samples=samples, **choice)
    pd.testing.assert_frame_equal(chosen, want, check_index_type=False)
    n = len(x)
    sizes = condensed[condensed["child"] < n].groupby("parent").size()
    for cluster in condensed[condensed["child"] > n].itertuples():
        below = {cluster.child}
        for child, parent in zip(condensed["child"], condensed["parent"], strict=True):
            if parent in below and child > n:
                below.add(child)
        assert sum(sizes.get(own, 0) for own in below) == cluster.child_size >= least
    assert sorted(condensed.loc[condensed["child"] < n, "child"]) == list(range(n))


def test_condensed_trees_of_lazy_ones():
    frame = frame_of(SETS["moons"][0][:300])
    lazy = dd.from_pandas(frame, npartitions=2).simjoin.spanning_tree(min_samples=4)
    tree = frame.simjoin.spanning_tree(min_samples=4)
    want = condensed_tree(tree, 9)
    found = condensed_tree(lazy, 9)
    pd.testing.assert_frame_equal(found.compute(scheduler="sync"), want)
    pd.testing.assert_frame_equal(choose_clusters(found).compute(scheduler="sync"), choose_clusters(want))
    pd.testing.assert_frame_equal(condensed_tree(tree.sample(frac=1, random_state=0), 9), want)
    pd.testing.assert_frame_equal(condensed_tree(tree.convert_dtypes(), 9), want)
    for wrong in (tree.iloc[1:], tree.assign(left=0, right=1), tree.assign(distance=-tree["distance"])):
        with pytest.raises(ColumnError, match=r"are no tree of .* rows; give a whole result"):
            condensed_tree(wrong)
    with pytest.raises(ColumnError, match="no column 'left'"):
        condensed_tree(frame)
    for name, values in (("left", "a"), ("right", 0.5), ("distance", math.nan), ("left", None)):
        with pytest.raises(ColumnError, match=f"Column '{name}' of dtype .* give a whole result"):
            condensed_tree(tree.assign(**{name: values}))


def test_condensed_trees_that_were_changed_are_refused():
    """And those that were only written and read are taken; a cluster that is none is never looked up."""
    tree = condensed_tree(frame_of(SETS["moons"][0][:300]).simjoin.spanning_tree(min_samples=4), 9)
    want = choose_clusters(tree)
    for same in (tree.astype(float), tree.convert_dtypes(), tree.astype(str).astype(float)):
        pd.testing.assert_frame_equal(choose_clusters(same), want)
    later = pd.Series([10**6], index=[5])
    for wrong in (tree[1:], tree.assign(parent=later.reindex(tree.index, fill_value=300)),
                  tree.assign(lambda_val=-tree["lambda_val"])):  # fmt: skip
        with pytest.raises(ColumnError, match=r"are no whole condensed tree; give all rows"):
            choose_clusters(wrong)
    for name, values in (("parent", "a"), ("child", 0.5), ("lambda_val", math.nan), ("child_size", math.nan)):
        with pytest.raises(ColumnError, match=rf"'{name}' of dtype .* give a whole result of condensed_tree"):
            choose_clusters(tree.assign(**{name: values}))


KERNELS = "measure", "most_stable", "name_clusters", "label_rows"


def test_estimator():
    x = SETS["moons"][0][:300]
    want = frame_of(x).simjoin.hdbscan(9, min_samples=4)
    model = HDBSCAN(9, min_samples=4).fit(x)
    assert model.labels_.tolist() == want["label"].tolist() and model.n_features_in_ == 2
    assert model.probabilities_.tolist() == want["probability"].tolist()
    assert model.outlier_scores_.tolist() == want["outlier_score"].tolist()
    lazy = HDBSCAN(9, min_samples=4).fit(da.from_array(x, chunks=(100, 2)))
    assert lazy.labels_.chunks == ((100, 100, 100),)
    assert lazy.labels_.compute(scheduler="sync").tolist() == want["label"].tolist()
    assert HDBSCAN(9, min_samples=4).fit_predict(frame_of(x)).tolist() == want["label"].tolist()


def test_what_trees_take_is_prepared_while_rows_are_searched(monkeypatch):
    asked = []
    monkeypatch.setattr(CpuSpanner, "prepare", staticmethod(lambda *more: asked.append(more)))
    frame = frame_of(np.random.default_rng(0).normal(size=(300, 2)))
    frame.simjoin.hdbscan(5)
    assert len(asked) == 1
    with dask.config.set(scheduler="sync"):
        dd.from_pandas(frame, npartitions=3).simjoin.spanning_tree().compute()
    assert len(asked) > 1


def test_what_is_compiled_for_two_rows_is_what_all_take():
    kernels = host_kernels("hierarchy")

    def compiled():
        return [list(getattr(kernels, name).signatures) for name in KERNELS]

    tell_some()
    before = compiled()
    found = frame_of(np.random.default_rng(0).normal(size=(300, 2))).simjoin.hdbscan(5)
    assert all(before) and compiled() == before and len(found) == 300
