"""Computations whose workers are all stuck end with an error."""

import time
from types import SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Status
from distributed.shuffle._exceptions import P2POutOfDiskError

from dask_simjoin.errors import ScratchError
from dask_simjoin.graph import standstill
from dask_simjoin.graph.standstill import (
    Standstill,
    StandstillPlugin,
    standstill_message,
)
from dask_simjoin.sizes import TRIES
from tests.support.gates import PATIENCE
from tests.support.threads import started


class Data(dict):
    """Results of a worker; some are in memory."""

    def __init__(self, fast, slow=0):
        super().__init__(enumerate(range(fast + slow)))
        self.fast = range(fast)


EVENT = {
    "worker": "tcp://a:1",
    "used": 480 << 20,
    "limit": 600 << 20,
    "unwritten": 7,
    "directory": "/spill",
    "free": 4096,
    "max_spill": None,
}


def stand_in(folder, status=Status.paused, executing=0, fast=3):
    logged = []
    manager = SimpleNamespace(memory_limit=1000, max_spill=False)
    worker = SimpleNamespace(
        status=status,
        state=SimpleNamespace(executing_count=executing),
        data=Data(fast),
        address="tcp://a:1",
        memory_manager=manager,
        local_directory=str(folder),
        log_event=lambda *event: logged.append(event),
    )
    return worker, logged


def test_a_worker_that_stays_paused_and_writes_nothing_says_so(tmp_path):
    worker, logged = stand_in(tmp_path)
    look = Standstill().look
    said = [look(worker, 900) for _ in range(2 * TRIES + 1)]
    assert [n for n, one in enumerate(said) if one] == [TRIES, 2 * TRIES]
    topic, event = logged[0]
    assert topic == standstill.TOPIC
    assert (event["worker"], event["used"], event["limit"], event["unwritten"]) == (
        "tcp://a:1",
        900,
        1000,
        3,
    )
    assert (
        event["directory"] == str(tmp_path)
        and event["free"] > 0
        and event["max_spill"] is None
    )


def test_a_worker_whose_folder_is_gone_says_so_all_the_same(tmp_path):
    worker, logged = stand_in(tmp_path / "gone")
    look = Standstill().look
    assert [look(worker, 900) for _ in range(TRIES + 1)][-1]
    assert logged[0][1]["free"] == 0


@pytest.mark.parametrize("other", [{"status": Status.running}, {"executing": 1}])
def test_workers_that_run_say_nothing(tmp_path, other):
    worker, logged = stand_in(tmp_path, **other)
    look = Standstill().look
    assert not any(look(worker, 900) for _ in range(3 * TRIES)) and not logged


def test_workers_that_write_to_disk_say_nothing(tmp_path):
    worker, logged = stand_in(tmp_path, fast=5 * TRIES)
    look = Standstill().look
    for written in range(3 * TRIES):
        worker.data = Data(5 * TRIES - written, written)
        assert not look(worker, 900)
    assert not logged


def test_the_message_names_workers_disks_and_the_remedy():
    said = standstill_message(
        [EVENT, {**EVENT, "worker": "tcp://b:2", "max_spill": 1 << 20}]
    )
    assert (
        "tcp://a:1 uses 480 MiB of 600 MiB and cannot write 7 results to '/spill'"
        in said
    )
    assert "where 4 kiB are free; tcp://b:2" in said
    assert "Dask may use at most 1 MiB (distributed.worker.memory.max-spill)" in said
    assert "local_directory=" in said and "temporary-directory" in said
    assert "nothing that it could write" in standstill_message(
        [{**EVENT, "unwritten": 0}]
    )


def set_status(status, dask_worker):
    dask_worker.status = Status[status]


@pytest.fixture
def paused(monkeypatch):
    """A cluster of one thread in this process, and a way to pause its worker."""
    monkeypatch.setattr(standstill, "WAIT", 0.3)
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            memory_limit=0,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        (worker,) = cluster.workers.values()
        standstill.watch(client)

        def pause(status=Status.paused):
            client.run(set_status, status.name)

        yield SimpleNamespace(
            client=client, worker=worker, pause=pause, scheduler=cluster.scheduler
        )


def say(worker, seconds, until=None):
    """Let a worker say for some time that it stands still."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (until and until()):
        worker.log_event(standstill.TOPIC, {**EVENT, "worker": worker.address})
        time.sleep(0.05)


def lazy():
    x = np.random.default_rng(0).uniform(size=(200, 2))
    return dd.from_pandas(
        pd.DataFrame(x, columns=["x", "y"]), npartitions=4
    ).simjoin.count_pairs(0.1)


def test_tasks_of_workers_that_stand_still_fail(paused):
    pairs = lazy()
    assert pairs.compute() > 0
    paused.pause()
    running = started(pairs.compute)
    say(paused.worker, PATIENCE, until=running.done)
    with pytest.raises(ScratchError, match="'/spill'"):
        running.result(PATIENCE)
    # nothing of it is left, and the cluster computes again
    paused.pause(Status.running)
    assert pairs.compute() > 0
    assert paused.client.submit(abs, -3).result(PATIENCE) == 3


def test_other_tasks_are_left_alone(paused):
    lazy().compute()
    paused.pause()
    future = paused.client.submit(abs, -2)
    say(paused.worker, 1.5)
    assert future.status == "pending"
    paused.pause(Status.running)
    assert future.result(PATIENCE) == 2


def test_nothing_fails_while_another_worker_has_work():
    plugin = StandstillPlugin()
    calls = []
    there = {
        "tcp://a:1": SimpleNamespace(address="tcp://a:1", processing={"t": 1}),
        "tcp://b:2": SimpleNamespace(address="tcp://b:2", processing={"u": 1}),
    }
    loop = SimpleNamespace(add_callback=lambda *call: calls.append(call))
    plugin._scheduler = SimpleNamespace(workers=there, transition_counter=7, loop=loop)
    plugin._since = -1e9
    for _ in range(3):
        plugin.log_event(standstill.TOPIC, EVENT)
    assert not calls
    there["tcp://b:2"].processing.clear()
    plugin._since = -1e9
    plugin.log_event(standstill.TOPIC, EVENT)
    assert len(calls) == 1
    # what moved starts the wait again
    plugin._scheduler.transition_counter, plugin._since = 8, -1e9
    plugin.log_event(standstill.TOPIC, EVENT)
    plugin.log_event("other", EVENT)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["simjoin_read", "other"])
def test_a_shuffle_with_a_full_disk_names_the_worker_and_remedies(paused, name):
    """Errors of other computations stay as they are."""

    def write(number):
        raise P2POutOfDiskError(28, "No space left on device")

    rows = paused.client.submit(int, 1, key=f"{name}-0")
    sent = paused.client.submit(write, rows, key="shuffle-transfer-0")
    found = paused.client.submit(int, sent, key="found-0")
    ours = name == "simjoin_read"
    with pytest.raises(ScratchError if ours else P2POutOfDiskError) as error:
        found.result(PATIENCE)
    if ours:
        assert paused.worker.address in str(error.value)
        assert repr(paused.worker.local_directory) in str(error.value)
        assert "local_directory=" in str(error.value)
        assert next(one.options for one in error.value.remedies) == {
            "partitioning": "entity"
        }
