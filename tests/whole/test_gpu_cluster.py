"""Joins on LocalCUDACluster: one worker a GPU, chunks that spill, both ways to share
the work.
"""

import json
import subprocess
import sys

import dask
import numpy as np
import pandas as pd
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cuda = pytest.importorskip("dask_cuda")
dask_cudf = pytest.importorskip("dask_cudf")

import dask.dataframe as dd
from distributed import Client, wait

from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.planning import searches
from dask_simjoin.planning.resources import workers_of
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.paths import EXAMPLES
from tests.support.points import frame_of

pytestmark = pytest.mark.gpu

N, EPS = 2000, 0.05
ON = ["c0", "c1", "c2"]


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).uniform(size=(N, 3))


@pytest.fixture(scope="module", params=["1 tcp", "2 tcp", "2 ucx"])
def client(request):
    number, protocol = request.param.split()
    if cupy.cuda.runtime.getDeviceCount() < int(number):
        pytest.skip(f"needs {number} GPUs")
    if protocol == "ucx":
        pytest.importorskip("distributed_ucxx")
    with (
        dask_cuda.LocalCUDACluster(
            n_workers=int(number),
            protocol=protocol,
            rmm_pool_size="4 GB",
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def source(x, npartitions=5):
    return dask_cudf.from_cudf(cudf.from_pandas(frame_of(x)), npartitions=npartitions)


def built():
    return JOINER.built


@pytest.mark.parametrize("partitioning", ["auto", "replicated", "entity", "spatial"])
def test_every_verb(client, x, partitioning):
    expected = brute_force(x, EPS)
    options = {"partitioning": partitioning}
    if partitioning in ("entity", "spatial"):
        options["blocksize"] = "20 kB"
    ddf = source(x)
    pairs = ddf.simjoin.self_join(EPS, return_distance=True, **options)
    gpus = len(workers_of(client))
    before = sum(client.run(built).values())
    if partitioning == "replicated":
        # a GPU runs parts of the queries one after the other, and so gets few of them
        assert pairs.npartitions >= gpus
    chunks = len(pairs.expr.plan.chunks)
    found = pairs.compute()
    assert isinstance(found, cudf.DataFrame)
    assert_same_pairs(as_set(found.to_pandas()), expected)
    # one index for each chunk and for each halo, whatever number of tasks met it; each
    # GPU its own of what they share
    indexes = chunks * {"spatial": 2, "replicated": gpus}.get(partitioning, 1)
    assert sum(client.run(built).values()) == before + indexes
    assert (chunks == 1) == (partitioning in ("auto", "replicated"))
    counts = ddf.simjoin.neighbor_counts(EPS, **options).compute().to_pandas()
    assert (
        counts.tolist()
        == np.bincount(np.array(sorted(expected)).reshape(-1), minlength=N).tolist()
    )
    assert ddf.simjoin.count_pairs(EPS, **options).compute() == len(expected)
    if partitioning != "replicated":
        labels = ddf.simjoin.dbscan(EPS, 3, **options).compute().to_pandas()
        assert labels.tolist() == frame_of(x).simjoin.dbscan(EPS, 3).tolist()


def test_chunks_without_room_on_the_gpu_are_visited_in_an_order(x):
    """The worker keeps two of the chunks. The pairs are those of a worker with room."""
    with (
        dask_cuda.LocalCUDACluster(
            n_workers=1, device_memory_limit="60 kB", dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        how = {"partitioning": "entity", "blocksize": "12 kB"}
        pairs = source(x).simjoin.self_join(EPS, **how)
        plan = pairs.expr.plan
        assert 2 <= plan.work.visits.capacity < len(plan.chunks)
        assert_same_pairs(as_set(pairs.compute().to_pandas()), brute_force(x, EPS))


def test_spanning_trees_that_gpus_share(client, monkeypatch):
    monkeypatch.setattr(searches, "MIN_PART", 1)
    gpus = len(workers_of(client))
    rng = np.random.default_rng(5)
    points = rng.normal(size=(3 * N, 8)) + 4 * rng.integers(0, 4, (3 * N, 1))
    frame = frame_of(points.round(1))
    ddf = dask_cudf.from_cudf(cudf.from_pandas(frame), npartitions=2 * gpus)
    tree = ddf.simjoin.spanning_tree(min_samples=5)
    assert tree.expr.plan.work.sharing == (gpus, gpus)
    pd.testing.assert_frame_equal(
        tree.compute().to_pandas(), frame.simjoin.spanning_tree(min_samples=5)
    )
    found = ddf.simjoin.hdbscan(20, 5).compute().to_pandas()
    pd.testing.assert_frame_equal(found, frame.simjoin.hdbscan(20, 5))


def test_nearest_rows_that_gpus_share(client, x, monkeypatch):
    monkeypatch.setattr(searches, "MOMENT", 0.0)
    gpus, frame = len(workers_of(client)), frame_of(x.round(2))
    ddf = source(x.round(2))

    def check(joined, expected):
        found = (
            joined.compute()
            .to_pandas()
            .sort_values(["left", "rank"], ignore_index=True)
        )
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)

    joined = ddf.simjoin.knn_join(k=4)
    assert joined.expr.plan.work.copies == joined.npartitions == gpus
    check(joined, frame.simjoin.knn_join(k=4))
    distances = ddf.simjoin.k_distances(4).compute().to_pandas()
    assert distances.tolist() == frame.simjoin.k_distances(4).tolist()
    # more parts than GPUs, and some are empty
    with dask.config.set({"simjoin.output-size": "20 kB"}):
        joined = ddf.simjoin.knn_join(source(x), k=4, how="left", max_distance=EPS)
        assert joined.npartitions > 4
        check(
            joined,
            frame.simjoin.knn_join(frame_of(x), k=4, how="left", max_distance=EPS),
        )


def test_parquet_to_parquet_with_text_ids(client, x, tmp_path):
    frame = frame_of(x).assign(name=[f"row {k}" for k in range(N)])
    dd.from_pandas(frame, npartitions=3).to_parquet(tmp_path / "points")
    read = dask_cudf.read_parquet(tmp_path / "points")
    read.simjoin.self_join(EPS, on=ON, id="name").to_parquet(tmp_path / "pairs")
    found = dd.read_parquet(tmp_path / "pairs").compute()
    want = {(f"row {a}", f"row {b}") for a, b in brute_force(x, EPS)}
    assert_same_pairs(as_set(found), want)


def test_persisted_sources_and_results(client, x):
    ddf = source(x).persist()
    pairs = ddf.simjoin.self_join(EPS).persist()
    assert_same_pairs(as_set(pairs.compute().to_pandas()), brute_force(x, EPS))
    assert pairs.left.nunique().compute() > 0


def stored(dask_worker):
    data = dask_worker.data
    return [len(data.device_buffer.fast), len(data.device_buffer.slow)]


def test_chunks_spill_from_the_device(tmp_path):
    """Indexes of 90 MB go through 24 MB of device memory, and are joined all the same."""
    n = 1_500_000
    rng = np.random.default_rng(0)
    points = cudf.DataFrame({f"c{k}": rng.uniform(size=n) for k in range(3)})
    write = {"compute_kwargs": {"scheduler": "sync"}}
    dask_cudf.from_cudf(points, npartitions=8).to_parquet(tmp_path / "points", **write)
    with (
        dask_cuda.LocalCUDACluster(
            n_workers=1,
            device_memory_limit="24 MB",
            dashboard_address=":0",
            local_directory=str(tmp_path),
        ) as cluster,
        Client(cluster) as client,
    ):
        ddf = dask_cudf.read_parquet(tmp_path / "points")
        pairs = ddf.simjoin.self_join(0.004, partitioning="entity", blocksize="1 MB")
        chunks = pairs.expr._chunks()
        assert chunks.npartitions > 30
        kept = client.get(
            dict(chunks.__dask_graph__()), chunks.__dask_keys__(), sync=False
        )
        wait(kept)
        there = client.run(stored)
        print("chunks on the device and on the host:", there)
        assert all(device > 0 and host > 20 for device, host in there.values())
        total = len(pairs)
        del kept
    want = points.simjoin.count_pairs(0.004)
    assert total == want > 200_000


def test_no_coordinate_is_copied_to_the_host(tmp_path):
    """A profile of all copies from the device, while the tasks of a join run: sums of
    columns, counts.
    """
    profiler = pytest.importorskip("torch.profiler")
    n, dims = 800_000, 8
    x = np.random.default_rng(0).uniform(size=(n, dims))
    ddf = dask_cudf.from_cudf(
        cudf.DataFrame({f"c{k}": x[:, k] for k in range(dims)}), npartitions=4
    )
    with dask.config.set(scheduler="sync"):  # planning too, whatever cluster there is
        _watch_copies(ddf, n * dims * 8, profiler, tmp_path)


def _watch_copies(ddf, size, profiler, tmp_path):
    for options in (
        {"partitioning": "entity", "blocksize": "16 MB"},
        {"partitioning": "spatial", "blocksize": "16 MB"},
        {"partitioning": "replicated"},
    ):
        # compiles
        ddf.simjoin.self_join(0.1, return_distance=True, **options).persist()
        pairs = ddf.simjoin.self_join(0.11, return_distance=True, **options)
        one = options["partitioning"] == "replicated"
        assert (pairs.npartitions == 1) == one  # planned
        with profiler.profile(
            activities=[profiler.ProfilerActivity.CUDA], acc_events=True
        ) as profile:
            kept = pairs.persist()
            cupy.cuda.Device().synchronize()
        profile.export_chrome_trace(str(tmp_path / "trace.json"))
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        copies = [
            e["args"]["bytes"]
            for e in events
            if "DtoH" in e.get("name", "") and "bytes" in e.get("args", {})
        ]
        kernels = [e for e in events if e.get("cat") == "kernel"]
        assert any("join_tiles" in e["name"] for e in kernels)
        print(options, len(copies), "copies of", sum(copies), "bytes")
        assert 0 < sum(copies) < size / 100
        assert max(copies) <= 64 * 1024
        assert len(kept) > 0


EXAMPLE = EXAMPLES / "local_cuda_cluster.py"


@pytest.mark.parametrize("partitioning", ["auto", "spatial"])
def test_the_example(partitioning):
    command = [
        sys.executable,
        EXAMPLE,
        "--rows",
        "1000000",
        "--partitioning",
        partitioning,
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "1,000,000 points: " in run.stdout and "neighbors on average" in run.stdout
