"""The operations by which versions are made and removed, on a disk and on a store."""

import pytest

from dask_simjoin.disk_index.folders import (
    SHARED,
    TOMBSTONE,
    folder_of,
    is_tombstone,
    removed,
)
from tests.checks.index_schedules import a_place


@pytest.fixture(params=["disk", "memory"])
def folder(request):
    if request.param == "memory":
        pytest.importorskip("obstore")
    with a_place(request.param) as place:
        yield folder_of(place)


def test_a_name_is_taken_once(folder):
    folder.create("b", b"one")
    for _ in range(2):
        with pytest.raises(FileExistsError):
            folder.create("b", b"two")
    assert folder.read("b") == b"one" and folder.names() == ["b"]
    folder.sync()


def test_names_are_listed_in_order(folder):
    assert folder.names() == [] == folder_of(folder.path / "none").names()
    for name in ("c", "a", ".x", "b"):
        folder.create(name, b"")
    assert folder.names() == [".x", "a", "b", "c"]
    assert folder.names("a") == folder.names("aa") == ["b", "c"]
    assert removed(folder.path / "b") == 0 and folder.names("a") == ["c"]


def test_a_removed_file_keeps_its_name(folder):
    folder.create("a", b"one")
    for _ in range(2):  # the second time, it is a tombstone already
        folder.bury("a")
        assert folder.read("a") == TOMBSTONE and is_tombstone(folder.read("a"))
        assert set(folder.names()) <= {"a", SHARED}
        with pytest.raises(FileExistsError):
            folder.create("a", b"two")
    folder.create("b", b"two")
    folder.bury("b")
    folder.replace("b", b"three")
    assert folder.read("a") == TOMBSTONE and folder.read("b") == b"three"
    folder.replace("c", b"new")
    assert folder.read("c") == b"new"
    with pytest.raises(FileNotFoundError):
        folder.read("none")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"removed": 1}', b"\xff"])
def test_other_content_is_no_tombstone(content):
    assert not is_tombstone(content)
