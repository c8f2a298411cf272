"""Files of OPTICS: gone once their run is over, however it ended, and made only where
they are needed.
"""

import gc
import os
import resource
import signal
import subprocess
import sys

import dask
import dask.dataframe as dd
import numpy as np
import pytest
from distributed import Client

from dask_simjoin.cluster import local
from dask_simjoin.cluster.algorithms.scratch import ArrayWriter
from dask_simjoin.cluster.expressions import optics as graph_optics
from dask_simjoin.errors import BudgetError, ScratchError
from dask_simjoin.planning.limits import Limits
from tests.support.gates import PATIENCE, until
from tests.support.points import frame_of

EPS = 0.05


@pytest.fixture
def x():
    return np.random.default_rng(5).uniform(size=(6000, 2))


@pytest.fixture
def own(tmp_path):
    """A temporary directory of the test's own."""
    with dask.config.set({"temporary-directory": str(tmp_path / "own")}):
        yield tmp_path / "own"


@pytest.fixture
def on_disk(monkeypatch):
    """All edges go into files."""
    monkeypatch.setattr(local, "IN_MEMORY", 4096)
    monkeypatch.setattr(graph_optics, "IN_MEMORY", 4096)
    monkeypatch.setattr(
        graph_optics, "limits_for", lambda library: Limits(2, 4096, True)
    )


PARTS = 6


def part(number, x, gate):
    """A partition, of which the last one waits, so that there is a middle."""
    if number == PARTS - 1:
        gate.pass_through()
    size = len(x) // PARTS
    return frame_of(x).iloc[number * size : (number + 1) * size]


def files(folder):
    return list(folder.glob("simjoin-*/*/*/*"))


def runs(folder):
    return list(folder.glob("simjoin-*/*/*"))


@pytest.fixture
def mortal(mortal_workers):
    """Its client, once all workers are back."""
    with Client(mortal_workers) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
        yield client


def started(client, x, own, gate):
    """A run that has written some of its files, and not all."""
    frame = dd.from_map(
        part, range(PARTS), x=x, gate=gate, meta=frame_of(x[:0]), enforce_metadata=False
    )
    lazy = frame.simjoin.optics(EPS, partitioning="entity", blocksize=1000 * 96)
    running = client.compute(lazy)
    until(lambda: files(own), "no file was written")
    assert not running.done()
    return running


def at_work(dask_worker):
    """How many tasks a worker runs, those that were cancelled too."""
    return dask_worker.state.executing_count


@pytest.mark.slow
@pytest.mark.processes
def test_no_file_is_left_by_a_killed_worker(mortal, x, own, gate, on_disk):
    running = started(mortal, x, own, gate)
    os.kill(next(iter(mortal.run(os.getpid).values())), signal.SIGKILL)
    gate.open()
    found = running.result(timeout=PATIENCE)
    until(lambda: not runs(own), "files were left")
    want = frame_of(x).simjoin.optics(EPS)
    assert found.ordering.tolist() == want.ordering.tolist()
    assert found.reachability.tolist() == want.reachability.tolist()


@pytest.mark.processes
def test_no_file_is_left_by_a_cancelled_run(mortal, x, own, gate, on_disk):
    started(mortal, x, own, gate).cancel()
    until(lambda: not runs(own), "files were left")
    gate.open()
    until(lambda: not any(mortal.run(at_work).values()), "tasks ran on")
    until(lambda: not runs(own), "files were left")
    # once more, with the same names of tasks
    gate.close()
    running = started(mortal, x, own, gate)
    gate.open()
    assert running.result(timeout=PATIENCE).ordering.max() == len(x) - 1
    until(lambda: not runs(own), "files were left")


@pytest.mark.processes
def test_no_file_is_left_by_a_closed_client(mortal_workers, x, own, gate, on_disk):
    with Client(mortal_workers) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
        started(client, x, own, gate)
    until(lambda: not runs(own), "files were left")


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_no_file_is_left_without_a_cluster(scheduler, x, own, on_disk):
    few = x[:600]
    lazy = dd.from_pandas(frame_of(few), npartitions=3).simjoin.optics(
        EPS, partitioning="entity", blocksize=96 * 200
    )
    assert lazy.compute(scheduler=scheduler).ordering.max() == 599
    gc.collect()
    assert not runs(own)


