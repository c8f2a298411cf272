"""Verbs on Dask-cuDF frames of float32 numbers: chunks have narrow points, and results
are the same.
"""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cudf = pytest.importorskip("dask_cudf")

from dask_simjoin.engine.compat import DIVIDED, FLOAT32, FLOAT64, storage_of
from dask_simjoin.engine.gpu.joiner import GpuJoiner
from dask_simjoin.planning import partition, table
from tests.support.gpu_frames import computed
from tests.support.narrow import float32_rows

pytestmark = pytest.mark.gpu

N, DIMS = 600, 48
EPS = {"euclidean": 5.0, "cosine": 0.15}


@pytest.fixture
def built(monkeypatch):
    """How the points of all indexes are stored that are built."""
    stored, build = [], GpuJoiner.build

    def noted(self, x, layout, threads=1):
        stored.append(storage_of(x))
        return build(self, x, layout, threads)

    monkeypatch.setattr(GpuJoiner, "build", noted)
    return stored


def rows(n=N, dims=DIMS, seed=0):
    """Half of the rows are near others."""
    rng = np.random.default_rng(seed)
    x = float32_rows("normal", n, dims, rng)
    some = n // 2
    x[some:] = x[: n - some] + rng.normal(0, 0.4, (n - some, dims)).astype(np.float32)
    return x


def as_lists(values):
    """A frame with a column of lists of float32 numbers; None is a missing list."""
    lists = [None if row is None else np.asarray(row).tolist() for row in values]
    return cudf.DataFrame.from_arrow(
        pa.table({"vector": pa.array(lists, pa.list_(pa.float32()))})
    )


def lazy(x, parts=3, lists=True, **more):
    frame = (
        as_lists(x)
        if lists
        else cudf.DataFrame({f"c{k}": x[:, k] for k in range(x.shape[1])})
    )
    for name, values in more.items():
        frame[name] = values
    return dask_cudf.from_cudf(frame, npartitions=parts, sort=False)


def both_ways(built, monkeypatch, verb, expected):
    """The result with narrow points, which some index must have, and without."""
    built.clear()
    found = verb()
    assert expected in built, built
    with monkeypatch.context() as patch:
        for module in (partition, table):
            patch.setattr(module, "supports_narrow", lambda spec, dims: False)
        built.clear()
        want = verb()
        assert set(built) == {FLOAT64}
    return found, want


def ordered(pairs):
    return pairs.sort_values(["left", "right"]).reset_index(drop=True)


STORED = {"euclidean": FLOAT32, "cosine": DIVIDED}


@pytest.mark.parametrize("metric", EPS)
@pytest.mark.parametrize("blocksize", [None, "40 kB"])
@pytest.mark.parametrize("lists", [True, False])
def test_pairs_and_counts(built, monkeypatch, metric, blocksize, lists):
    x = rows()
    on = "vector" if lists else [f"c{k}" for k in range(DIMS)]
    options = {"on": on, "metric": metric, "blocksize": blocksize}

    def joined():
        pairs = lazy(x, lists=lists).simjoin.self_join(
            EPS[metric], return_distance=True, **options
        )
        return ordered(computed(pairs))

    found, want = both_ways(built, monkeypatch, joined, STORED[metric])
    assert len(want) > 100
    pd.testing.assert_frame_equal(found, want, check_exact=True)
    for name in (
        "count_pairs",
        "neighbor_counts",
        "near_duplicated",
        "drop_near_duplicates",
        "dbscan",
    ):

        def verb(name=name):
            frame = lazy(x, lists=lists)
            more = {"min_samples": 2} if name == "dbscan" else {}
            result = getattr(frame.simjoin, name)(EPS[metric], **options, **more)
            if name == "count_pairs":
                return int(result.compute(scheduler="sync"))
            result = computed(result)
            return (
                result
                if name != "drop_near_duplicates"
                else result.index.sort_values().tolist()
            )

        found, want = both_ways(built, monkeypatch, verb, STORED[metric])
        if isinstance(found, pd.Series | pd.DataFrame):
            assert found.sort_index().equals(want.sort_index())
        else:
            assert found == want


