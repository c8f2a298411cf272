"""One chunk of all rows whose spanning tree is sought: whether there is room, and what
it takes.
"""

import tracemalloc
from dataclasses import replace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.engine.cpu.frames import PandasFrames
from dask_simjoin.errors import BudgetError
from dask_simjoin.graph import planner
from dask_simjoin.planning import chunk_limits
from dask_simjoin.planning.checks import MAX_ROWS
from dask_simjoin.planning.chunk_limits import ChunkLimits, device_chunk_bytes
from dask_simjoin.planning.entity_chunks import BY_WORKER
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import (
    CLUSTERS,
    COUNTS,
    min_chunk_rows,
    tree_output,
)
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.table import summarise_table
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.requests import SelfJoinRequest
from tests.support.points import frame_of
from tests.support.profiles import chosen, every_nth

GB = 10**9


def plan_of(ddf, have, monkeypatch, **how):
    monkeypatch.setattr(planner, "limits_for", lambda library: have)
    return ddf.simjoin.hdbscan(10, **how).expr.plan


@pytest.mark.parametrize("cluster", every_nth(4, [False, True]))
def test_one_chunk_where_there_is_room(cluster, monkeypatch):
    """As many rows as are several chunks by what chunks may be that meet others."""
    monkeypatch.setattr(chunk_limits, "WORKING", 0)
    frame = frame_of(np.random.default_rng(0).normal(size=(100_000, 2)))

    def chunks(memory, threads=2, together=None, of_host=1, **how):
        each, one = memory // threads, together or threads
        have = Limits(threads, each, True, memory, together=one, of_host=of_host)
        if not cluster:
            have = Limits(threads, shared=each, together=threads)
        plan = plan_of(dd.from_pandas(frame, npartitions=7), have, monkeypatch, **how)
        assert (
            (plan.memory.alone > 0)
            == (len(plan.chunks) == 1)
            == ("of memory" in repr(plan))
        )
        assert plan.memory.alone <= chunk_limits.TREE_SHARE * memory
        return len(plan.chunks)

    need = chunk_limits.MARGIN * 200 * len(frame)
    few = need / chunk_limits.TREE_SHARE
    monkeypatch.setattr("dask_simjoin.planning.limits.LOCAL_CHUNK", 2**20)
    assert chunks(int(2 * few)) == 1
    assert chunks(int(few / 3)) > 1
    assert chunks(int(2 * few), partitioning="entity") == 1
    assert chunks(int(2 * few), blocksize="5 MB") > 1
    # many workers find several trees sooner than the threads of one worker find one
    assert chunks(int(20 * few), 20) == 1
    assert chunks(int(20 * few), 20, together=1) == 1
    assert (chunks(int(22 * few), 22, together=1) > 1) == cluster
    assert chunks(int(22 * few), 22, together=1, of_host=2) == 1


def test_one_chunk_that_was_asked_for_and_does_not_fit(monkeypatch):
    monkeypatch.setattr(chunk_limits, "WORKING", 0)
    frame = frame_of(np.random.default_rng(0).normal(size=(10_000, 2)))
    ddf = dd.from_pandas(frame, npartitions=3)
    memory = int(chunk_limits.MARGIN * 200 * len(frame))
    with pytest.raises(
        BudgetError,
        match=r"One chunk of all rows .* takes about .* the smallest worker has",
    ):
        plan_of(ddf, Limits(1, memory, True, memory), monkeypatch, blocksize="1 GB")
    plan_of(ddf, Limits(1, 9 * memory, True, 9 * memory), monkeypatch, blocksize="1 GB")


SIZES = [(2, 200_000, 10), (3, 200_000, 3), (8, 60_000, 30), (64, 12_000, 5)]
THREADS = [(*size, threads) for threads in (1, 2) for size in SIZES]


@pytest.mark.parametrize(
    ("dims", "rows", "samples", "threads"),
    chosen(THREADS, [*THREADS[:1], *THREADS[3:5]]),
)
def test_it_takes_no_more_than_planned(dims, rows, samples, threads):
    """What the arrays of all steps take at a time, of partitions that are read as the
    chunk is made.

    One thread has less memory of its own besides, so it shows more exactly what an
    estimate misses.
    """
    random = np.random.default_rng(dims)
    x = random.normal(size=(rows, dims)) + 6 * random.integers(0, 3, (rows, 1))
    frame = frame_of(x)

    def lazy(some):
        made = dd.from_map(
            lambda part: some.iloc[part::4].copy(), list(range(4)), meta=some.iloc[:0]
        )
        return made.simjoin.hdbscan(50, min_samples=samples)

    with dask.config.set(
        scheduler="threads" if threads > 1 else "sync", num_workers=threads
    ):
        lazy(frame.iloc[:4000]).compute()
        told = lazy(frame)
        plan = told.expr.plan
        assert len(plan.chunks) == 1
        tracemalloc.start()
        told.compute()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    estimate = (
        plan.memory.alone - threads * chunk_limits.WORKING
    ) / chunk_limits.MARGIN
    working = threads * chunk_limits.WORKING / 3
    assert estimate / 3 < most < estimate + working, (most / rows, estimate / rows)


