"""An index that is cached in memory gives the pairs that it gives from disk, and reads
no file again.
"""

import os
import shutil
import signal

import dask
import pandas as pd
import pytest
from distributed import Client

import dask_simjoin
from dask_simjoin.disk_index import cache, compare, rows, snapshots, writing
from dask_simjoin.disk_index.cache import device_rows
from dask_simjoin.errors import IndexFormatError, VersionGoneError
from dask_simjoin.planning.limits import Limits
from tests.checks.index_damage import forget
from tests.support.growing import CASES, FEW, made, table
from tests.support.oracle import as_set, assert_same_pairs
from tests.support.profiles import chosen, every_nth
from tests.support.stored import rows_on_a_line


def same(found, expected):
    """Whether two frames of pairs are one but for the order of rows."""
    pd.testing.assert_frame_equal(
        *(
            frame.compute().sort_values(["left", "right"], ignore_index=True)
            for frame in (found, expected)
        )
    )


@pytest.fixture
def opened(monkeypatch):
    """The row files that are read."""
    seen, plain = [], rows.parquet

    def parquet(path):
        seen.append(path.name)
        return plain(path)

    monkeypatch.setattr(rows, "parquet", parquet)
    return seen


@pytest.mark.parametrize("case", chosen(list(CASES), FEW[:1]))
def test_changes_are_those_from_disk(case, tmp_path, monkeypatch, opened):
    monkeypatch.setattr(writing, "PARTITION", 128)
    monkeypatch.setattr(cache, "PARTITION", 200)
    plain, beyond = compare._not_served, []

    def not_served(some, *args):
        beyond.append(len(some["seq"]))
        return plain(some, *args)

    monkeypatch.setattr(compare, "_not_served", not_served)
    with dask.config.set(scheduler="sync"):
        index = made(case, tmp_path / "index").persist()
        manifest = index._last.manifest
        known = {one.name for one in (*manifest.files, *manifest.keys)}
        assert (
            index.memory.rows == 500
            and index.memory.bytes_held > 500 * 8 * CASES[case][0]
        )
        opened.clear()
        again = table(case, 1000, 60).assign(key=table(case, 100, 60)["key"])
        new = pd.concat([table(case, 600, 150), table(case, 800, 40, scale=1.3), again])
        gone = table(case, 7, 30)["key"].tolist()
        changes = index.update(new, delete=gone, if_exists="replace")
        assert changes.work.row_groups_read == changes.work.bytes_read == 0
        assert changes.work.row_groups_held > 0
        added, removed = changes.added.compute(), changes.removed.compute()
        assert len(added) and len(removed)
        if case != "lists of texts":  # whose ids are looked up in their files
            assert known.isdisjoint(opened)
        disk = dask_simjoin.open_index(tmp_path / "index").changes(1)
        same(index.changes(1), disk)
        for side, sign in ((added, 1), (removed, -1)):
            assert as_set(side) == as_set(disk[disk["diff"] == sign].compute())
    if case == "20-D":
        assert sum(beyond) > 0


def test_what_there_is_no_room_for_is_read(tmp_path, monkeypatch):
    """As told; and files that were put in order take the place of those they are made
    of.
    """
    monkeypatch.setattr(writing, "PARTITION", 128)
    with dask.config.set(scheduler="sync"):
        index = made("2-D", tmp_path / "index")
        monkeypatch.setattr(cache, "_capacity", lambda library: 300 * 88)
        index.persist()
        told = index.memory
        assert 0 < told.rows <= 300 and told.rows + told.rows_on_disk == 500
        changes = index.update(table("2-D", 600, 150), delete=[1, 2])
        assert changes.work.row_groups_read > 0 < changes.work.row_groups_held
        same(index.changes(1), dask_simjoin.open_index(tmp_path / "index").changes(1))
        monkeypatch.undo()
        index.optimize("all")
        assert index.memory.rows_on_disk == 0 and index.memory.rows == len(index)
        changes = index.update(table("2-D", 900, 50))
        assert changes.work.row_groups_read == 0
        index.release()
        assert index.memory.rows == 0
        disk = dask_simjoin.open_index(tmp_path / "index")
        same(index.changes(changes.since), disk.changes(changes.since))


def test_on_a_cluster(client, tmp_path, monkeypatch):
    """Workers cache rows; what the cluster has lost, and what another writer did, is
    read.
    """
    monkeypatch.setattr(cache, "PARTITION", 200)
    index = made("2-D", tmp_path / "index").persist()
    assert client.who_has() and index.memory.rows == 500
    changes = index.update(table("2-D", 600, 150), delete=[1, 2])
    assert changes.work.row_groups_read == 0
    other = dask_simjoin.open_index(tmp_path / "index")
    other.update(table("2-D", 800, 30).assign(key=range(100, 130)), if_exists="replace")
    found = index.changes(1)
    same(found, other.changes(1))
    segments = [
        segment for some in index._last.cached.segments.values() for segment in some
    ]
    client.cancel([segment.value for segment in segments])
    changes = index.update(table("2-D", 900, 50))
    assert changes.work.row_groups_read == 0
    assert_same_pairs(
        as_set(changes.added.compute()),
        as_set(other.changes(changes.since, changes.version).compute()),
    )
    index.release()


