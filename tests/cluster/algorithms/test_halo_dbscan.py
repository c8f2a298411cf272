"""Labels of chunks with halos of twice the distance, which are clustered alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster.algorithms import edges
from dask_simjoin.cluster.algorithms.halo_dbscan import (
    clusters_of_chunk,
    labels_of_chunk,
    number_shared_clusters,
)
from dask_simjoin.planning import tables
from dask_simjoin.planning.spatial_chunks import ClusterChunks
from dask_simjoin.tasks.matches import BlockPair
from tests.cluster.algorithms.test_dbscan import by_definition, labels_of
from tests.support.cluster_chunks import parts_of, planned_chunks, sent_chunks
from tests.support.density import SETS
from tests.support.points import cases, frame_of
from tests.support.profiles import every_nth, examples


@pytest.fixture(autouse=True, scope="module")
def any_halos():
    """Halos of any size."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "pay", lambda chunks, rows: True)
        yield


def labels_by_chunk(x, eps, min_samples, blocksize, cuts=(), threads=1, **options):
    """The labels, and the number of chunks; None if a chunk would be too large with its
    halo.
    """
    parts = parts_of(frame_of(x), sorted(cuts))
    spec, plan = planned_chunks(parts, eps, min_samples, blocksize, **options)
    if not isinstance(plan.chunks, ClusterChunks):
        return None, len(plan.chunks)
    groups = [list(range(k, len(parts), 2)) for k in range(min(2, len(parts)))]
    _, chunks = sent_chunks(parts, groups, spec, plan)
    pairs = [BlockPair(chunk, chunk, True, spec, plan.layout) for chunk in chunks]
    found, shared = zip(
        *(clusters_of_chunk(pair, min_samples, threads) for pair in pairs), strict=True
    )
    numbers = number_shared_clusters(*shared)
    labels = np.full(len(x), -2)
    for c, (pair, chunk) in enumerate(zip(pairs, chunks, strict=True)):
        own = labels_of_chunk(pair, c, threads, found[c], numbers)
        labels[chunk["position"][: chunk["own"]]] = own
    return labels.tolist(), len(chunks)


@pytest.mark.parametrize("name", SETS)
def test_labels_equal_those_of_one_chunk(name):
    x, eps, min_samples = SETS[name]
    x, made = np.random.default_rng(1).permutation(x), 0
    for share in (1, 3, 10):
        size = (len(x) // share + 1) * (8 * x.shape[1] + 48)
        found, number = labels_by_chunk(
            x, eps, min_samples, size, (len(x) // 3, len(x) // 2)
        )
        made = max(made, number * (found is not None))
        assert found in (None, labels_of(x, eps, min_samples))
    assert made > 1 or name not in ("moons", "chain", "all noise")


@settings(max_examples=examples(150))
@given(
    cases(max_dims=4, max_points=80),
    st.integers(1, 8),
    st.sampled_from([10, 30, 60]),
    st.integers(1, 3),
)
def test_any_points(case, min_samples, rows, threads):
    """On a lattice, many distances equal the largest one, and halos end at rows."""
    if not len(case.x):
        return
    size = rows * (8 * case.x.shape[1] + 48)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(edges, "MIN_PLACES", 4)
        found, _ = labels_by_chunk(
            case.x, case.eps, min_samples, size, case.cuts, threads
        )
    assert found in (None, by_definition(case.x, case.eps, min_samples))


@pytest.mark.parametrize(
    "metric", every_nth(5, ["manhattan", "chebyshev", ("minkowski", 3)])
)
def test_other_metrics(metric):
    name, p = (metric, 2) if isinstance(metric, str) else metric
    x = np.round(np.random.default_rng(4).uniform(size=(1500, 2)), 2)
    how = {"metric": name} | ({"p": p} if name == "minkowski" else {})
    found, number = labels_by_chunk(x, 0.02, 6, "30 kB", (500, 501), **how)
    assert number > 2 and found == frame_of(x).simjoin.dbscan(0.02, 6, **how).tolist()


def test_a_cluster_that_passes_through_all_chunks():
    """A spiral and lines beside it: components of a chunk belong together only by way
    of other chunks.
    """
    turn = np.linspace(1, 30, 4000)
    spiral = np.stack([turn * np.cos(turn), turn * np.sin(turn)], axis=1)
    apart = spiral[:500] + np.array([80.0, 0])
    x = np.random.default_rng(0).permutation(
        np.concatenate([spiral, apart, [[200.0, 0]]])
    )
    found, number = labels_by_chunk(x, 0.5, 3, "40 kB", (10, 2000, 3000))
    assert number > 4 and found == labels_of(x, 0.5, 3) and max(found) > 0
