"""Tiles of several threads, and numbers of pairs within several distances."""

import itertools
import math
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin  # noqa: F401  registers the accessor
from dask_simjoin.catalog import METHODS
from dask_simjoin.engine import process
from dask_simjoin.engine.cpu import tiles
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.tiles import tally
from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics import make_metric
from tests.engine.test_process import some_points
from tests.support.oracle import as_set, brute_force, totals
from tests.support.points import Case, cases, frame_of
from tests.support.profiles import chosen, examples, in_turns


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Give threads so little work that small indexes are made by several."""
    monkeypatch.setattr(process, "MIN_PART", 100)


@in_turns(2, dims=[1, 3, 6, 20], kind=["normal", "few values", "alike", "far"])
def test_pairs_belong_to_the_earlier_of_their_places(kind, dims):
    n, rng = 700, np.random.default_rng(dims)
    x = np.asfortranarray(some_points(kind, n, dims))
    moments = x.min(axis=0), x.max(axis=0), x.mean(axis=0), x.var(axis=0)
    every = totals(x, x)
    for share in (0.01, 0.3, 1.0):
        threshold = float(np.quantile(every, share))
        layout = JOINER.layout("tiles", *moments, threshold)
        index = JOINER.build(x, layout)
        order = index["order"][:n]
        near = every[order][:, order] <= threshold
        ends = [0, *sorted(rng.choice(np.arange(64, n, 64), 3, False).tolist()), n]
        for alone, within in ((False, near.sum(1)), (True, np.triu(near, 1).sum(1))):
            how = {"is_self_join": alone}
            found = [
                JOINER.weights(index, index, layout, rows=rows, **how)
                for rows in itertools.pairwise(ends)
            ]
            assert np.concatenate(found).tolist() == within.tolist()
            whole = JOINER.weights(index, index, layout, **how)
            assert whole.tolist() == within.tolist()


@in_turns(
    1, dims=[1, 3, 6, 20], kind=["normal", "few values", "alike", "far"], number=[2, 5]
)
def test_tiles_of_several_threads(kind, dims, number):
    n = 700
    x = np.asfortranarray(some_points(kind, n, dims))
    eps = 0.4 * dims**0.5
    for method in ("tiles", "auto"):
        moments = x.min(axis=0), x.max(axis=0), x.mean(axis=0), x.var(axis=0)
        layout = JOINER.layout(method, *moments, eps * eps)
        index, alone = (JOINER.build(x, layout, k) for k in (number, 1))
        assert {
            name: (part.dtype, part.shape)
            for name, part in index.items()
            if hasattr(part, "dtype")
        } == {
            name: (part.dtype, part.shape)
            for name, part in alone.items()
            if hasattr(part, "dtype")
        }
        assert index.get("norm") == alone.get("norm")
        found = JOINER.pairs(index, index, layout, is_self_join=True)
        pairs = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
        assert len(found.left) == len(pairs)
        assert pairs == brute_force(x, eps)


def test_one_chunk_is_indexed_by_all_threads(monkeypatch):
    x = np.random.default_rng(2).uniform(size=(3000, 2))
    ddf = dd.from_pandas(frame_of(x), npartitions=5)
    built = []
    build = JOINER.build

    def watched(x, layout, threads=1):
        built.append((len(x), threads))
        return build(x, layout, threads)

    monkeypatch.setattr(type(JOINER), "build", staticmethod(watched))
    for scheduler, number, eps in (("threads", 3, 0.02), ("sync", 1, 0.03)):
        built.clear()
        with dask.config.set(scheduler=scheduler, num_workers=3):
            pairs = ddf.simjoin.self_join(eps, partitioning="entity")
            assert as_set(pairs.compute()) == brute_force(x, eps)
        assert pairs.expr.plan.indexing.threads == number
        assert (3000, number) in built


def several(case: Case, rng: np.random.Generator) -> list[float]:
    """Distances that rows have, those next to them, and 0; in no order, some twice."""
    eps = case.eps
    near = [
        eps,
        math.nextafter(eps, math.inf),
        max(0.0, math.nextafter(eps, 0.0)),
        eps / 2,
        0.0,
        eps,
    ]
    return rng.permutation(near)[: rng.integers(1, 7)].tolist()


def check(
    x: np.ndarray, eps: list[float], metric: str = "euclidean", **options: Any
) -> None:
    frame, kind = frame_of(x), make_metric(metric, 2)
    away = totals(np.asarray(x, float), np.asarray(x, float), metric)
    near = [(away <= kind.threshold(one)) & ~np.eye(len(x), dtype=bool) for one in eps]
    found = frame.simjoin.count_pairs(eps, metric=metric, **options)
    assert found.index.tolist() == eps and found.dtype == np.int64
    assert found.tolist() == [int(some.sum()) // 2 for some in near]
    once = sorted(set(eps), reverse=True)
    counts = frame.simjoin.neighbor_counts(tuple(once), metric=metric, **options)
    assert counts.columns.tolist() == once and counts.index.equals(frame.index)
    for one in once:
        assert counts[one].tolist() == near[eps.index(one)].sum(axis=1).tolist()


@settings(max_examples=examples(150))
@given(
    cases(max_dims=12, max_points=120),
    st.sampled_from(["auto", "auto", *METHODS]),
    st.integers(0, 99),
)
def test_any_points_and_method(case: Case, method: str, seed: int) -> None:
    most = METHODS[method].max_dims if method in METHODS else None
    if most is not None and case.x.shape[1] > most:
        method = "auto"
    check(case.x, several(case, np.random.default_rng(seed)), method=method)


@settings(max_examples=examples(120))
@given(cases(max_dims=20, max_points=150), st.integers(0, 99))
def test_a_pass_of_tiles_for_each_distance(case: Case, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TALLY_NEIGHBORS", -1)
        check(case.x, several(case, np.random.default_rng(seed)), method="tiles")


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_tiles_take_passes_where_rows_have_many_neighbours(metric: str) -> None:
    x = np.random.default_rng(0).uniform(size=(3000, 4))
    x[:5] = x[5]
    frame = frame_of(x)
    far = 0.5 if metric == "euclidean" else 0.9
    eps = [0.0, 1e-15, 0.2, far, far]  # no filter serves the first two
    tried = []
    with dask.config.set(num_workers=1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tiles, "tally", lambda *given: tried.append(given) or tally(*given)
        )
        found = frame.simjoin.count_pairs(eps, metric=metric)
        assert len(tried) == 1
        assert frame.simjoin.count_pairs([0.0, 0.1], metric=metric).tolist()[0] == 15
        assert len(tried) == 1
    assert found.tolist() == [
        frame.simjoin.count_pairs(one, metric=metric) for one in eps
    ]


@settings(max_examples=examples(60))
@given(
    cases(max_dims=4, max_points=80),
    st.sampled_from(chosen(["manhattan", "chebyshev"], ["manhattan"])),
    st.integers(0, 99),
)
def test_other_metrics(case: Case, metric: str, seed: int) -> None:
    check(case.x, several(case, np.random.default_rng(seed)), metric)


@in_turns(1, partitioning=["entity", "spatial", "replicated"], dims=[2, 6])
def test_dask(dims: int, partitioning: str) -> None:
    x = np.random.default_rng(dims).integers(0, 30, (600, dims)) / 10
    frame = frame_of(x).set_index(np.arange(600)[::-1])
    lazy = dd.from_pandas(frame, npartitions=4, sort=False)
    eps = [0.3, 0.0, 0.1, 0.3, 0.2]
    how = {
        "partitioning": partitioning,
        "blocksize": None if partitioning == "replicated" else "4 kB",
    }
    for more in ({}, {"pairs": "both", "include_self": True}):
        found = lazy.simjoin.count_pairs(eps, **how, **more)
        assert (found.name, found.index.name, found.npartitions) == ("pairs", "eps", 1)
        expected = [frame.simjoin.count_pairs(one, **more) for one in eps]
        pd.testing.assert_series_equal(
            found.compute(scheduler="sync"),
            pd.Series(expected, pd.Index(eps, name="eps"), name="pairs"),
        )
    counts = lazy.simjoin.neighbor_counts(np.array(eps[1:]), **how)
    whole = counts.compute(scheduler="sync")
    pd.testing.assert_frame_equal(whole, frame.simjoin.neighbor_counts(eps[1:]))
    for one in eps[1:]:
        alone = frame.simjoin.neighbor_counts(one).rename(one)
        pd.testing.assert_series_equal(counts[one].compute(scheduler="sync"), alone)
    # values of rows go beside them, and through filters
    beside = lazy.assign(n=counts[0.2])
    assert (
        beside[beside.n > 1].compute(scheduler="sync").n.tolist()
        == whole[0.2][whole[0.2] > 1].tolist()
    )


def test_rows_that_are_left_out_and_frames_of_none() -> None:
    frame = pd.DataFrame({"x": [0.0, np.nan, 1.0, 3.0]}, index=list("abcd"))
    counts = frame.simjoin.neighbor_counts([1.0, 3.0], dropna=True)
    assert counts.index.tolist() == list("abcd")
    assert counts.to_numpy().tolist() == [[1, 2], [0, 0], [1, 2], [0, 2]]
    none = frame.iloc[:0]
    assert none.simjoin.count_pairs([1.0, 2.0]).tolist() == [0, 0]
    assert none.simjoin.neighbor_counts([1.0, 2.0]).shape == (0, 2)
    lazy = dd.from_pandas(none, npartitions=1)
    assert lazy.simjoin.count_pairs([1.0, 2.0]).compute(scheduler="sync").tolist() == [
        0,
        0,
    ]
    assert lazy.simjoin.neighbor_counts([1.0, 2.0]).compute(scheduler="sync").shape == (
        0,
        2,
    )


@pytest.mark.filterwarnings("error")
def test_a_histogram_may_go_as_far_as_rows_are_apart() -> None:
    frame = frame_of(np.random.default_rng(0).uniform(size=(600, 2)))
    assert frame.simjoin.count_pairs([0.1, 2.0]).tolist()[1] == 600 * 599 // 2


@pytest.mark.parametrize(
    ("eps", "kind", "message"),
    [
        ([], OptionError, "at least one"),
        ([0.1, -1.0], OptionError, r"eps\[1\]=-1.0"),
        ([math.inf], OptionError, r"eps\[0\]=inf"),
        ([0.1, "x"], OptionTypeError, r"eps\[1\]='x'"),
        ([[0.1]], OptionTypeError, r"eps\[0\]=\[0.1\]"),
        (np.ones((2, 2)), OptionTypeError, "2 dimensions"),
        ({0.2, 0.1}, OptionTypeError, r"no order.*eps=\[0.1, 0.2\]"),
    ],
)
@pytest.mark.parametrize("verb", ["count_pairs", "neighbor_counts"])
def test_wrong_distances(
    verb: str, eps: Any, kind: type[Exception], message: str
) -> None:
    frame = pd.DataFrame({"x": [0.0, 1.0]})
    with pytest.raises(kind, match=message):
        getattr(frame.simjoin, verb)(eps)


def test_distances_with_units_and_rows_of_equal_groups() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"lat": rng.uniform(40, 41, 300), "lon": rng.uniform(5, 6, 300)}
    )
    how = {"on": ["lat", "lon"], "metric": "haversine"}
    found = frame.simjoin.count_pairs(["5 km", 1000, "500 m"], **how)
    assert (
        found.index.tolist() == [5000, 1000, 500] and found.iloc[0] > found.iloc[1] > 0
    )
    assert found.tolist() == [
        frame.simjoin.count_pairs(one, **how) for one in (5000, "1 km", 500)
    ]
    frame["kind"] = np.arange(300) % 3
    some = frame.simjoin.count_pairs(["5 km", 0], by="kind", **how)
    assert (
        some.tolist() == [frame.simjoin.count_pairs(5000, by="kind", **how), 0]
        and some.iloc[0] > 0
    )
    with pytest.raises(OptionError, match=r"eps\[0\]='5 km' has a unit"):
        frame.simjoin.count_pairs(["5 km"], on=["lat", "lon"])


def test_where_one_distance_is_meant() -> None:
    frame = pd.DataFrame({"x": [0.0, 1.0]})
    with pytest.raises(OptionError, match=r"0\.5 more than once"):
        frame.simjoin.neighbor_counts([0.5, 1.0, 0.5])
    assert (
        frame.simjoin.count_pairs(np.float32(1.0))
        == frame.simjoin.count_pairs(np.array(1.0).item())
        == 1
    )
    with pytest.raises(OptionTypeError, match="not a number"):
        frame.simjoin.self_join([0.5, 1.0])


@pytest.mark.parametrize("method", ["sweep", "tiles", "grid", "nested_loop"])
@pytest.mark.parametrize("n", [8, 64, 200])
def test_ranges_find_each_pair_once(method, n):
    """Also empty ranges, at the end of the points, too."""
    x = np.asfortranarray(np.random.default_rng(n).random((n, 2)))
    moments = x.min(axis=0), x.max(axis=0), x.mean(axis=0), x.var(axis=0)
    layout = JOINER.layout(method, *moments, 0.04)
    index = JOINER.build(x, layout)
    cuts = [0, 0, *range(layout.grain, n, layout.grain), n, n]
    found = []
    for start, stop in itertools.pairwise(cuts):
        pairs = JOINER.pairs(
            index, index, layout, is_self_join=True, rows=(start, stop)
        )
        found += zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
    assert sorted(found) == sorted(brute_force(x, 0.2))
