"""How large a result of Dask frames may be where nobody says: as the disk has room."""

import re
import shutil
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed.system import MEMORY_LIMIT as DISTRIBUTED_LIMIT

import dask_simjoin
from dask_simjoin.errors import BudgetError
from dask_simjoin.planning.limits import MAX_RESULT, MEMORY_LIMIT, Limits, memory_limit
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.request.options import Settings

FRAME = pd.DataFrame(
    np.random.default_rng(0).uniform(size=(2000, 2)), columns=["x", "y"]
)


@pytest.fixture
def disks(monkeypatch):
    """Bytes free on the disks of folders, by name; others have none."""
    free = {".": 10**6}

    def usage(folder):
        return SimpleNamespace(free=free.get(str(folder), 0))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    return free


def lazy():
    return dd.from_pandas(FRAME, npartitions=2)


def test_a_result_is_limited_by_the_disk(disks, tmp_path):
    text = (
        r"gives [0-9,]+ pairs \([0-9.]+ MB\)\. The limit is 1 MB \(the free space on the "
        r"disk\)\. Use a smaller eps\. .* write it to a disk with more than .* free, raise the "
        r"limit: .*{'simjoin\.result-limit': '[0-9.]+ MB'}\)"
    )
    with pytest.raises(BudgetError, match=text):
        lazy().simjoin.plan(0.3)
    with pytest.raises(
        BudgetError, match=r"k=500 gives 1,000,000 rows \(.*the free space on the disk"
    ):
        lazy().simjoin.plan(k=500)
    assert lazy().simjoin.plan(0.01).pairs > 0
    # the disk that has most counts, and what was set before all
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        disks[str(tmp_path)] = 10**9
        lazy().simjoin.plan(0.3)
    with dask.config.set({"simjoin.result-limit": "1 GB"}):
        lazy().simjoin.plan(0.3)


PLACES = 50 * FRAME


@pytest.mark.parametrize("kind", ["plain", "lazy", "array"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"on": ["y", "x"], "metric": "haversine"},
        {"on": "x", "metric": "minkowski", "p": 3},
    ],
    ids=["all", "sphere", "one"],
)
def test_the_eps_that_is_recommended_gives_neighbors(kind, options):
    if kind == "lazy":
        frame = dd.from_pandas(PLACES, npartitions=3)
    elif kind == "array":
        if options:
            pytest.skip("columns of arrays have no names")
        frame = PLACES.to_numpy()
    else:
        frame = PLACES
    refused = pytest.raises(BudgetError)
    with dask.config.set({"simjoin.result-limit": "1 kB"}), refused as caught:
        eps = 1e6 if options.get("metric") == "haversine" else 25.0
        len(dask_simjoin.self_join(frame, eps, **options))
    found = re.search(r"eps=(numpy.*?\)\)) gives half", str(caught.value))
    assert found, str(caught.value)
    names = {"numpy": np, "dask_simjoin": dask_simjoin, "frame": frame, "x": frame}
    counts = dask_simjoin.neighbor_counts(frame, eval(found[1], names), **options)
    assert 0.5 <= np.mean(np.asarray(counts) >= 10) < 0.6


def test_no_eps_is_recommended_for_groups():
    frame = PLACES.assign(g=np.arange(2000) % 2)
    refused = pytest.raises(BudgetError, match=r"Use a smaller eps\. If you only need")
    with dask.config.set({"simjoin.result-limit": "1 kB"}), refused:
        frame.simjoin.self_join(9.0, on=["x", "y"], by="g")


def test_several_chunks_on_a_gpu_leave_room_to_make_another():
    """Dask-CUDA keeps chunks in 80 % of the memory; a chunk takes five times its size
    while it is made.
    """
    have = Limits(1, 80 * 2**30, True, gpu=True)
    limits = have.sized(None, Settings(None, None, None, None, True))
    assert 5 * limits.chunk <= 0.2 * have.memory
    one = limits.for_chunks(1, 6 * 2**30)
    assert one.chunk == have.memory // 12
    assert "of a GPU" in one.origin
    assert limits.for_chunks(2, 2**31) == limits


def test_chunks_may_be_larger_if_all_of_them_fit_on_the_gpus():
    have = Limits(2, 80 * 2**30, True, gpu=True, workers=2)
    settings = Settings(None, None, None, None, True)
    limits = have.sized(None, settings)
    few = have.sized(None, settings, 32.0 * 2**30)
    assert few.chunk == 80 * 2**30 // 12 > limits.chunk
    assert few.origin == "1/12 of 80 GiB on the smallest GPU"
    assert have.sized(None, settings, 33.0 * 2**30) == limits
    assert have.sized(2**20, settings, 1.0).chunk == 2**20
    on_cpus = Limits(2, 2**30, True)
    assert on_cpus.sized(None, settings, 1.0) == on_cpus.sized(None, settings)


def test_a_plain_frame_is_not_limited_by_the_disk(disks):
    assert len(FRAME.simjoin.self_join(0.3)) * 16 > disks["."]
    assert FRAME.simjoin.neighbor_graph(0.3).nnz * 16 > disks["."]


def test_disks_that_are_not_seen_limit_nothing(disks, client):
    assert limits_for("pandas").disk == 10**6
    info = client.scheduler_info(n_workers=-1)
    for worker in info["workers"].values():
        worker["local_directory"] = "/there/is/no/such/folder"
    client.scheduler_info = lambda n_workers: info
    try:
        assert limits_for("pandas").disk is None
        assert lazy().simjoin.self_join(0.3).expr.plan.limits.result == MAX_RESULT
    finally:
        del client.scheduler_info


def test_a_refusal_names_the_unit_of_eps():
    points = pd.DataFrame(
        {"lat": np.linspace(0, 1, 1000), "lon": 0.0, "id": range(1000)}
    )
    how = {"on": ["lat", "lon"], "metric": "haversine", "id": "id"}
    with (
        dask.config.set({"simjoin.result-limit": "1 kB"}),
        pytest.raises(BudgetError, match=r"eps=20 km gives "),
    ):
        dd.from_pandas(points, npartitions=2).simjoin.plan("20 km", **how)


def test_the_limit_is_that_of_distributed():
    assert MEMORY_LIMIT == DISTRIBUTED_LIMIT


def test_control_groups_lower_the_limit(tmp_path):
    whole = memory_limit(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_limit(tmp_path) == whole
    (tmp_path / "memory.high").write_text("1048576\n")
    (tmp_path / "memory.low").write_text("0\n")
    assert memory_limit(tmp_path) == 2**20