def test_chunks_of_processes_that_share_no_memory():
    frame = pd.DataFrame({"x": np.arange(50.0), "y": 0.0})
    with dask.config.set(scheduler="processes"):
        assert chunk_limits.room_for_one(planner.limits_for("pandas")) is None
        assert (
            dd.from_pandas(frame, npartitions=2)
            .simjoin.hdbscan(5)
            .expr.plan.memory.alone
            > 0
        )


def table_of(rows, dims=2):
    """A table of so many rows, of which only the number counts here."""
    frame = frame_of(np.zeros((4, dims)))
    spec = SelfJoinRequest(eps=1.0).spec(frame)
    table = join_statistics([[summarise(frame, 0, spec, True, 1, 4)]], spec).left
    summaries = [replace(one, source_rows=rows) for one in table.summaries]
    return replace(table, summaries=summaries, offsets=np.array([0, rows]))


def test_each_thread_that_shares_a_chunk_takes_its_part_of_each_row():
    rows = 10**6
    needs = [
        chunk_limits.one_chunk_bytes(table_of(rows, 8), 5, threads)
        for threads in (8, 9, 16)
    ]
    each = chunk_limits.MARGIN * rows * chunk_limits.PART_BYTES + chunk_limits.WORKING
    assert np.allclose(np.diff(needs), [each, 7 * each])


def test_one_chunk_has_no_more_rows_than_can_be_numbered():
    resources = Limits(2, shared=10**15, together=2)
    for rows, fits in ((MAX_ROWS, True), (MAX_ROWS + 1, False)):
        one = chunk_limits.one_chunk_of_tree(table_of(rows), tree_output(5), resources)
        assert one is not None and one.is_best is fits
    sized = replace(resources, chunk=10**9, output=10**9)
    limits = chunk_limits.ChunkLimits(CLUSTERS, sized)
    assert limits.rows(table_of(10), 1e-3) == (min_chunk_rows(2), MAX_ROWS)
    for rows, fits in ((MAX_ROWS, True), (MAX_ROWS + 1, False)):
        chunks = limits.entity(table_of(rows), (10**6, MAX_ROWS), 24.0, 2, 1.0, 1)
        assert (len(chunks) == 1) is fits


def test_regions_that_workers_send_have_slack():
    """A worker makes one region; one that a sample takes for slightly too large is not
    cut.
    """
    limits = chunk_limits.ChunkLimits(CLUSTERS, Limits(2, workers=2, shuffle=BY_WORKER))
    assert limits.region_rows(8_000_000, 1, 1 << 40) == 4_000_000
    assert limits.region_rows(8_000_000, 1, 1_200_000) == 1_090_909
    by_tasks = chunk_limits.ChunkLimits(CLUSTERS, Limits(2, workers=2))
    assert by_tasks.region_rows(8_000_000, 1, 1 << 40) == 1_000_000


