"""Plans know what workers can shuffle, what they have no room for, and what goes to
disk.
"""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import BudgetError, OptionError, ScratchError
from dask_simjoin.planning import resources
from dask_simjoin.planning.checks import MAX_ROWS
from dask_simjoin.planning.costs import CLUSTER_BYTE
from dask_simjoin.planning.limits import MOVED_SHARE, Limits
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.resources import (
    INDEXED,
    ITSELF,
    PARQUET_BYTE,
    PARTITION_SHARE,
    WorkerDisk,
    bytes_needed,
    check_disks,
    device_limit,
    expect_disk,
    held_at_once,
    memory_share,
    needed_of_chunks,
    plain_threads,
    sent_rows,
    workers_of,
)
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.options import current_settings
from dask_simjoin.request.requests import SelfJoinRequest

LIMIT = 700_000_000
SMALL = Limits(2, LIMIT - 300 * 2**20, True, LIMIT, workers=2)


class Asked:
    """A client whose information of the scheduler lacks the workers for some calls."""

    def __init__(self, stale):
        self.stale = stale

    def scheduler_info(self, n_workers):
        self.stale -= 1
        workers = {"a": {"nthreads": 2}, "b": {"nthreads": 1}}
        return {"n_workers": 2, "workers": {} if self.stale >= 0 else workers}


def test_workers_are_asked_for_again_if_a_thread_of_dask_has_left_them_out():
    assert workers_of(Asked(3)) == {"a": {"nthreads": 2}, "b": {"nthreads": 1}}
    assert workers_of(Asked(10**6)) == {}  # a client without connection never has them


class Told:
    """A client whose workers answer what they keep in GPU memory; one is gone."""

    def __init__(self, **limits):
        self.limits, self.asked = limits, []

    def run(self, function, workers, on_error):
        self.asked += workers
        data = {
            name: SimpleNamespace(device_buffer=SimpleNamespace(n=limit))
            for name, limit in self.limits.items()
        } | {"host": {}}
        return {
            name: function(SimpleNamespace(data=data[name]))
            for name in workers
            if name in data
        }


def test_each_worker_is_asked_once_what_it_keeps_in_gpu_memory():
    client = Told(a=3, b=2)
    assert device_limit(client, ["a", "b"]) == 2
    assert device_limit(client, ["a", "host"]) == 3
    assert device_limit(client, ["host"]) is None is device_limit(None, [])
    assert device_limit(client, ["b", "gone"]) == 2
    assert client.asked == ["a", "b", "host", "gone"]


def test_rows_are_sent_in_pieces_of_which_many_copies_fit():
    rows = sent_rows("p2p", SMALL, 24)
    assert rows * 40 * MOVED_SHARE == pytest.approx(SMALL.memory, rel=0.01)
    assert 200_000 < rows < 600_000  # of 1,000,000 workers died, of 500,000 none did
    assert sent_rows("p2p", SMALL, 10**9) == 1
    assert sent_rows("tasks", SMALL, 24) == sent_rows("p2p", Limits(2), 24) == MAX_ROWS


def plan_of(frame, have, partitioning, eps=1e-5):
    spec = SelfJoinRequest(
        eps=eps, partitioning=partitioning, id="id", blocksize="24 kB"
    ).spec(frame)
    summaries = [summarise(frame[n::4], n, spec, True, 4) for n in range(4)]
    return make_plan(
        join_statistics([summaries], spec), PAIRS, replace(have, shuffle="p2p")
    )


@pytest.fixture(scope="module")
def large_frame():
    x = np.random.default_rng(0).uniform(size=(80_000, 2))
    return pd.DataFrame(x, columns=["x", "y"]).assign(id=range(len(x)))


