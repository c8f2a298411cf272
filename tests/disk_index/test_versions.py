"""What a failed call wrote is removed, and the same call works once there is room."""

import errno
import os

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.disk_index import folders, versions
from dask_simjoin.disk_index.publishing import transaction
from dask_simjoin.errors import (
    IndexConflictError,
    IndexFormatError,
    IndexWriteError,
    UpkeepWarning,
)
from tests.checks.index_crashes import run
from tests.support.profiles import chosen


def frame(ids):
    return pd.DataFrame({"key": np.array(ids), "x": np.array(ids, float) / 2})


def files(path):
    return {str(one.relative_to(path)) for one in path.glob("**/*")}


@pytest.fixture
def full(monkeypatch):
    """Let the k-th file that is synced from now on be one for which there is no room."""
    plain = os.fsync

    def fill(after):
        left = [after]

        def fsync(number):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            plain(number)

        monkeypatch.setattr(os, "fsync", fsync)

    yield fill
    monkeypatch.setattr(os, "fsync", plain)


@pytest.fixture
def made(tmp_path):
    with dask.config.set(scheduler="sync"):
        yield frame(range(6)).simjoin.index(
            1.0, tmp_path / "index", on="x", id="key", store_pairs=True
        )


@pytest.mark.parametrize("after", [0, 1, 3, 6])
def test_an_update_on_a_full_disk_leaves_nothing(after, made, full):
    before = files(made.path)
    rows = dd.from_pandas(frame(range(10, 40)), npartitions=3)
    full(after)
    with pytest.raises(
        OSError, match=r"cannot be written: No space left.* Free disk"
    ) as told:
        made.update(rows, delete=[0], batch="night")
    assert isinstance(told.value, IndexWriteError) and told.value.errno == errno.ENOSPC
    assert str(made.path) in str(told.value)
    assert files(made.path) == before
    full(1000)
    changes = made.update(rows, delete=[0], batch="night")
    assert (changes.version, changes.report.inserted, changes.report.known) == (
        2,
        30,
        False,
    )


@pytest.mark.parametrize("there", [False, True])
def test_a_first_load_on_a_full_disk_can_be_done_again(there, tmp_path, full):
    path = tmp_path / "one" / "index"
    if there:
        path.mkdir(parents=True)
    full(4)
    with dask.config.set(scheduler="sync"):
        with pytest.raises(IndexWriteError):
            frame(range(6)).simjoin.index(1.0, path, on="x", id="key")
        assert path.exists() == there and (tmp_path / "one").exists() == there
        assert files(tmp_path) == ({"one", "one/index"} if there else set())
        full(1000)
        assert frame(range(6)).simjoin.index(1.0, path, on="x", id="key").version == 1


def test_a_vacuum_on_a_full_disk_makes_room(made, monkeypatch):
    """It makes no version then, so files that no version names stay."""
    for k in range(3):
        made.update(frame([10 + k]))
    made.vacuum(keep=3)
    stray = made.path / "rows" / f"{'0' * 32}.parquet"
    stray.write_bytes(b"1234")
    monkeypatch.setattr(versions, "A_DAY", -1000)
    plain = folders.write_new

    def used():
        return sum(path.stat().st_size for path in made.path.glob("*/*"))

    def write_new(path, write, room=used()):  # noqa: B008
        if used() >= room:
            raise IndexWriteError(errno.ENOSPC, "no room")
        return plain(path, write)

    monkeypatch.setattr(folders, "write_new", write_new)
    assert made.vacuum(keep=1) > 0
    assert made.version == 4 and stray.exists()
    assert made.history().index.tolist() == [4]
    assert made.vacuum(keep=1) > 4
    assert made.version == 5 and not stray.exists()


def test_rows_that_cannot_be_put_in_order_are_no_error_of_the_update(
    tmp_path, full, monkeypatch
):
    """Its version is made; a later update puts them in order."""
    with dask.config.set(scheduler="sync"):
        made = frame(range(6)).simjoin.index(
            1.0, tmp_path, on="x", id="key", recluster="always"
        )
        plain = os.link
        # syncs the folder, and no more
        monkeypatch.setattr(os, "link", lambda *two: (plain(*two), full(1)))
        with pytest.warns(
            UpkeepWarning,
            match=r"^Version 2 of the index .* is committed, but its files",
        ):
            changes = made.update(frame([10]))
        monkeypatch.setattr(os, "link", plain)
        full(1000)
        assert (changes.version, changes.upkeep.files_written) == (2, 0)
        assert made.update(frame([11])).upkeep.files_written == 1
        assert sorted(made.rows().compute()["key"]) == [*range(6), 10, 11]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whatever_ends_an_update_its_rows_are_removed(error, made, monkeypatch):
    """Also what its tasks wrote before."""
    before, seen = files(made.path), []

    def fail(own, *_):
        seen.extend(files(own.root) - before)
        raise error

    monkeypatch.setattr(versions, "write_boxes", fail)
    with pytest.raises(error):
        made.update(frame([10]))
    assert {name.partition("/")[0] for name in seen} == {"rows", "keys", "_versions"}
    assert files(made.path) == before


def test_a_task_that_ends_after_its_update_has_failed_removes_its_file(made):
    before = files(made.path)
    with transaction(made.path) as own:
        own.write("rows", lambda file: file.write(b"one"))
        assert len(files(made.path)) == len(before) + 2
    assert files(made.path) == before
    with pytest.raises(IndexConflictError, match="failed, or took longer than a day"):
        own.write("rows", lambda file: file.write(b"two"))
    assert files(made.path) == before


def test_a_task_whose_file_a_vacuum_removes_says_so(made, monkeypatch):
    """And it does not ask to free disk space."""
    monkeypatch.setattr(versions, "A_DAY", -1000)
    with transaction(made.path) as own:
        with pytest.raises(IndexConflictError, match="took longer than a day"):
            own.write("rows", lambda file: (file.write(b"one"), made.vacuum()))
        assert not own.lease.exists()
    with transaction(made.path) as own:
        own.lease.unlink()
        with pytest.raises(IndexConflictError, match="a day"), own.held():
            raise IndexFormatError("A worker wrote 1 row, but this process does not")
    with (
        transaction(made.path) as own,
        pytest.raises(IndexFormatError, match="A worker"),
        own.held(),
    ):
        raise IndexFormatError("A worker wrote 1 row, but this process does not")


@pytest.mark.processes
@pytest.mark.parametrize("mode", chosen(["full", "kill"], ["full"]))
def test_an_update_that_fails_at_an_operation_is_done_or_not(mode):
    """All operations, and all that an index does: python -m tests.checks.index_crashes."""
    counts = run(["update"], [mode], step=40)
    assert {state for _, _, state in counts} == {"version 3", "version 4"}