@pytest.mark.parametrize("verb", ["knn_join", "join", "self_join", "neighbor_counts"])
def test_threads_share_one_chunk_where_there_is_room(verb, monkeypatch):
    """Several chunks would be searched by each row, and their rows would not be sorted
    together.
    """
    frame = frame_of(np.random.default_rng(0).normal(size=(100_000, 2)))
    monkeypatch.setattr("dask_simjoin.planning.limits.LOCAL_CHUNK", 2**20)

    def plan(memory):
        have = Limits(2, shared=memory // 2, together=2)
        monkeypatch.setattr(planner, "limits_for", lambda library: have)
        lazy = dd.from_pandas(frame, npartitions=7)
        how = {"k": 5} if verb == "knn_join" else {"eps": 1e-4}
        return getattr(lazy.simjoin, verb)(
            **how, **({"other": lazy} if verb == "join" else {})
        ).expr.plan

    one, tables = plan(GB), 1 + (verb == "join")
    counted = 2 * 8 if verb == "neighbor_counts" else 0  # by two threads
    size = (
        (2 if verb in ("knn_join", "join") else 1)
        * (one.indexing.row_bytes + counted)
        * len(frame)
    )
    assert len(one.chunks) == tables and size > 2**20
    assert len(plan(int(5.1 * size)).chunks) == tables
    assert len(plan(int(4.9 * size)).chunks) > tables


def test_matrices_of_pairs_are_made_of_several_chunks(monkeypatch):
    """One chunk would be compared with itself in a single task."""
    frame = frame_of(np.random.default_rng(0).normal(size=(100_000, 2)))
    monkeypatch.setattr("dask_simjoin.planning.limits.LOCAL_CHUNK", 2**20)
    monkeypatch.setattr(
        planner,
        "limits_for",
        lambda library: Limits(2, shared=15_000_000, together=2),
    )
    graph = dd.from_pandas(frame, npartitions=7).simjoin.neighbor_graph(1e-4)
    assert len(graph.expression.plan.chunks) > 1


DBSCAN = replace(CLUSTERS, result_bytes_per_row=40, single_home=True, joins=3, halo=2)


@pytest.mark.parametrize(
    ("rows", "output", "chunks"),
    [
        (1e9, COUNTS, "one"),
        (1e9, DBSCAN, "one"),
        (2e9, DBSCAN, "several"),
        (1e9, replace(COUNTS, materialise=True), "several"),
    ],
)
def test_one_chunk_of_all_rows_on_a_gpu(rows, output, chunks):
    """A GPU of 140 GiB has room for the chunk of a billion points, but not of two."""
    x, parts = np.random.default_rng(0).uniform(size=(1000, 2)), 40
    spec = SelfJoinRequest(eps=1e-6).spec(frame_of(x))
    part = summarise(frame_of(x), 0, spec, False, 1)
    many = replace(part.moments, rows=int(rows) // parts)
    summary = replace(part, moments=many, source_rows=many.rows, whole=None)
    table = summarise_table([summary] * parts, spec)
    limits = Limits(1, 140 * 2**30, True, gpu=True).sized(
        None, spec.settings, 16 * rows
    )
    cut = ChunkLimits(output, limits)
    sizes = cut.rows(table, 56.0)
    each = 16.0 + output.result_bytes_per_row
    found = cut.entity(table, sizes, each, spec.norm, spec.threshold, 1)
    assert (len(found) == 1) == (chunks == "one")


def test_memory_of_one_chunk_on_a_gpu():
    """The numbers of points in two dimensions, counted from the arrays of each step."""
    values, keys, order, tiles = 2 * 4, 8, 4, 2 * 4
    making = 16 + values + 2 * keys + 2 * order
    indexed = 16 + tiles + order
    labels = indexed + 8 + 8 + 8 + 1
    assert making <= device_chunk_bytes(16, 0)
    assert max(making, labels) <= device_chunk_bytes(16, 40)


def test_plain_frames_that_do_not_fit_on_a_gpu(monkeypatch):
    frame = frame_of(np.random.default_rng(0).uniform(size=(1000, 2)))
    room = 64 * len(frame)
    monkeypatch.setattr(PandasFrames, "memory", lambda self: room)
    assert frame.simjoin.count_pairs(0.01) >= 0
    monkeypatch.setattr(PandasFrames, "memory", lambda self: room - 1)
    with pytest.raises(BudgetError, match="on the GPU while they are indexed"):
        frame.simjoin.count_pairs(0.01)


class Halos:
    """Sizes of two chunks with halos."""

    rows, halo_rows = np.array([100.0, 200.0]), np.array([10.0, 20.0])


@pytest.mark.parametrize(
    ("max_rows", "memory", "fits"),
    [(100, 1920, True), (99, 1920, False), (100, 1919, False), (100, None, True)],
)
def test_rows_that_halos_share_fit_in_one_task(max_rows, memory, fits):
    """A chunk may have twice the rows of one without a halo. One task receives about as
    many rows as all halos have, and needs 64 bytes for each.
    """
    cut = ChunkLimits(DBSCAN, Limits(2, memory))
    assert cut.fits_halos(Halos(), max_rows) == fits


@pytest.mark.parametrize("shuffle", ["p2p", "by worker", "tasks", "disk"])
def test_halos_on_all_sides(shuffle):
    one = shuffle in ("p2p", "by worker")
    limits = Limits(2, workers=2, shuffle=shuffle)
    assert ChunkLimits(DBSCAN, limits).makes_cluster_chunks == one
    assert not ChunkLimits(COUNTS, limits).makes_cluster_chunks
    assert not ChunkLimits(DBSCAN, replace(limits, gpu=True)).makes_cluster_chunks
