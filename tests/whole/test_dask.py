"""Joins as Dask collections: lazy, planned once, aligned, and computing no more than
asked for.
"""

import itertools
import time
from dataclasses import replace

import cloudpickle
import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.base import tokenize
from dask.callbacks import Callback
from dask.dataframe.utils import assert_eq
from hypothesis import given, settings

from dask_simjoin import errors
from dask_simjoin.graph import planner
from dask_simjoin.graph.row_cache import ROWS
from dask_simjoin.planning.checks import MAX_ROWS, check_rows
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.options import current_settings
from dask_simjoin.request.requests import SelfJoinRequest
from dask_simjoin.request.spec import ChunkOptions
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.points import cases, frame_of
from tests.support.profiles import examples

EPS = 0.05

HUNDRED = {"partitioning": "entity", "blocksize": 100 * 24}
"""Chunks of 100 rows of two coordinates and an id."""


@pytest.fixture(autouse=True)
def one_partition_of_each_block_pair():
    with dask.config.set({"simjoin.output-size": "1 GiB"}):
        yield


class Tasks(Callback):
    """Names of the tasks that a local scheduler runs."""

    def __init__(self):
        self.keys = []

    def _posttask(self, key, value, dsk, state, worker_id):
        self.keys.append(key)

    def named(self, part):
        return [k for k in self.keys if part in (k if isinstance(k, str) else k[0])]


@pytest.fixture
def x():
    return np.random.default_rng(0).uniform(size=(600, 2))


@pytest.fixture
def ddf(x):
    return dd.from_pandas(frame_of(x), npartitions=6)


@pytest.fixture(params=["fsspec", "arrow"])
def parquet(request, x, tmp_path):
    """Six files of which a join reads two columns of many: Dask would merge such
    partitions.
    """
    frame = frame_of(x)
    for k in range(12):
        frame[f"text{k}"] = "some long text that nobody reads"
    dd.from_pandas(frame, npartitions=6).to_parquet(tmp_path / "points")
    return dd.read_parquet(tmp_path / "points", filesystem=request.param)


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
@pytest.mark.parametrize("npartitions", [1, 2, 7])
def test_the_same_pairs_on_every_scheduler_and_partitioning(x, npartitions, scheduler):
    ddf = dd.from_pandas(frame_of(x), npartitions=npartitions)
    pairs = ddf.simjoin.self_join(EPS, return_distance=True).compute(
        scheduler=scheduler
    )
    assert_same_pairs(as_set(pairs), brute_force(x, EPS))
    assert ddf.simjoin.count_pairs(EPS).compute(scheduler=scheduler) == len(pairs)


@settings(max_examples=examples(25))
@given(cases(max_dims=12, max_points=60))
def test_any_points_through_the_accessor(case):
    frame = frame_of(case.x)
    bounds = [0, *case.cuts, len(frame)]
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(bounds)]
    ddf = dd.from_map(lambda part: part, parts, meta=frame.iloc[:0])
    expected = brute_force(case.x, case.eps)
    with dask.config.set(scheduler="sync"):
        assert_same_pairs(as_set(ddf.simjoin.self_join(case.eps).compute()), expected)
        assert_same_pairs(as_set(frame.simjoin.self_join(case.eps)), expected)
        counts = ddf.simjoin.neighbor_counts(case.eps).compute()
    places = np.array(sorted(expected), np.int64).reshape(-1)
    assert counts.tolist() == np.bincount(places, minlength=len(frame)).tolist()


def test_building_a_join_runs_no_task(parquet):
    with Tasks() as tasks, dask.config.set(scheduler="sync"):
        pairs = parquet.simjoin.self_join(EPS, on=["c0", "c1"], return_distance=True)
        near = pairs[pairs.distance < 0.01].assign(far=pairs.distance * 2)
        near.groupby("left").far.sum()
        parquet.simjoin.neighbor_counts(EPS, on=["c0", "c1"])
        parquet.simjoin.count_pairs(EPS, on=["c0", "c1"])
        parquet.simjoin.with_row_id()
        assert tasks.keys == []
        assert pairs.npartitions > 0
        planned = len(tasks.keys)
        assert planned > 0
        assert repr(pairs)
        assert pairs.divisions[0] is None
        pairs.optimize()
        assert len(tasks.keys) == planned


def test_planned_once(ddf, monkeypatch):
    calls = []
    compute = planner.plan_join
    monkeypatch.setattr(
        planner, "plan_join", lambda *args: calls.append(args) or compute(*args)
    )
    pairs = ddf.simjoin.self_join(EPS * 1.25, **HUNDRED)
    assert pairs.npartitions == pairs.optimize().npartitions
    pairs.compute()
    pairs[["left"]].compute()
    pairs.partitions[1].compute()
    assert len(calls) == 1


