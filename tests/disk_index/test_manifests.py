"""Old versions: what changed since, what is brought back, and what is removed for good."""

import errno
import os
import time

import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import publishing
from dask_simjoin.disk_index.manifests import manifest_path, versions
from dask_simjoin.errors import OptionError, VersionGoneError
from tests.support.oracle import as_set
from tests.support.stored import rows_on_a_line


@pytest.mark.parametrize("store_pairs", [False, True])
def test_what_is_removed_as_it_is_read_is_refused_by_the_name_of_its_version(
    store_pairs, tmp_path
):
    """Also by an index that was opened at that version, and by frames that were made
    before.
    """
    how = {"on": "x", "id": "key", "store_pairs": store_pairs, "recluster": "never"}
    made = rows_on_a_line(range(8)).simjoin.index(1.0, tmp_path, **how)
    old = dask_simjoin.open_index(tmp_path, version=1)
    lazy = [old.pairs(), old.rows(), old.components()]
    other = dask_simjoin.open_index(tmp_path, version=1)
    made.delete([0])
    made.optimize("all")
    for _ in range(2):
        made.update(rows_on_a_line([0]), if_exists="replace")
        made.components()
    made.vacuum(keep=1)
    for found in lazy:
        with pytest.raises(
            VersionGoneError, match=r"does not exist: vacuum\(\).* history\(\) lists"
        ):
            found.compute()
    for ask in (other.pairs, other.rows, other.components):
        with pytest.raises(VersionGoneError):
            ask().compute()


def test_files_of_nobody_are_removed_once_they_are_old(index):
    """New ones may be those of an update that is at work."""
    index.components()
    number = "0" * 32
    stray, half = (
        index.path / "rows" / f"{number}.parquet",
        index.path / "components" / f".{1:020d}-{number}.tmp",
    )
    unfinished = index.path / "_versions" / f".{number}.manifest"
    for path in (stray, half, unfinished):
        path.write_bytes(b"1234")
    assert index.vacuum(keep=10) == 0 and index.version == 5
    yesterday = time.time() - 25 * 60 * 60
    for path in (stray, half, unfinished, *index.path.glob("components/0*")):
        os.utime(path, (yesterday, yesterday))
    assert index.vacuum(keep=10) == 12
    assert not any(path.exists() for path in (stray, half, unfinished))
    assert len(list(index.path.glob("components/*"))) == 1
    # the vacuum has made a version without changes
    assert index.history()["kind"].tolist()[-2:] == ["update", "rewrite"]
    assert index.history().index.tolist() == [1, 2, 3, 4, 5, 6]
    assert index.vacuum(keep=10) == 0 and index.version == 6


def test_removed_versions_take_no_space(index, monkeypatch):
    """Their names are links to one file, or to another one if that has too many."""
    folder, plain = index.path / "_versions", os.link
    before = {one.name for one in folder.glob("*.json")}
    assert index.vacuum(keep=3) > 0
    removed = [manifest_path(index.path, n) for n in (1, 2)]
    assert (folder / ".removed").stat().st_nlink == 3
    assert all(one.samefile(folder / ".removed") for one in removed)

    def link(source, target):
        if source == folder / ".removed" and os.stat(source).st_nlink > 2:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        plain(source, target)

    monkeypatch.setattr(os, "link", link)
    assert index.vacuum(keep=1) > 0
    assert (folder / ".removed").stat().st_nlink == 3
    assert not removed[0].samefile(folder / ".removed")
    assert {one.name for one in folder.glob("*.json")} == before
    assert {one.name for one in folder.glob(".*")} == {".removed", ".oldest"}
    assert versions(index.path) == [5] and index.check().versions == 1
    # damaged: versions are listed from the first name on
    for text in ("99", "x", ""):
        (folder / ".oldest").write_text(text)
        assert versions(index.path) == [1, 2, 3, 4, 5] and index.version == 5
        assert index.check().versions == 1
    assert index.vacuum(keep=1) == 0 == index.check().damaged
    assert versions(index.path) == [5]


def test_nothing_to_do_is_a_version_too(index):
    changes = index.update(rows_on_a_line([2, 3]), if_exists="ignore", batch="d")
    assert (changes.version, changes.report.ignored, changes.report.files) == (6, 2, 0)
    assert not len(changes.added) and not len(changes.removed)
    assert index.update(None, batch="d").report.known


def test_history_tells_what_was_done(index):
    told = index.history()
    assert told["kind"].tolist() == ["index", "update", "update", "rewrite", "update"]
    assert told["batch"].fillna("").tolist() == ["", "a", "b", "", "c"]
    assert told["rows"].tolist() == [6, 7, 7, 7, 7]
    assert (pd.to_datetime(told["time"]) <= pd.Timestamp.now("UTC")).all()


def test_manifests_stay_small_however_many_batches_there_are(tmp_path, monkeypatch):
    """Earlier names lie in files, which vacuum leaves, and are known as before."""
    monkeypatch.setattr(publishing, "MAX_BATCHES", 3)
    folder = tmp_path / "index"
    frame = pd.DataFrame({"key": [0], "x": [0.0]})
    index = frame.simjoin.index(1.0, folder, on="x", id="key", recluster="never")
    for k in range(1, 9):
        index.update(frame.assign(key=k, x=float(k)), batch=f"day {k}")
    assert len(index._now().manifest.batches) == 2
    assert len(list((folder / "_versions").glob("*.parquet"))) == 2
    index.vacuum(keep=1)
    again = dask_simjoin.open_index(folder)
    for k in (1, 5, 8):
        changes = again.update(frame.assign(key=k, x=float(k)), batch=f"day {k}")
        assert changes.report.known and changes.version == k + 1
        with pytest.raises(
            OptionError,
            match=f"as version {k + 1} with other rows: it had 1 new row, and",
        ):
            again.update(frame.assign(key=100 + k), batch=f"day {k}")
    assert again.version == 9
    assert as_set(again.changes(0).compute()) == {(k, k + 1) for k in range(8)}
