"""An index reads and removes regular files in its own folder, and nothing else."""

import json
import os
import shutil
import time
import uuid

import dask
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index.files import EVERY_FOLDER, FOLDERS
from dask_simjoin.errors import IndexFormatError, SimJoinError
from tests.checks.index_damage import forget
from tests.support.profiles import in_turns
from tests.support.stored import rows_on_a_line

pytestmark = pytest.mark.usefixtures("in_this_thread")

LONG_AGO = time.time() - 10**6


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """An index of two versions, with components."""
    how = {"on": "x", "id": "key", "recluster": "never", "store_pairs": True}
    folder = tmp_path_factory.mktemp("template")
    with dask.config.set(scheduler="sync"):
        made = rows_on_a_line(range(6)).simjoin.index(1.0, folder, **how)
        made.update(rows_on_a_line([6]), delete=[0], batch="b")
        made.components()
    return folder


@pytest.fixture
def path(template, tmp_path):
    """A copy of the template."""
    forget()
    return shutil.copytree(template, tmp_path / "index")


def linked(path, name):
    """Move a folder of an index elsewhere, and make a link to it. Return the old files
    of somebody else, and of the index, that are there.
    """
    there = path.parent / "elsewhere"
    shutil.move(path / name, there)
    (path / name).symlink_to(there)
    old = there / f"{uuid.uuid4().hex}.parquet"
    old.write_bytes(b"precious")
    os.utime(old, (LONG_AGO, LONG_AGO))
    return sorted(there.iterdir())


@pytest.mark.parametrize("name", EVERY_FOLDER)
def test_folders_that_are_links_are_refused(name, path):
    opened = dask_simjoin.open_index(path)
    there = linked(path, name)
    for call in (
        lambda: dask_simjoin.open_index(path),
        lambda: dask_simjoin.open_index(path, version=1),
        lambda: opened.vacuum(1),
    ):
        with pytest.raises(IndexFormatError, match=rf"{name}' is a symbolic link, and"):
            call()
    assert sorted((path.parent / "elsewhere").iterdir()) == there


@pytest.mark.parametrize("name", ["rows", "pairs", "deleted", "boxes", "keys"])
def test_a_folder_that_becomes_a_link_is_not_read(name, path):
    opened = dask_simjoin.open_index(path)
    linked(path, name)
    with pytest.raises(IndexFormatError, match=rf"{name}' is a symbolic link, and"):
        used(opened)
    found = opened.check()
    assert {one.file.partition("/")[0] for one in found.damage} == {name}


@pytest.mark.parametrize("name", ["_versions", "rows"])
def test_a_new_index_is_not_written_through_links(name, tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "index" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IndexFormatError, match=rf"{name}' is a symbolic link, and"):
        rows_on_a_line([1]).simjoin.index(1.0, tmp_path / "index", on="x", id="key")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_folder_of_an_index_may_be_a_link(path):
    (path.parent / "link").symlink_to(path)
    opened = dask_simjoin.open_index(path.parent / "link")
    opened.update(rows_on_a_line([9]))
    opened.optimize("all")
    assert opened.vacuum(1) and opened.check().damaged == 0


def used(opened):
    """Read files of all folders of an index."""
    opened.update(rows_on_a_line([1, 8]), if_exists="replace")
    opened.pairs().compute()


KINDS = {
    "a symbolic link": lambda file, copy: file.symlink_to(copy),
    "a named pipe": lambda file, copy: os.mkfifo(file),
    "a folder": lambda file, copy: file.mkdir(),
}


@in_turns(1, kind=list(KINDS), folder=["rows", "boxes", "keys", "pairs", "deleted"])
def test_files_that_are_not_regular_are_refused(kind, folder, path):
    for file in sorted((path / folder).iterdir()):
        file.rename(path.parent / file.name)
        KINDS[kind](file, path.parent / file.name)
    opened = dask_simjoin.open_index(path)
    with pytest.raises(IndexFormatError, match=rf"{folder}/.*it is {kind}"):
        used(opened)
    damage = {one.file.partition("/")[0]: one.damage for one in opened.check().damage}
    assert set(damage) == {folder} and f"it is {kind}" in damage[folder]