def test_only_needed_columns_are_read(parquet, monkeypatch):
    monkeypatch.setattr(ROWS, "most", 0)
    pairs = parquet.simjoin.self_join(EPS, on=["c0", "c1"]).optimize()
    source = pairs.expr.find_operations(type(pairs.expr))
    assert source
    chunks = next(e for e in pairs.expr.walk() if type(e).__name__ == "GatheredChunks")
    reads = [
        e
        for e in _inside(chunks.operand("frozen").inner)
        if "ReadParquet" in type(e).__name__
    ]
    assert {tuple(e.columns) for e in reads} == {("c0", "c1")}


def _inside(expr):
    for e in expr.walk():
        yield e
        for operand in e.operands:
            for inner in operand if isinstance(operand, list) else []:
                if hasattr(inner, "walk"):
                    yield from inner.walk()


def test_partitioning_is_frozen(parquet, x):
    assert (parquet[["c0", "c1"]] * 2).optimize().npartitions < parquet.npartitions
    pairs = parquet.simjoin.self_join(EPS, on=["c0", "c1"], **HUNDRED)
    once = pairs.optimize()
    assert once.npartitions == pairs.npartitions == 21
    # files need not come in the order of their numbers
    rows = parquet.compute().index.to_numpy()
    expected = {(rows[i], rows[j]) for i, j in brute_force(x[rows], EPS)}
    for collection in (pairs, once, once.optimize()):
        assert_same_pairs(as_set(collection.compute()), expected)


def test_one_partition_computes_only_what_it_needs(ddf):
    pairs = ddf.simjoin.self_join(EPS, **HUNDRED)
    assert pairs.npartitions == 21
    with Tasks() as tasks:
        one = pairs.partitions[4].compute(scheduler="sync")
    assert len(tasks.named("simjoin_index")) == 2
    assert len(tasks.named("simjoin_pairs")) == 1
    whole = pd.concat([pairs.partitions[n].compute() for n in range(21)])
    assert as_set(one) < as_set(whole) == as_set(pairs.compute())


def test_blocks_whose_boxes_are_apart_are_left_out():
    x = np.arange(0, 100, 0.25).reshape(-1, 1)
    pairs = dd.from_pandas(frame_of(x), npartitions=20).simjoin.self_join(
        1.0, partitioning="entity", blocksize=20 * 16
    )
    assert pairs.npartitions == 20 + 19
    assert_same_pairs(as_set(pairs.compute()), brute_force(x, 1.0))


def test_names_and_tokens(ddf, x):
    pairs = ddf.simjoin.self_join(EPS)
    again = dd.from_pandas(frame_of(x), npartitions=6).simjoin.self_join(EPS)
    assert tokenize(pairs) == tokenize(again)
    assert pairs._name == again._name != ddf.simjoin.self_join(EPS * 2)._name
    assert pairs.optimize()._name == again.optimize()._name
    names = {
        k if isinstance(k, str) else k[0] for k in pairs.optimize().__dask_graph__()
    }
    kinds = {name.rpartition("-")[0] for name in names}
    assert {"simjoin_pairs", "simjoin_index"} <= kinds
    assert all("lambda" not in kind for kind in kinds)


def test_fuses_with_what_follows(ddf, tmp_path):
    pairs = ddf.simjoin.self_join(EPS, return_distance=True)
    near = pairs[pairs.distance < EPS / 2][["left"]]
    graph = near.optimize().__dask_graph__()
    joins = [k for k in graph if "simjoin_pairs" in k[0]]
    assert len(joins) == pairs.npartitions
    with Tasks() as tasks:
        pairs.to_parquet(tmp_path / "pairs", compute_kwargs={"scheduler": "sync"})
    assert not tasks.named("to_parquet") or not tasks.named("simjoin_pairs")
    back = dd.read_parquet(tmp_path / "pairs").compute()
    assert as_set(back) == as_set(pairs.compute())


def test_projection_leaves_distances_out(ddf):
    pairs = ddf.simjoin.self_join(EPS, return_distance=True)
    lowered = pairs[["left", "right"]].optimize(fuse=False).expr
    block = next(e for e in lowered.walk() if "plan" in e._parameters)
    assert block.columns == ["left", "right"]
    assert_eq(
        pairs[["right", "left"]], pairs.compute()[["right", "left"]], check_index=False
    )


def test_goes_on_into_analytics(ddf, x):
    frame = frame_of(x)
    pairs = ddf.simjoin.self_join(EPS, pairs="both", return_distance=True)
    per_row = pairs.groupby("left").distance.mean().compute()
    local = frame.simjoin.self_join(EPS, pairs="both", return_distance=True)
    pd.testing.assert_series_equal(
        per_row.sort_index(),
        local.groupby("left").distance.mean(),
        check_index_type=False,
    )
    merged = pairs.merge(ddf, left_on="right", right_index=True).compute()
    assert len(merged) == len(local)
    assert len(pairs) == len(local)