@pytest.mark.slow
def test_a_worker_that_holds_rows_is_killed(mortal_workers, tmp_path, monkeypatch):
    """Its segments are made again."""
    monkeypatch.setattr(writing, "PARTITION", 128)
    with Client(mortal_workers) as client:
        client.wait_for_workers(2, timeout=60)
        index = made("2-D", tmp_path / "index").persist()
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        changes = index.update(table("2-D", 600, 150), delete=[1, 2])
        assert changes.work.row_groups_read == 0
        same(index.changes(1), dask_simjoin.open_index(tmp_path / "index").changes(1))


@pytest.mark.parametrize("threads", [1, 8, 32])
def test_rows_of_a_segment_on_a_gpu(threads):
    """There are four for each GPU, which threads of one process share, and they take a
    part of its memory.
    """
    whole = 2**37
    alone = Limits(threads, whole // threads, gpu=True)
    assert device_rows(10**6, 3000, alone) == 250_000
    most = device_rows(10**10, 3000, alone)
    assert most * 3000 * min(threads, 10**10 // most) <= 0.55 * whole
    several = Limits(threads, whole, True, gpu=True)
    assert device_rows(10**6, 3000, several) == 250_000 // threads


class Vacuum:
    """Lets another process make a version and remove the older ones, at the k-th time
    that some function is called.
    """

    def __init__(self, path, monkeypatch, module, name):
        self.path, self.left, self.plain = path, 0, getattr(module, name)
        self.other = dask_simjoin.open_index(path)
        self.done = 0
        monkeypatch.setattr(module, name, self)

    def __call__(self, *args, **options):
        if self.left:
            self.left -= 1
            self.other.optimize("all")
            self.other.vacuum(1)
            self.done += 1
        return self.plain(*args, **options)


READERS = {
    "persist": lambda index, new: index.persist().memory.rows_on_disk,
    "pairs": lambda index, new: len(index.pairs()),
    "larger pairs": lambda index, new: len(index.pairs(3.0)),
    "rows": lambda index, new: len(index.rows()),
    "join": lambda index, new: len(index.join(new)),
    "changes": lambda index, new: len(index.changes(0)),
    "plan": lambda index, new: index.plan(new).rows,
    "quality": lambda index, new: index.quality().rows,
    "components": lambda index, new: len(index.components()),
    "memory": lambda index, new: index.memory.rows,
    "history": lambda index, new: index.history()["rows"].iloc[-1],
    "check": lambda index, new: index.check().damaged,
}


@pytest.mark.parametrize("name", every_nth(4, READERS))
def test_readers_look_again_if_a_vacuum_removes_what_they_read(
    name, index, monkeypatch
):
    """The vacuum runs after the manifest was read, and before boxes are read: twice."""
    times = 2
    new = rows_on_a_line([3])
    expected = READERS[name](dask_simjoin.open_index(index.path), new)
    shutil.rmtree(index.path / "components", ignore_errors=True)
    vacuum = Vacuum(index.path, monkeypatch, snapshots, "read_boxes")
    index = dask_simjoin.open_index(index.path)
    vacuum.left = times
    assert READERS[name](index, new) == expected
    assert vacuum.done == times or name in ("history", "check", "memory")


@pytest.mark.parametrize("where", [(cache, "make_segment"), (cache, "read_keys")])
def test_a_vacuum_while_rows_are_cached(where, index, monkeypatch):
    """Later updates find the cached rows of the newer version."""
    vacuum = Vacuum(index.path, monkeypatch, *where)
    index = dask_simjoin.open_index(index.path)
    vacuum.left = 2
    with dask.config.set(scheduler="sync"):
        index.persist()
        assert vacuum.done == 2 and index.memory.rows_on_disk == 0
        assert index.update(rows_on_a_line([30, 31])).report.inserted == 2


@pytest.mark.parametrize("endless", [False, True])
def test_an_update_that_is_committed_is_not_refused(endless, index, monkeypatch):
    """A vacuum may remove its row file before it is cached: another writer has
    rewritten it.
    """
    vacuum = Vacuum(index.path, monkeypatch, cache, "make_segment")
    with dask.config.set(scheduler="sync"):
        index.persist()
        vacuum.left = 1000 if endless else 1
        changes = index.update(rows_on_a_line([30, 31]))
        assert (changes.report.inserted, changes.since) == (2, 5)
        vacuum.left = 0
        assert sorted(index.rows().compute()["key"])[-2:] == [30, 31]
        assert index.memory.rows_on_disk == 0


def test_a_file_that_is_lost_is_not_looked_for_again(index, monkeypatch):
    """No newer version exists, so it is damage."""
    tries = []
    plain = snapshots.read_boxes
    monkeypatch.setattr(
        snapshots, "read_boxes", lambda *args: (tries.append(args), plain(*args))[1]
    )
    for file in (index.path / "boxes").iterdir():
        file.unlink()
    forget()
    with pytest.raises(IndexFormatError, match="is missing, and version 5"):
        dask_simjoin.open_index(index.path).pairs()
    assert len(tries) == 1


def test_a_version_that_was_opened_is_not_replaced_by_a_newer_one(index, monkeypatch):
    vacuum = Vacuum(index.path, monkeypatch, snapshots, "read_boxes")
    old = dask_simjoin.open_index(index.path, version=4)
    vacuum.left = 1
    with pytest.raises(VersionGoneError):
        old.pairs()
