"""Minimum spanning trees of chunks: found, merged and put in order."""

import tracemalloc

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster.algorithms.spanning import in_order, merge_trees
from tests.support.frames import computed
from tests.support.hierarchy import (
    tree_by_definition,
)
from tests.support.points import frame_of, make_points, without_overflow
from tests.support.profiles import examples, in_turns


@pytest.mark.slow
def test_what_is_not_needed_any_more_is_let_go_of():
    frame = frame_of(np.random.default_rng(3).normal(size=(300_000, 2)))
    frame.simjoin.hdbscan(50, min_samples=10, threads=1)  # compiles all kernels
    tracemalloc.start()
    frame.simjoin.hdbscan(50, min_samples=10, threads=1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 105 * len(frame)


@in_turns(1, dims=[2, 8], kind=["clusters", "lattice", "scales"])
def test_any_number_of_threads_finds_the_same_tree(kind, dims):
    """Threads replace the best edges of the same components; many edges tie."""
    rng = np.random.default_rng(dims)
    frame = frame_of(without_overflow(make_points(kind, 8000, dims, rng)))
    one, *others = (
        frame.simjoin.spanning_tree(min_samples=4, threads=threads)
        for threads in (1, 2, 7, 32)
    )
    for other in others:
        pd.testing.assert_frame_equal(other, one)


@pytest.mark.parametrize("dims", [3, 10])
def test_rows_between_clusters(dims):
    """Tiles have few rows of other components, and few rows of a tile search."""
    rng = np.random.default_rng(dims)
    x = rng.normal(size=(4, 120, dims)) + 12 * rng.random((4, 1, dims))
    x = np.concatenate([*x, rng.uniform(-2, 14, (40, dims))])
    x = rng.permutation(x)
    for samples in (1, 6):
        edges, _ = tree_by_definition(x, samples)
        tree = frame_of(x).simjoin.spanning_tree(min_samples=samples)
        assert list(zip(tree["left"], tree["right"], strict=True)) == edges


@pytest.mark.parametrize(
    "metric",
    [
        "haversine",
        "cosine",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("manhattan", "chebyshev")),
    ],
)
def test_metrics(metric):
    x = np.random.default_rng(3).uniform(-60, 60, (120, 2))
    edges, far = tree_by_definition(x, 4, metric)
    frame = frame_of(x)
    tree = frame.simjoin.spanning_tree(
        min_samples=4, metric=metric, on=list(frame.columns)
    )
    assert list(zip(tree["left"], tree["right"], strict=True)) == edges
    np.testing.assert_allclose(tree["distance"], far, rtol=1e-12)


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_edges_of_one_distance_are_in_the_order_of_their_rows(parts):
    """Chords whose last digits differ may be of one distance on the sphere."""
    latitude, longitude = np.meshgrid(
        [-80.0, -60, 0, 20, 40], [-160.0, -40, 0, 80, 160], indexing="ij"
    )
    frame = pd.DataFrame({"latitude": latitude.ravel(), "longitude": longitude.ravel()})
    data = dd.from_pandas(frame, npartitions=parts) if parts else frame
    for samples in (1, 2, 3):
        tree = computed(
            data.simjoin.spanning_tree(min_samples=samples, metric="haversine")
        )
        edges = list(zip(tree["distance"], tree["left"], tree["right"], strict=True))
        assert edges == sorted(edges) and len(edges) == 24


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), max_size=20
    )
)
def test_edges_are_put_in_order(edges):
    away, start, end = (
        np.array(sorted(edges, key=lambda edge: edge[0])).reshape(-1, 3).T
    )
    found = in_order(start, end, away.astype(float))
    assert list(zip(found[2], *found[:2], strict=True)) == sorted(edges)


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(1, 4))
def test_merged_trees(seed, rows, parts):
    """What is left of any edges, in parts that are in order, is what Kruskal's
    algorithm keeps of all.
    """
    rng = np.random.default_rng(seed)
    every = [[]]  # an empty forest first: the others may have circles
    for _ in range(parts):
        edges = {
            tuple(sorted(rng.choice(rows, 2, replace=False).tolist()))
            for _ in range(rng.integers(0, 60))
        }
        every.append(sorted((float(rng.integers(0, 5)), *edge) for edge in edges))
    columns = [
        tuple(
            np.array([e[k] for e in part], kind)
            for k, kind in enumerate(("f8", "i4", "i4"))
        )
        for part in every
    ]
    component, want = list(range(rows)), []
    for weight, low, high in sorted(edge for part in every for edge in part):
        a, b = component[low], component[high]
        if a != b:
            want.append((weight, low, high))
            component = [a if one == b else one for one in component]
    assert (
        list(
            zip(
                *(
                    some.tolist()
                    for some in merge_trees(rows, pd.DataFrame(), *columns)
                ),
                strict=True,
            )
        )
        == want
    )