def test_counts_are_aligned_without_a_shuffle(parquet):
    counts = parquet.simjoin.neighbor_counts(EPS, on=["c0", "c1"])
    expected = counts.compute()
    assert counts.npartitions == parquet.npartitions
    assert counts.divisions == parquet.divisions
    frame = parquet.assign(neighbors=counts)
    for columns in (["neighbors"], ["c0", "neighbors"], list(frame.columns)):
        chosen = frame[columns]
        assert "Shuffle" not in str(chosen.optimize().expr.tree_repr)
        pd.testing.assert_series_equal(chosen.compute().neighbors, expected)
    doubled = parquet[["c0"]] * 2
    doubled["neighbors"] = counts
    pd.testing.assert_series_equal(doubled.compute().neighbors, expected)
    third = parquet.partitions[3].compute()
    assert frame.partitions[3].compute().index.equals(third.index)
    assert counts.partitions[3].compute().equals(expected[third.index])
    assert parquet[counts > 3].compute().index.equals(expected.index[expected > 3])


def test_one_partition_of_counts_computes_only_what_it_needs(ddf):
    counts = ddf.simjoin.neighbor_counts(EPS, **HUNDRED)
    assert counts.npartitions == 6
    with Tasks() as tasks:
        counts.partitions[2].compute(scheduler="sync")
    assert len(tasks.named("simjoin_count_block")) == 6


def test_counts_of_more_blocks_than_are_added_at_once():
    x = np.random.default_rng(1).uniform(size=(400, 2))
    ddf = dd.from_pandas(frame_of(x), npartitions=40)
    counts = ddf.simjoin.neighbor_counts(
        0.3, partitioning="entity", blocksize=10 * 24
    ).compute()
    assert counts.sum() == 2 * len(brute_force(x, 0.3))
    assert counts.tolist() == frame_of(x).simjoin.neighbor_counts(0.3).tolist()


@pytest.mark.slow
def test_twenty_thousand_block_pairs_build_fast():
    x = np.random.default_rng(0).uniform(size=(2000, 2))
    pairs = dd.from_pandas(frame_of(x), npartitions=200).simjoin.self_join(
        10.0, partitioning="entity", blocksize=10 * 24
    )
    with pytest.warns(errors.UnitsWarning, match="At least 100% of all pairs"):
        assert pairs.npartitions == 20_100  # planned here; building is what follows
    start = time.process_time()
    lowered = pairs.optimize()
    graph = lowered.__dask_graph__()
    elapsed = time.process_time() - start
    assert len(graph) >= 20_100
    assert elapsed < 5, "far above the second it should take on a quiet machine"
    assert len(cloudpickle.dumps(lowered.expr)) < 2_000_000


def test_persisted_sources_and_results(ddf, x):
    expected = brute_force(x, EPS)
    assert_same_pairs(as_set(ddf.persist().simjoin.self_join(EPS).compute()), expected)
    assert_same_pairs(as_set(ddf.simjoin.self_join(EPS).persist().compute()), expected)


def test_sources_after_other_operations(ddf, x):
    kept = x[x[:, 0] > 0.5]
    filtered = ddf[ddf.c0 > 0.5].reset_index(drop=True).simjoin.with_row_id()
    found = filtered.simjoin.self_join(EPS, id="row_id").compute()
    assert_same_pairs(as_set(found), brute_force(kept, EPS))
    joined = dd.concat([ddf, ddf]).simjoin.with_row_id()
    found = joined.simjoin.self_join(0.0, id="row_id").compute()
    assert_same_pairs(as_set(found), {(n, n + 600) for n in range(600)})


def test_a_source_that_changed_is_refused(tmp_path):
    path = tmp_path / "points"
    x = np.random.default_rng(0).uniform(size=(50, 2))
    frames = [frame_of(x), frame_of(x).set_axis(range(50, 100))]
    path.mkdir()

    def read(n):
        return pd.read_pickle(path / str(n))

    for n, frame in enumerate(frames):
        frame.to_pickle(path / str(n))
    ddf = dd.from_map(read, [0, 1], meta=frames[0].iloc[:0])
    pairs = ddf.simjoin.self_join(EPS, partitioning="entity", blocksize=50 * 24)
    assert pairs.npartitions == 3
    frames[1].iloc[:20].to_pickle(path / "1")
    whole = np.concatenate([x, x])
    # of kept rows
    assert_same_pairs(as_set(pairs.compute(scheduler="sync")), brute_force(whole, EPS))
    with pytest.raises(
        errors.SourceChangedError,
        match=r"Partition 1 had 50 rows .* has 20 now.*persist",
    ):
        pairs.compute(scheduler="sync")