@pytest.mark.parametrize("kind", KINDS)
def test_manifests_that_are_not_regular_are_damaged(kind, path):
    file = max((path / "_versions").glob("*.json"))
    file.rename(path.parent / file.name)
    KINDS[kind](file, path.parent / file.name)
    with pytest.raises(IndexFormatError, match=rf"2\.json' is damaged: .*it is {kind}"):
        dask_simjoin.open_index(path)
    assert dask_simjoin.open_index(path, version=1).restore(1).version == 3
    assert dask_simjoin.open_index(path).vacuum(1)
    assert (path.parent / file.name).stat().st_size


@pytest.mark.parametrize("kind", KINDS)
def test_components_that_are_not_regular_do_no_harm(kind, path):
    expected = dask_simjoin.open_index(path).components().compute()
    for file in (path / "components").iterdir():
        file.rename(path.parent / file.name)
        KINDS[kind](file, path.parent / file.name)
    if kind == "a folder":
        with pytest.raises(IndexFormatError, match="Move it away"):
            dask_simjoin.open_index(path).components()
    else:
        found = dask_simjoin.open_index(path).components().compute()
        pd.testing.assert_frame_equal(found, expected)
        assert (path.parent / file.name).stat().st_size


FOREIGN = (
    "notes.txt",
    "precious.parquet",
    ".hidden",
    ".precious.tmp",
    ".x.lease",
    ".x.manifest",
    "part-0.parquet",
    "0000.json",
    f"{'0' * 32}.parquet.bak",
    f"{'A' * 32}.parquet",
    f".{'0' * 32}.json",
)
"""Names that an index never gives to a file."""

OURS = (
    f"{'0' * 32}.parquet",
    f"{'0' * 16}-{'1' * 8}-{'2' * 16}.parquet",
    f".{'0' * 16}-{'1' * 8}-{'2' * 32}.tmp",
    f".{'0' * 32}.tmp",
)
"""Names of files that a killed process may leave in any folder."""


def test_a_vacuum_removes_only_names_of_the_index(path):
    for folder in EVERY_FOLDER:
        for name in (*FOREIGN, *OURS):
            (path / folder / name).write_bytes(b"1")
            os.utime(path / folder / name, (LONG_AGO, LONG_AGO))
        (path / folder / f"{'3' * 32}.parquet").symlink_to(path.parent)
        (path / folder / f"{'4' * 32}.parquet").symlink_to(path.parent / "gone")
    lease = path / "_versions" / f".{'5' * 16}.lease"
    lease.touch()
    os.utime(lease, (LONG_AGO, LONG_AGO))
    opened = dask_simjoin.open_index(path)
    opened.vacuum(10)
    for folder in EVERY_FOLDER:
        left = {one.name for one in (path / folder).iterdir()}
        assert left >= {*FOREIGN, f"{'3' * 32}.parquet", f"{'4' * 32}.parquet"}
        assert folder not in FOLDERS or left.isdisjoint(OURS)
    assert not lease.exists()
    assert opened.check().damaged == 0


def test_an_update_that_fails_removes_only_its_own_files(path, monkeypatch):
    before = sorted(path.rglob("*"))
    token = "ab" * 8
    copy = path / "rows" / f"copy of {token}.parquet"
    copy.write_bytes(b"1")
    plain = uuid.uuid4
    monkeypatch.setattr(
        "dask_simjoin.disk_index.publishing.uuid.uuid4",
        lambda: uuid.UUID(token + plain().hex[16:]),
    )
    with pytest.raises(SimJoinError):
        dask_simjoin.open_index(path).update(rows_on_a_line([2]), batch="c")
    assert sorted(path.rglob("*")) == sorted([*before, copy])


def test_a_folder_that_cannot_be_read_is_named(path, monkeypatch):
    def listdir(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(os, "scandir", listdir)
    with pytest.raises(IndexFormatError, match="_versions' cannot be read: Permission"):
        dask_simjoin.open_index(path)


def test_other_folders_in_the_index_stay(path):
    (path / "notes").mkdir()
    (path / "notes" / "a.json").write_text(json.dumps({}))
    dask_simjoin.open_index(path).vacuum(1)
    assert (path / "notes" / "a.json").exists()
