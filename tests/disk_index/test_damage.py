"""An index whose files are damaged refuses what it cannot answer, by the file's name,
and can go on.
"""

import json
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import manifests
from dask_simjoin.errors import (
    ColumnError,
    IndexFormatError,
    OptionError,
    VersionGoneError,
)
from tests.checks.index_damage import damages, forget
from tests.support.oracle import as_set
from tests.support.profiles import every_nth, everything
from tests.support.stored import forged

OLD = Path(__file__).parent / "data" / "index-without-checksums"
"""An index of two versions, made before files had checksums."""

NEW = pd.DataFrame({"key": [20], "x": [5.4]})


@pytest.fixture
def path(tmp_path):
    """An index of three versions."""
    first = pd.DataFrame({"key": range(4), "x": [0.0, 0.5, 5.0, 5.5]})
    made = first.simjoin.index(
        1.0, tmp_path / "index", on="x", id="key", recluster="never"
    )
    made.update(pd.DataFrame({"key": [9], "x": [5.2]}), batch="b")
    made.update(pd.DataFrame({"key": [10], "x": [0.7]}), delete=[0])
    forget()
    return tmp_path / "index"


def last(path):
    return max((path / "_versions").glob("*.json"))


def pairs(index):
    return as_set(index.pairs().compute(scheduler="sync"))


def test_a_bit_of_a_coordinate(path, client):
    """It is refused by workers, too, under the file's name."""
    file = next(
        one
        for one in (path / "rows").iterdir()
        if struct.pack("<d", 5.2) in one.read_bytes()
    )
    data = bytearray(file.read_bytes())
    data[data.index(struct.pack("<d", 5.2)) + 6] ^= 8
    file.write_bytes(data)
    index = dask_simjoin.open_index(path)
    for found in (index.pairs(), index.rows()):
        with pytest.raises(
            IndexFormatError,
            match=rf"{file.name}' is damaged: its content changed .* backup",
        ):
            found.compute()
    with pytest.raises(IndexFormatError) as caught:
        index.update(pd.DataFrame({"key": [20], "x": [5.1]})).added.compute(
            scheduler="sync"
        )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def used(path, new):
    """Read all rows and pairs, and look up ids in all files of keys."""
    index = dask_simjoin.open_index(path)
    index.rows().compute(scheduler="sync")
    pairs(index)
    for key in (9, 10, 1):
        index.update(new.assign(key=[key]), if_exists="replace")


@pytest.mark.parametrize("folder", ["rows", "boxes", "keys"])
def test_a_file_of_the_same_kind(path, folder):
    one, other = sorted((path / folder).iterdir())[:2]
    shutil.copy(one, other)
    with pytest.raises(IndexFormatError, match=f"{other.name}' is damaged"):
        used(path, NEW)


def test_a_file_that_is_missing_is_damage_as_long_as_a_version_needs_it(path):
    pinned = dask_simjoin.open_index(path, version=2)
    gone = [
        one
        for one in (path / "rows").iterdir()
        if struct.pack("<d", 0.7) in one.read_bytes()
    ]
    gone[0].unlink()
    with pytest.raises(
        IndexFormatError,
        match=r"is missing, and version 3 of the index needs it\. `dask",
    ):
        dask_simjoin.open_index(path).rows().compute(scheduler="sync")
    assert pairs(pinned) == {(0, 1), (2, 3), (2, 9), (3, 9)}


def test_a_last_manifest_that_is_damaged_is_never_passed_over(path):
    file, opened = last(path), dask_simjoin.open_index(path)
    file.write_text(file.read_text()[:-30])
    remedy = r"3\.json' is damaged: .* continue from version 2, .*open_index\(path, version=2\)\.restore"
    for ask in (
        lambda: dask_simjoin.open_index(path),
        lambda: opened.update(NEW),
        lambda: opened.delete([1]),
        lambda: opened.vacuum(1),
        lambda: opened.optimize("all"),
        lambda: opened.restore(1),
        lambda: opened.rows(),
        lambda: opened.history(),
        lambda: len(opened),
    ):
        with pytest.raises(IndexFormatError, match=remedy):
            ask()
    assert len(list((path / "_versions").iterdir())) == 3