def test_a_source_whose_numbers_changed_is_refused(tmp_path):
    """As many rows as before, but elsewhere: blocks that the plan left out might hold
    pairs now.
    """
    path = tmp_path / "points"
    path.mkdir()
    far = [
        frame_of(np.arange(4.0).reshape(-1, 1) * 100),
        frame_of(np.arange(4.0, 8).reshape(-1, 1) * 100),
    ]
    far[1].index += 4

    def write(frames):
        for n, frame in enumerate(frames):
            frame.to_pickle(path / str(n))

    def source():
        return dd.from_map(
            lambda n: pd.read_pickle(path / str(n)), [0, 1], meta=far[0].iloc[:0]
        )

    write(far)
    pairs = source().simjoin.self_join(1.0)
    assert len(pairs.compute(scheduler="sync")) == 0
    for value in (0.0, np.nan):
        write([frame * 0 + value for frame in far])
        with pytest.raises(
            errors.SourceChangedError,
            match=r"Partition \d has coordinates in another range",
        ):
            pairs.compute(scheduler="sync")
    write([frame * 0 for frame in far])
    # Dask gives out the equal join that is still there
    with pytest.raises(errors.SourceChangedError):
        source().simjoin.self_join(1.0).compute(scheduler="sync")
    assert source().simjoin.count_pairs(1.0).compute(scheduler="sync") == 28


def test_rows_remain_where_no_column_does(ddf, x):
    pairs = ddf.simjoin.self_join(EPS)
    number = len(brute_force(x, EPS))
    assert pairs[[]].compute().shape == (number, 0)
    assert pairs.assign(one=1).one.sum().compute() == number
    assert len(pairs) == len(pairs.index) == number


def test_an_attribute_error_of_the_source_is_told_once(ddf):
    calls = []

    def broken(part):
        if len(part):
            calls.append(len(part))
            raise AttributeError("no such thing")
        return part

    bad = ddf.repartition(npartitions=1).map_partitions(broken, meta=ddf._meta)
    pairs = bad.simjoin.self_join(EPS)
    with pytest.raises(errors.PlanningError, match=r"AttributeError: no such thing"):
        pairs.compute(scheduler="sync")
    assert len(calls) == 1


def test_partitions_that_hold_ids_in_other_dtypes():
    frame = pd.DataFrame({"x": [0.0, 1.0]}, index=pd.Index([-1, 5], dtype="int64"))

    def parts(*indexes):
        frames = [frame.set_axis(index) for index in indexes]
        return dd.from_map(lambda part: part, frames, meta=frame.iloc[:0])

    narrow = pd.Index([-1, 5], dtype="int32")
    with pytest.raises(
        errors.DuplicateIdError, match="-1 repeats in several partitions"
    ):
        parts(narrow, pd.Index([-1, 10])).simjoin.self_join(1.0).compute()
    good = parts(narrow, pd.Index([10.0, 20.0])).simjoin.self_join(1.0).compute()
    assert good.dtypes.tolist() == [np.dtype("int64")] * 2
    assert as_set(good) == {(-1, 5), (10, 20), (-1, 10), (-1, 20), (5, 10), (5, 20)}
    with pytest.raises(
        errors.DuplicateIdError, match=r"of dtype float64 .* frame's dtype int64"
    ):
        parts(narrow, pd.Index([10.5, 20.0])).simjoin.self_join(1.0).compute()


def test_partitions_too_large_to_index(ddf):
    spec = SelfJoinRequest(eps=EPS).spec(ddf._meta)
    summary = summarise(ddf.partitions[0].compute(), 0, spec, False)
    huge = replace(
        summary, source_rows=2**33, moments=replace(summary.moments, rows=2**33)
    )
    with dask.config.set({"simjoin.blocksize": "1 TiB"}):
        spec = replace(spec, chunks=ChunkOptions("entity"), settings=current_settings())
        plan = make_plan(join_statistics([[summary, huge]], spec))
    assert plan.chunks.rows.sum() == 2**33 + 100
    assert plan.chunks.rows.max() <= MAX_ROWS
    with pytest.raises(
        errors.PartitionSizeError,
        match=r"Partition 1 has 2,147,483,648 rows.*repartition",
    ):
        check_rows(2**31, 1)


def test_nothing_to_join(ddf):
    empty = ddf[ddf.c0 > 2]
    assert len(empty.simjoin.self_join(EPS).compute()) == 0
    assert empty.simjoin.self_join(EPS).npartitions == 1
    assert empty.simjoin.count_pairs(EPS).compute() == 0
    assert len(empty.simjoin.neighbor_counts(EPS).compute()) == 0
    pairs = empty.simjoin.self_join(EPS, return_distance=True)
    assert_eq(pairs, pairs.compute())
