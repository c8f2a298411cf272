"""A process that is killed at any file operation leaves one version or the next, and
nothing between.
"""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dask_simjoin
from dask_simjoin.errors import IndexFormatError
from tests.disk_index import killed
from tests.support.growing import Model
from tests.support.oracle import as_set
from tests.support.profiles import everything

ROOT = Path(__file__).parents[2]

BEFORE = Model(1.0, {k: (float(k),) for k in range(12) if k != 9})
AFTER = Model(
    1.0,
    {k: (float(k),) for k in range(12) if k not in (0, 7, 9)}
    | {3: (4.5,), 20: (0.5,), 21: (11.0,)},
)
FIRST = Model(1.0, {k: (float(k),) for k in range(10)})
MADE = FIRST.pairs()


def folders(tmp_path, name):
    """Where an action was killed, by the number of the operation; the last one was not."""
    command = [sys.executable, "-m", "tests.disk_index.killed", str(tmp_path), name]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = sorted(
        tmp_path.glob(f"{name}-*"), key=lambda path: int(path.name.partition("-")[2])
    )
    assert len(found) > 2
    return found


def pairs(index, found=True):
    """Its pairs, unordered: a row that was replaced keeps its number; as stored, and as
    they are `found`.
    """
    stored = as_set(index.pairs().compute(scheduler="sync"))
    if found:
        assert stored == as_set(
            index.pairs(math.nextafter(1, 2)).compute(scheduler="sync")
        )
    return {frozenset(pair) for pair in stored}


def unordered(model):
    return {frozenset(pair) for pair in model.pairs()}


@pytest.mark.processes
def test_an_update_that_is_killed_is_done_or_not(tmp_path):
    """At whatever operation; and the same batch again gives what it would have given."""
    every = folders(tmp_path, "update")
    # every sixth operation by default, and the last one
    every = [*every[: -1 : 1 if everything() else 6], every[-1]]
    seen = []
    for path in every:
        index = dask_simjoin.open_index(path)
        seen.append(index.version)
        other = len(seen) < 2 or seen[-1] != seen[-2]
        assert pairs(index, other) == unordered({3: BEFORE, 4: AFTER}[index.version])
        changes = index.update(
            killed.NEW, delete=killed.GONE, if_exists="replace", batch="new"
        )
        assert changes.report.known == (seen[-1] == 4)
        assert (changes.since, changes.version, index.version) == (3, 4, 4)
        if not other and path != every[-1]:
            continue  # it is as the one before
        added, removed = (
            as_set(side.compute(scheduler="sync"))
            for side in (changes.added, changes.removed)
        )
        assert {frozenset(pair) for pair in added} == unordered(AFTER) - unordered(
            BEFORE
        )
        assert {frozenset(pair) for pair in removed} == unordered(BEFORE) - unordered(
            AFTER
        )
    assert seen == sorted(seen)
    assert set(seen) == {3, 4}


@pytest.mark.slow
@pytest.mark.processes
def test_putting_rows_in_order_changes_nothing_when_it_is_killed(tmp_path):
    """Rows are where they were or where they are to be, and ids are found there."""
    versions = []
    for path in folders(tmp_path, "optimize"):
        index = dask_simjoin.open_index(path)
        versions.append(index.version)
        assert pairs(index) == unordered(BEFORE)
        index.delete(killed.GONE)
        assert len(index) == 9
    assert set(versions) == {3, 4}


@pytest.mark.slow
@pytest.mark.processes
def test_a_restore_that_is_killed_is_done_or_not(tmp_path):
    versions = []
    for path in folders(tmp_path, "restore"):
        index = dask_simjoin.open_index(path)
        versions.append(index.version)
        assert pairs(index) == unordered({3: BEFORE, 4: FIRST}[index.version])
    assert set(versions) == {3, 4}


@pytest.mark.slow
@pytest.mark.processes
def test_a_vacuum_that_is_killed_changes_nothing(tmp_path):
    """But it may have made a version before it removes files that no version names."""
    versions = []
    for path in folders(tmp_path, "vacuum"):
        index = dask_simjoin.open_index(path)
        versions.append(index.version)
        assert pairs(index) == unordered(BEFORE)
        assert index.check().damaged == 0
        index.vacuum(keep=1)
        assert index.history().index.tolist() == versions[-1:]
    assert versions == sorted(versions)
    assert set(versions) == {3, 4}


@pytest.mark.slow
@pytest.mark.processes
def test_making_that_is_killed_can_be_done_again(tmp_path):
    seen = set()
    for path in folders(tmp_path, "make"):
        try:
            index = dask_simjoin.open_index(path)
        except IndexFormatError:
            seen.add("none")
            killed.make(str(path))
            index = dask_simjoin.open_index(path)
        else:
            seen.add("made")
        assert index.version == 1
        assert as_set(index.pairs().compute(scheduler="sync")) == MADE
    assert seen == {"none", "made"}


def test_a_damaged_last_manifest_is_refused(tmp_path):
    """The version before it is restored when asked for, and the next one gets a number
    of its own.
    """
    killed.make(str(tmp_path / "index"))
    killed.grow(str(tmp_path / "index"))
    last = tmp_path / "index" / "_versions" / f"{3:020d}.json"
    text = last.read_text()
    for broken in (
        text[: len(text) // 2],
        text.replace('"rows": 11', '"rows": 12'),
        "",
    ):
        assert broken != text
        last.write_text(broken)
        with pytest.raises(IndexFormatError, match=last.name):
            dask_simjoin.open_index(tmp_path / "index")
    dask_simjoin.open_index(tmp_path / "index", version=2).restore(2)
    index = dask_simjoin.open_index(tmp_path / "index")
    changes = index.update(None, delete=[9])
    assert (changes.since, changes.version) == (4, 5)
    assert pairs(dask_simjoin.open_index(tmp_path / "index")) == unordered(BEFORE)
    assert as_set(index.changes(1).query("diff < 0").compute()) == {(8, 9)}


def test_a_folder_without_an_index_is_refused(tmp_path):
    with pytest.raises(
        IndexFormatError, match=re.escape("holds no index, as it has no version")
    ):
        dask_simjoin.open_index(tmp_path)
    with pytest.raises(IndexFormatError, match="no version"):
        dask_simjoin.open_index(tmp_path / "none")
    killed.make(str(tmp_path / "index"))
    manifest = tmp_path / "index" / "_versions" / f"{1:020d}.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(
        IndexFormatError, match="of format 2, and this version of dask_simjoin reads 1"
    ):
        dask_simjoin.open_index(tmp_path / "index")
    manifest.write_text(text[:-20])
    with pytest.raises(
        IndexFormatError,
        match=f"{manifest.name}. is damaged: .* No older version is intact",
    ):
        dask_simjoin.open_index(tmp_path / "index")