def test_a_version_after_a_damaged_one(path):
    """It is made of the newest whole one, and of no other."""
    last(path).write_bytes(b"")
    with pytest.raises(
        OptionError, match="was opened at version 1, which never changes"
    ):
        dask_simjoin.open_index(path, version=1).restore(1)
    with pytest.raises(
        OptionError, match="was opened at version 2, which never changes"
    ):
        dask_simjoin.open_index(path, version=2).update(NEW)
    old = dask_simjoin.open_index(path, version=2)
    changes = old.restore(2)
    assert (changes.since, changes.version) == (2, 4)
    assert not len(changes.added.compute()) and not len(changes.removed.compute())
    index = dask_simjoin.open_index(path)
    assert index.version == 4 and index.history().index.tolist() == [1, 2, 4]
    assert pairs(index) == pairs(old) == {(0, 1), (2, 3), (2, 9), (3, 9)}
    with pytest.raises(
        OptionError, match="was opened at version 2, which never changes"
    ):
        old.restore(2)
    assert as_set(index.update(NEW).added.compute()) == {(2, 20), (3, 20), (9, 20)}
    with pytest.raises(
        VersionGoneError, match="Version 3 is not an ancestor of version 2 of the index"
    ):
        index.changes(3)
    assert [one.file for one in index.check().damage] == [f"_versions/{3:020}.json"]
    index.vacuum(keep=1)
    assert index.check().damaged == 0 and index.version == 5
    assert as_set(index.update(NEW.assign(key=[21])).added.compute()) == {
        (2, 21),
        (3, 21),
        (9, 21),
        (20, 21),
    }


def test_an_older_version_may_be_restored_then(path):
    last(path).write_bytes(b"")
    changes = dask_simjoin.open_index(path, version=2).restore(1)
    assert (changes.since, changes.version) == (2, 4)
    assert pairs(dask_simjoin.open_index(path)) == {(0, 1), (2, 3)}


def test_all_that_is_left_is_damaged(path):
    for file in (path / "_versions").iterdir():
        file.write_text("{}")
    with pytest.raises(
        IndexFormatError, match=r"3\.json' is damaged.*No older version is intact"
    ):
        dask_simjoin.open_index(path)


def test_a_damaged_version_in_between_goes_with_a_vacuum(path):
    (path / "_versions" / f"{2:020}.json").write_text("[")
    index = dask_simjoin.open_index(path)
    assert pairs(index) == {(1, 10), (2, 3), (2, 9), (3, 9)}
    for ask in (index.history, lambda: index.changes(1), lambda: index.vacuum(2)):
        with pytest.raises(
            IndexFormatError,
            match=r"2\.json' is damaged: it is not the JSON of a manifest",
        ):
            ask()
    index.vacuum(1)
    assert index.history().index.tolist() == [3]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: {},
        lambda body: [],
        lambda body: body | {"parent": 3},
        lambda body: body | {"version": 7},
        lambda body: body | {"rows": "many"},
        lambda body: (
            body
            | {"files": [body["files"][0] | {"name": "../../secret/rows/" + "0" * 32}]}
        ),
        lambda body: body | {"files": [body["files"][0] | {"boxes": "/etc/passwd"}]},
        lambda body: body | {"keys": [{"name": 5}]},
        lambda body: body | {"earlier": ["x"]},
        lambda body: body | {"options": body["options"] | {"example": "../x.parquet"}},
        lambda body: body | {"options": body["options"] | {"eps": "far"}},
        lambda body: body | {"batches": {"b": None}},
        lambda body: body | {"pairs": 3},
    ],
)
def test_manifests_that_are_none_though_their_checksum_is_right(path, change):
    file = last(path)
    file.write_text(forged(change(json.loads(file.read_bytes())["manifest"])))
    with pytest.raises(IndexFormatError, match=r"3\.json' is damaged: it is"):
        dask_simjoin.open_index(path)