def test_no_file_is_left_where_a_local_run_fails(x, own, on_disk, monkeypatch):
    def fail(*args):
        assert len(files(own)) > 6
        raise RuntimeError("no more")

    monkeypatch.setattr(graph_optics, "order_rows", fail)
    lazy = dd.from_pandas(frame_of(x[:600]), npartitions=3).simjoin.optics(
        EPS, partitioning="entity", blocksize=96 * 200
    )
    with pytest.raises(RuntimeError, match="no more"):
        lazy.compute(scheduler="threads")
    gc.collect()
    assert not runs(own)


def test_no_folder_is_needed_where_edges_fit_memory(x, tmp_path):
    (tmp_path / "file").write_text("")
    few = frame_of(x[:600])
    want = few.simjoin.optics(EPS).ordering.tolist()
    for nowhere in (tmp_path / "file" / "below", tmp_path / "not yet"):
        with dask.config.set({"temporary-directory": str(nowhere)}):
            for one in (few, dd.from_pandas(few, npartitions=3)):
                order = one.simjoin.optics(EPS)
                order = order if one is few else order.compute(scheduler="sync")
                assert order.ordering.tolist() == want
        assert not nowhere.exists()


def test_where_no_folder_can_be_made(x, tmp_path, on_disk):
    """Of edges that surely do not fit memory it is said before any is looked for."""
    (tmp_path / "file").write_text("")
    few, nowhere = frame_of(x[:600]), str(tmp_path / "file" / "below")
    with dask.config.set({"temporary-directory": nowhere}):
        for one in (few, dd.from_pandas(few, npartitions=3)):
            with pytest.raises(
                BudgetError, match=rf"0 B are free .*at '{nowhere}.*temporary-directory"
            ):
                len(one.simjoin.optics(EPS))


@pytest.mark.parametrize("lazy", [False, True])
def test_a_disk_that_is_full(x, own, on_disk, monkeypatch, lazy):
    """A limit on the size of files stands for it."""
    frame = frame_of(np.repeat(x[:300], 5, axis=0))
    frame = dd.from_pandas(frame, npartitions=1) if lazy else frame
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    order = (
        frame.simjoin.optics
        if not lazy
        else lambda eps: frame.simjoin.optics(eps).compute(scheduler="sync")
    )
    order(0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(
            ScratchError, match=rf"{own}.* written.*at least .* free.*mode='forest'"
        ) as e:
            order(0.3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(e.value, OSError)
    del e
    gc.collect()
    assert not runs(own)


def test_edges_of_plain_frames_that_do_not_fit_the_disk_are_refused(own, monkeypatch):
    frame = frame_of(np.zeros((400, 2)))
    monkeypatch.setattr(local, "IN_MEMORY", 10**6)
    monkeypatch.setattr(local, "free_at", lambda directory: 10**6)
    with pytest.raises(
        BudgetError,
        match=r"[67]\d,\d+ pairs.*4.* MB.*1 MB are free.*mode='forest'",
    ):
        frame.simjoin.optics(1.0)
    monkeypatch.setattr(local, "free_at", lambda directory: 10**8)
    assert frame.simjoin.optics(1.0).reachability.iloc[1] == 0.0


def test_a_folder_that_a_cleaner_removed_is_made_again(x, own, on_disk):
    frame = frame_of(x[:600])
    for one in (frame, dd.from_pandas(frame, npartitions=2)):
        for _ in range(2):
            assert len(one.simjoin.optics(EPS)) == 600
            subprocess.run(["rm", "-r", str(own)], check=True)


def test_others_cannot_write_to_folders_of_files(tmp_path):
    """Nor to those above that are made on the way, whatever the umask is: temporary
    folders are shared.
    """
    before = os.umask(0)
    try:
        writer = ArrayWriter(
            np.float64, str(tmp_path / "simjoin-1" / "local" / "run"), 0
        )
        writer.append(np.arange(3.0))
    finally:
        os.umask(before)
    assert writer.finish().array().tolist() == [0, 1, 2]
    made = list(tmp_path.rglob("*"))
    assert len(made) == 4 and all(path.stat().st_mode & 0o077 == 0 for path in made)


def test_a_read_only_disk(x, on_disk):
    """Few are writable below /proc."""
    if sys.platform != "linux":
        pytest.skip("has no /proc")
    with (
        dask.config.set({"temporary-directory": "/proc/nowhere"}),
        pytest.raises(
            (BudgetError, ScratchError),
            match=r"'/proc/nowhere.*Set Dask's configuration",
        ),
    ):
        frame_of(x[:600]).simjoin.optics(EPS)