@pytest.mark.parametrize("grouping", ["greedy", "connected"])
@pytest.mark.parametrize("keep", ["first", "last", "votes"])
def test_near_duplicates_of_any_priority(built, monkeypatch, grouping, keep):
    x, votes = rows(), np.random.default_rng(0).permutation(N)

    def verb():
        frame = lazy(x, votes=votes)
        options = {"on": "vector", "metric": "cosine", "blocksize": "40 kB"}
        marked = frame.simjoin.near_duplicated(
            0.15, keep=keep, grouping=grouping, **options
        )
        return computed(marked).sort_index().tolist()

    found, want = both_ways(built, monkeypatch, verb, DIVIDED)
    assert found == want


@pytest.mark.parametrize("metric", EPS)
def test_two_tables(built, monkeypatch, metric):
    x = rows()

    def joined(right):
        left = lazy(x[:400])
        pairs = left.simjoin.join(
            right(), EPS[metric], on="vector", metric=metric, return_distance=True
        )
        return ordered(computed(pairs))

    found, want = both_ways(
        built, monkeypatch, lambda: joined(lambda: lazy(x[300:])), STORED[metric]
    )
    assert len(want) > 50
    pd.testing.assert_frame_equal(found, want, check_exact=True)
    # float64 numbers of one table keep both in float64
    other = x[300:].astype(np.float64) + 1e-9
    built.clear()
    frame = cudf.DataFrame.from_arrow(pa.table({"vector": pa.array(other.tolist())}))
    joined(lambda: dask_cudf.from_cudf(frame, npartitions=2, sort=False))
    assert set(built) == {FLOAT64}


def test_columns_of_several_dtypes(built, monkeypatch):
    rng = np.random.default_rng(0)
    x = rows()
    frame = cudf.DataFrame({f"c{k}": x[:, k] for k in range(DIMS)})
    frame["c3"] = rng.integers(-9, 9, N).astype(np.int16)
    frame["c4"] = rng.integers(-9, 9, N)
    frame["c5"] = rng.integers(0, 2, N).astype(np.float64)
    on = list(frame.columns)

    def verb():
        parts = dask_cudf.from_cudf(frame, npartitions=3, sort=False)
        return computed(parts.simjoin.neighbor_counts(6.0, on=on)).tolist()

    found, want = both_ways(built, monkeypatch, verb, FLOAT32)
    assert found == want and sum(want) > 0
    frame["c5"] = rng.uniform(size=N)
    built.clear()
    verb()
    assert set(built) == {FLOAT64}


def test_rows_that_are_left_out(built, monkeypatch):
    x = rows()
    x[7, 3] = np.nan
    x[300:310] = 0
    lists = [None if k % 50 == 0 or 200 <= k < 400 else row for k, row in enumerate(x)]
    frame = as_lists(lists)

    def verb():
        parts = dask_cudf.from_cudf(frame, npartitions=6, sort=False)
        pairs = parts.simjoin.self_join(
            0.15,
            on="vector",
            metric="cosine",
            dropna=True,
            return_distance=True,
            blocksize="40 kB",
        )
        return ordered(computed(pairs))

    found, want = both_ways(built, monkeypatch, verb, DIVIDED)
    assert len(want) > 20
    pd.testing.assert_frame_equal(found, want, check_exact=True)


def test_what_has_no_kernels_for_narrow_points_stays_in_float64(built):
    x = rows()
    computed(lazy(x).simjoin.knn_join(lazy(x[:90]), 3, on="vector", metric="cosine"))
    computed(
        lazy(x).simjoin.self_join(
            0.15, on="vector", metric="cosine", partitioning="spatial"
        )
    )
    computed(lazy(x[:, :20]).simjoin.self_join(3.0, on="vector"))
    assert built and set(built) == {FLOAT64}