def test_partitions_without_room_are_refused_where_they_would_be_shuffled(large_frame):
    """With an explicit remedy; "auto" then goes another way, even where it would be the
    slower one.
    """
    need = 20_000 * 24 * PARTITION_SHARE
    roomy, tight = (
        Limits(2, memory, True, LIMIT, workers=2) for memory in (need, need // 2)
    )
    for asked in ("spatial", "auto"):
        assert plan_of(large_frame, roomy, asked).partitioning == "spatial"
    message = (
        r"up to 480 kB \(20,000 rows of 24 bytes\).*at most 240 kB.*'entity'.*at most 10,000 rows.*"
        r"ddf.repartition\(\) still reads"
    )
    with pytest.raises(BudgetError, match=message) as refused:
        plan_of(large_frame, tight, "spatial")
    assert [one.options for one in refused.value.remedies] == [
        {"partitioning": "entity"}
    ]
    assert plan_of(large_frame, tight, "auto").partitioning == "entity"


GB = 2**30


def all_meet(number, rows):
    """Chunks that are compared with themselves and with all others."""
    visited = float(number * rows + number * (number - 1) * rows)
    return SimpleNamespace(
        rows=np.full(number, float(rows)),
        visits=(number * (number + 1) // 2, visited),
        method=None,
    )


def alone(number, rows, method=None):
    """Chunks that are compared with themselves only."""
    return SimpleNamespace(
        rows=np.full(number, float(rows)),
        visits=(number, float(number * rows)),
        method=method,
    )


def workers(limit, number=2, itself=0.3 * GB):
    return Limits(number, round(limit - itself), True, round(limit), workers=number)


def test_chunks_that_fit_are_not_spilled():
    for chunks in (all_meet(20, 10**6), alone(20, 10**6)):
        assert expect_disk(chunks, 24, 0.0, 1, workers(4 * GB)).spilled == 0


def test_chunks_that_do_not_fit_are_spilled_as_often_as_they_are_joined():
    small = workers(0.65 * GB)
    often, once = (
        expect_disk(chunks, 24, 0.0, 1, small)
        for chunks in (all_meet(20, 10**6), alone(20, 10**6))
    )
    assert often.spilled > 10 * once.spilled > 0
    assert often.spilling == pytest.approx(1e-9 * CLUSTER_BYTE * often.spilled / 2)
    # as often as each chunk meets one, and no more
    assert often.spilled <= 2 * 24 * all_meet(20, 10**6).visits[1]
    assert expect_disk(all_meet(20, 10**6), 24, 0.0, 3, small).spilled == pytest.approx(
        3 * often.spilled
    )


def test_rows_are_shuffled_through_the_disk_where_workers_have_no_room_for_them():
    told = [
        expect_disk(alone(20, 10**6, method), 24, 0.0, 1, workers(limit))
        for method in ("p2p", "tasks", None)
        for limit in (0.65 * GB, 4 * GB)
    ]
    assert (
        told[0].shuffled > 24 * 10**7 and told[0].shuffling > 10 * told[0].spilling > 0
    )
    assert (
        [one.shuffled for one in told[1:]]
        == [one.shuffling for one in told[1:]]
        == [0] * 5
    )


def test_time_is_that_of_a_large_join_that_was_measured():
    """Shuffled, joined and written in 133 to 148 s."""
    have = Limits(2, 700_000_000 - 300 * 2**20, True, 700_000_000, workers=2)
    disk = expect_disk(alone(128, 911_458, "p2p"), 24, 16 * 178e6, 1, have)
    assert 80 < disk.shuffling < 110 and disk.spilling + disk.writing < 10


def test_the_less_memory_the_more_is_spilled():
    limits = np.linspace(0.4, 2, 20) * GB
    spilled = [
        expect_disk(all_meet(20, 10**6), 24, 0.0, 1, workers(limit)).spilled
        for limit in limits
    ]
    assert (
        spilled == sorted(spilled, reverse=True)
        and spilled[0] > spilled[8] > spilled[-1] == 0
    )


def test_pairs_are_written_by_all_threads_and_nothing_is_spilled_without_workers():
    one, four = (
        expect_disk(alone(4, 1000), 24, 1e9, 1, Limits(threads)) for threads in (1, 4)
    )
    assert one.writing == pytest.approx(PARQUET_BYTE) == 4 * four.writing
    assert one.spilled == one.spilling == 0


def test_nothing_is_said_of_gpus():
    have = Limits(2, 2**30, True, 2**31, gpu=True, workers=2)
    assert expect_disk(all_meet(20, 10**6), 24, 1e9, 1, have).writing == 0


def held_by_trying(blocks, sizes):
    """Go through the blocks one by one."""
    most = 0
    for now in range(len(blocks)):
        done, left = blocks[: now + 1], blocks[now:]
        most = max(most, sum(sizes[c] for c in {*done.ravel()} & {*left.ravel()}))
    return most


@pytest.mark.parametrize("seed", range(5))
def test_chunks_are_held_from_their_first_block_to_their_last(seed):
    random = np.random.default_rng(seed)
    blocks, sizes = random.integers(0, 9, (20, 2)), random.integers(1, 100, 9)
    assert held_at_once(blocks, sizes) == held_by_trying(blocks, sizes)
    assert held_at_once(np.zeros((0, 2), int), sizes) == 0


def test_all_chunks_are_held_where_each_meets_each_and_few_where_they_meet_neighbors():
    sizes = np.full(20, 7)
    pairs = np.array([(i, j) for i in range(20) for j in range(i, 20)])
    assert held_at_once(pairs, sizes) == 140
    assert held_at_once(pairs[pairs[:, 1] - pairs[:, 0] < 2], sizes) == 14


def test_what_is_held_needs_no_disk_while_it_fits_memory():
    have = workers(0.6 * GB)
    room = 2 * (memory_share("pause") * have.limit - ITSELF)
    assert bytes_needed(room, 0, have) == 0
    assert bytes_needed(room + GB, 0, have) == pytest.approx(GB)
    assert bytes_needed(room, 5.0, have) == 5
    assert bytes_needed(10**15, 10**15, Limits(2)) == 0


def several(number, rows, method):
    """Chunks of one table that are compared with themselves and with all others."""
    chunks = all_meet(number, rows)
    chunks.method, chunks.sides = method, (chunks,)
    return chunks, np.array([(i, j) for i in range(number) for j in range(i, number)])


def test_shuffles_write_all_rows_or_hold_them():
    have = workers(0.6 * GB)
    alone = np.array([(i, i) for i in range(50)])

    def needed(method, blocks=alone, again=False):
        return needed_of_chunks(
            several(50, 10**6, method)[0], blocks, [24], again, have
        )

    assert needed("p2p") == 50e6 * (24 + 16)
    room = 2 * (memory_share("pause") * have.limit - ITSELF)
    assert needed("tasks") == pytest.approx(needed("p2p") - room)
    assert needed(None) == 0
    # each is needed again in the end, or meets all
    twice = pytest.approx(INDEXED * 50e6 * 24 - room)
    assert (
        needed(None, again=True) == needed(None, several(50, 10**6, None)[1]) == twice
    )


def test_disks_without_room_are_refused_with_their_need():
    disks = [WorkerDisk("a", "/one", 3, GB), WorkerDisk("b", "/two", 1, GB)]
    check_disks(0.9 * GB, disks)
    check_disks(1.3 * GB, disks)
    check_disks(9 * GB, [])
    told = (
        r"At least 2 GiB .* of 4 workers.* 512 MiB per worker. "
        r"The disk of '/one' on a has only 1 GiB free for 3"
    )
    with pytest.raises(BudgetError, match=told + r" workers.*local_directory="):
        check_disks(2 * GB, disks)
    with pytest.raises(
        BudgetError,
        match=r"The disk of '/two' on b has only 1 kiB free for a worker",
    ):
        check_disks(GB, [disks[0], WorkerDisk("b", "/two", 1, 1024)])


@pytest.fixture
def frame(request):
    """Other rows for each test, as plans are kept with what they are of."""
    random = np.random.default_rng(sum(map(ord, request.node.name)))
    return pd.DataFrame(random.uniform(size=(500, 2)), columns=["x", "y"])


def pairs(frame, folder, method="disk"):
    how = {"temporary-directory": str(folder), "dataframe.shuffle.method": method}
    with dask.config.set(how | {"simjoin.result-limit": "1 GiB"}):
        ddf = dd.from_pandas(frame, npartitions=3)
        return len(
            ddf.simjoin.self_join(
                0.05, partitioning="spatial", blocksize="2 kB"
            ).compute()
        )


@pytest.mark.parametrize("kind", ["missing", "a file", "not writable"])
def test_folders_that_cannot_be_written_are_refused_by_name(frame, tmp_path, kind):
    folder = "/proc/self" if kind == "not writable" else tmp_path / "folder"
    if kind == "a file":
        folder.write_text("")
    told = rf"files in '{folder}', which cannot be written: .*shuffle.method"
    with pytest.raises(ScratchError, match=told) as refused:
        pairs(frame, folder)
    ((name, value),) = refused.value.remedies[0].config.items()
    assert name == "dataframe.shuffle.method"
    assert pairs(frame, folder, value) == pairs(frame, tmp_path) > 0


def test_folders_without_room_are_refused_with_the_need(frame, tmp_path, monkeypatch):
    used = resources.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        resources.shutil, "disk_usage", lambda path: used._replace(free=1000)
    )
    with pytest.raises(
        ScratchError, match=r"at least [0-9.]+ kB, but only 1 kB are free there"
    ):
        pairs(frame, tmp_path)
    assert pairs(frame, tmp_path, "tasks") > 0


@pytest.mark.parametrize("pause", [0.8, 0.6, False])
def test_workers_that_would_always_be_paused_are_refused(pause):
    needed = resources.ITSELF / (pause or 1)
    with dask.config.set({"distributed.worker.memory.pause": pause}):
        resources.check_worker_memory(None)
        resources.check_worker_memory(int(needed) + 1)
        if pause:
            with pytest.raises(BudgetError, match="libraries alone"):
                resources.check_worker_memory(int(needed) - 1)
        else:
            resources.check_worker_memory(1)


def test_a_cluster_of_workers_with_400_mb_is_refused(monkeypatch):
    worker = {"memory_limit": 400 * 10**6, "nthreads": 1, "local_directory": "/"}
    client = SimpleNamespace(asynchronous=False)
    monkeypatch.setattr(resources, "current_client", lambda: client)
    monkeypatch.setattr(resources, "workers_of", lambda client: {"a": worker})
    refused = pytest.raises(
        BudgetError, match=r"400 MB.*at least 433 MB.*memory_limit='700 MB'"
    )
    with dask.config.set({"distributed.worker.memory.pause": 0.8}), refused:
        resources.limits_for("pandas")


def test_threads_of_the_smallest_host():
    workers = {
        f"{host}:{port}": {"host": host, "nthreads": threads}
        for host, each in {"a": [1, 1, 2], "b": [3, 4]}.items()
        for port, threads in enumerate(each)
    }
    assert resources.threads_of_host(workers) == 4
    assert resources.threads_of_host({}) == 1


# --- threads for plain frames -------------------------------------------------------


def in_a_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def threads(option=None):
    """The threads of a plain frame, for the option `threads`."""
    return plain_threads(current_settings(threads=option))


def test_threads_for_plain_frames(monkeypatch):
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    cores = min(resources.CPU_COUNT, len(os.sched_getaffinity(0)))
    with dask.config.set(num_workers=None, scheduler=None):
        assert threads() == cores
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert threads() == 1
        with dask.config.set(num_workers=3):  # what Dask is told comes first
            assert threads() == 3
            assert in_a_thread(threads) == 1
        with dask.config.set({"simjoin.threads": 5}):
            assert threads() == in_a_thread(threads) == 5
            assert threads(7) == in_a_thread(lambda: threads(7)) == 7
    for scheduler in ("sync", "single-threaded"):
        with dask.config.set(scheduler=scheduler, num_workers=4):
            assert threads() == 1
            assert threads(2) == 2


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_a_number_of_threads_is_checked(value):
    message = r"threads=.* is not allowed; use a whole number >= 1\."
    with pytest.raises(OptionError, match=f"^{message}$"):
        threads(value)
    with (
        dask.config.set({"simjoin.threads": value}),
        pytest.raises(OptionError, match=rf"^simjoin\.{message} It comes from dask"),
    ):
        threads()


@pytest.mark.slow
def test_processes_of_multiprocessing_use_one_thread():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(threads) == 1