@pytest.mark.parametrize(
    "content",
    ["[[" * 40_000, '{"manifest": 1, "checksum": 2, "format": 1}', "null", "\ud7ff"],
)
def test_manifests_that_are_none(path, content):
    last(path).write_text(content)
    with pytest.raises(IndexFormatError, match=r"3\.json' is damaged"):
        dask_simjoin.open_index(path)


def test_a_newer_format_is_no_damage(path):
    file = last(path)
    file.write_text(file.read_text().replace('"format": 1', '"format": 2'))
    for ask in (
        dask_simjoin.open_index,
        lambda path: dask_simjoin.open_index(path, version=2).restore(2),
    ):
        with pytest.raises(
            IndexFormatError,
            match=r"is of format 2, and this version .* install a newer version",
        ):
            ask(path)


def test_strange_files_are_left_alone(path):
    for name in ("²", "9" * 30, "4", "notes"):
        (path / "_versions" / f"{name}.json").write_text("{}")
    (path / "rows" / "old").mkdir()
    index = dask_simjoin.open_index(path)
    assert index.version == 3 and index.check().damaged == 0
    index.vacuum(1)
    assert (path / "rows" / "old").is_dir() and (path / "_versions" / "4.json").exists()
    with pytest.raises(VersionGoneError):
        dask_simjoin.open_index(path, version=4)


def test_copies_may_lack_empty_folders(path):
    index = dask_simjoin.open_index(path)
    index.optimize("all")
    index.vacuum(1)
    assert not list((path / "deleted").iterdir())
    (path / "deleted").rmdir()
    index.vacuum(1)
    index.update(NEW)
    index.delete([20])
    assert pairs(index) == {(1, 10), (2, 3), (2, 9), (3, 9)}


def test_a_manifest_that_a_vacuum_removes_as_versions_are_listed(path, monkeypatch):
    plain, listings = manifests.versions, [[1, 2, 3, 8], [1, 2, 3, 9]]
    monkeypatch.setattr(
        manifests, "versions", lambda root: listings.pop(0) if listings else plain(root)
    )
    assert dask_simjoin.open_index(path).version == 3


def test_a_check_reads_all_files_of_all_versions(path):
    index = dask_simjoin.open_index(path)
    whole = index.check()
    every = [one for one in path.rglob("*") if one.is_file()]
    assert (
        whole.versions,
        whole.files,
        whole.damaged,
        whole.files_without_checksums,
    ) == (
        3,
        len(every),
        0,
        0,
    )
    assert whole.bytes_read == sum(one.stat().st_size for one in every)
    for file in every:
        data = file.read_bytes()
        file.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
        found = dask_simjoin.open_index(path, version=2 if file == last(path) else 3)
        assert [one.file for one in found.check().damage] == [
            str(file.relative_to(path))
        ]
        file.write_bytes(data)
    frame = whole.frame
    assert frame.columns.tolist() == ["file", "damage", "versions"] and frame.empty


def test_components_that_are_damaged_are_told_anew(path):
    index = dask_simjoin.open_index(path)
    before = index.components().compute()
    (file,) = (path / "components").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    lazy = index.components()
    pd.testing.assert_frame_equal(lazy.compute(), before)
    assert index.check().damaged == 0
    (file,) = (path / "components").iterdir()
    file.write_bytes(b"")
    with pytest.raises(IndexFormatError, match=file.name):
        lazy.compute()


def test_an_old_index_has_no_checksums_until_it_is_written_anew(tmp_path):
    """It is read as it is; what is written has checksums, and all of it after
    `optimize` and `vacuum`.
    """
    shutil.copytree(OLD, tmp_path / "old")
    index = dask_simjoin.open_index(tmp_path / "old")
    first = {(3, 4), (1, 5), (3, 6), (4, 6)}
    told = index.check()
    assert (told.damaged, told.files, told.files_without_checksums) == (0, 14, 12)
    assert (
        {pair[:2] for pair in pairs(index)}
        == {pair[:2] for pair in pairs(index_at(index, 2))}
        == first
    )
    assert index.components().compute()["component"].tolist() == [1, 3, 3, 1, 3]
    assert index.update(NEW.assign(name="z"), batch="first").report.known
    more = index.update(pd.DataFrame({"key": [7], "x": [9.0], "name": ["g"]}))
    assert more.report.inserted == 1
    assert index.check().files_without_checksums == 12
    index.components()
    index.update(pd.DataFrame({"key": [8], "x": [9.5], "name": ["h"]}))
    index.components()
    index.optimize("all")
    index.vacuum(1)
    told = index.check()
    assert (told.damaged, told.files_without_checksums) == (0, 0)
    assert {pair[:2] for pair in pairs(index)} == first | {(7, 8)}


def index_at(index, version):
    return dask_simjoin.open_index(index.path, version=version)


@pytest.mark.parametrize("folder", ["rows", "boxes", "deleted", "keys", "pairs"])
def test_damage_of_an_old_index_is_named_where_it_is_seen(tmp_path, folder):
    shutil.copytree(OLD, tmp_path / "old")
    broken = list((tmp_path / "old" / folder).iterdir())
    for file in broken:
        file.write_bytes(b"PAR1" + bytes(50))
    forget()
    with pytest.raises(IndexFormatError, match=folder):
        used(tmp_path / "old", NEW.assign(name="z"))
    found = dask_simjoin.open_index(tmp_path / "old").check()
    assert {one.file for one in found.damage} == {
        f"{folder}/{file.name}" for file in broken
    }


def test_an_index_of_no_rows_says_whence_its_types_are(tmp_path):
    none = pd.DataFrame(
        {"key": np.zeros(0, int), "x": np.zeros(0), "name": np.array([])}
    )
    index = none.simjoin.index(1.0, tmp_path / "index", on="x", id="key", keep="name")
    with pytest.raises(
        ColumnError,
        match=r"index has double, as it was made from an empty .*Make a new index",
    ):
        index.update(pd.DataFrame({"key": [1], "x": [0.5], "name": ["a"]}))
    assert (
        index.update(
            pd.DataFrame({"key": [1], "x": [0.5], "name": [0.5]})
        ).report.inserted
        == 1
    )


def test_damage_of_removed_versions_does_no_harm(path):
    """All tombstones are one file on a disk."""
    index = dask_simjoin.open_index(path)
    index.vacuum(keep=2)
    (path / "_versions" / ".removed").write_text("?")
    assert (path / "_versions" / f"{1:020}.json").read_text() == "?"
    assert index.history().index.tolist() == [2, 3] and index.check().damaged == 0
    with pytest.raises(VersionGoneError, match="versions 2 to 3 remain"):
        dask_simjoin.open_index(path, version=1)
    assert index.update(NEW).version == 4 and index.vacuum(keep=1) > 0
    assert index.history().index.tolist() == [4]


def test_a_manifest_that_a_tombstone_has_replaced(path):
    index = dask_simjoin.open_index(path)
    index.vacuum(keep=2)
    shutil.copy(path / "_versions" / f"{1:020}.json", last(path))
    with pytest.raises(IndexFormatError, match="it is listed, but missing"):
        dask_simjoin.open_index(path)
    found = dask_simjoin.open_index(path, version=2).check()
    assert [(one.file, one.damage) for one in found.damage] == [
        (f"_versions/{3:020}.json", "a removed version has replaced it")
    ]
    assert found.versions == 2


@pytest.mark.parametrize("store", every_nth(4, [False, True]))
def test_random_damage_is_refused_or_does_no_harm(store):
    """`python -m tests.checks.index_damage` tries more."""
    if store:
        pytest.importorskip("obstore")
    told, faults = damages(10 if everything() else 2, 40, store=store)
    assert not faults
    assert {word for _, word in told} >= {"right", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("store", [False, True])
def test_much_random_damage(store):
    assert not damages(200, 10_000, store=store)[1]
