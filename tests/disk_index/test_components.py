"""Groups of rows keep their names from version to version, and are what brute force
says of each.
"""

import errno
import os
import shutil

import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import components
from dask_simjoin.disk_index.components import FOLDER, grouping_of
from dask_simjoin.disk_index.rows import CACHED_VERSIONS
from dask_simjoin.disk_index.snapshots import last_version
from dask_simjoin.errors import IndexWriteError
from tests.support.frames import lay
from tests.support.growing import Model

pytestmark = pytest.mark.usefixtures("in_this_thread")

EPS = 1.0


def frame(rows):
    """Rows by id as a frame."""
    x = np.array(list(rows.values()), np.float64).reshape(-1, 2)
    return pd.DataFrame({"key": list(rows), "x": x[:, 0], "y": x[:, 1]})


def made(folder, rows):
    return frame(rows).simjoin.index(EPS, folder, on=["x", "y"], id="key", row_group=16)


def groups(model):
    """The row that came first of each row's group, by brute force."""
    order = sorted(model.rows, key=lambda id: model.rows[id][0])
    name = {id: id for id in order}
    near = {}
    for a, b in model.pairs():
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    seen = set()
    for first in order:
        todo = [] if first in seen else [first]
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                name[one] = first
                todo += near.get(one, [])
    return name


def told(index):
    """What the index says."""
    found = index.components().compute()
    assert list(found.columns) == ["id", "component"]
    return dict(zip(found["id"], found["component"], strict=True))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_groups_of_rows_that_come_go_and_move(seed, tmp_path):
    random = np.random.default_rng(seed)

    def some(ids, side=16):
        return {f"r{id}": tuple(random.integers(0, 2 * side, 2) / 2) for id in ids}

    first = some(range(150))
    index, model = made(tmp_path, first), Model(EPS, first)
    assert told(index) == groups(model)
    following = 150
    for day in range(7):
        lot = random.permutation(sorted(model.rows)).tolist()
        gone = lot[: random.integers(0, 6)]
        new = some(range(following, following + random.integers(0, 12)))
        new |= dict.fromkeys(lot[10 : 10 + random.integers(0, 5)], (float(day), 4.0))
        following += 20
        index.update(lay(frame(new), "dask-1"), delete=gone, if_exists="replace")
        model.update(new, gone, "replace")
        if day == 3:
            index.optimize("all")
        if day == 4:
            index.restore(2)
            model.rows = model.versions[2]
        if day != 5:  # of which nothing is told
            assert told(index) == groups(model)
    assert told(dask_simjoin.open_index(tmp_path)) == groups(model)
    assert len(list((tmp_path / FOLDER).iterdir())) == CACHED_VERSIONS


def test_only_groups_that_lost_a_pair_are_looked_through_again(tmp_path):
    chains = {
        f"{chain} {n}": (float(n), 10.0 * chain)
        for chain in range(5)
        for n in range(10)
    }
    index = made(tmp_path, chains)

    def again():
        return grouping_of(last_version(tmp_path, "pandas"))[0].again

    assert again() == 50
    assert set(told(index).values()) == {f"{chain} 0" for chain in range(5)}
    index.update(frame({"new": (10.0, 0.0), "alone": (50.0, 50.0)}))
    assert again() == 0
    assert told(index)["new"] == "0 0"
    assert told(index)["alone"] == "alone"
    index.delete(["2 0", "3 4", "alone"])
    assert again() == 9 + 9
    names = told(index)
    assert {names[f"2 {n}"] for n in range(1, 10)} == {"2 1"}  # whose first row went
    assert [names[f"3 {n}"] for n in (0, 3, 5, 9)] == ["3 0", "3 0", "3 5", "3 5"]
    bridge = {f"bridge {n}": (5.0, float(n)) for n in range(1, 10)}
    index.update(frame(bridge))
    assert {names for id, names in told(index).items() if id[0] in "01b"} == {"0 0"}


def test_an_old_version_has_groups_after_two_newer_ones_were_asked_about(tmp_path):
    index = made(tmp_path, {"a": (0.0, 0.0), "b": (0.5, 0.0), "c": (9.0, 9.0)})
    for name in ("d", "e"):
        index.update(frame({name: (9.5, 9.0)}))
        assert told(index)[name] == "c"
    assert told(dask_simjoin.open_index(tmp_path, version=1)) == {
        "a": "a",
        "b": "a",
        "c": "c",
    }
    assert told(index) == {"a": "a", "b": "a", "c": "c", "d": "c", "e": "c"}
    assert len(list((tmp_path / FOLDER).iterdir())) == CACHED_VERSIONS


def test_a_file_of_groups_that_is_half_written_is_told_anew(tmp_path):
    index = made(tmp_path, {"a": (0.0, 0.0), "b": (0.5, 0.0), "c": (9.0, 9.0)})
    expected = {"a": "a", "b": "a", "c": "c"}
    assert told(index) == expected
    (path,) = (tmp_path / FOLDER).iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert told(index) == expected


def test_no_rows(tmp_path):
    index = made(tmp_path, {"a": (0.0, 0.0)})
    assert told(index) == {"a": "a"}
    index.delete(["a"])
    assert told(index) == {}


@pytest.fixture
def read_only(monkeypatch):
    """Let all writes below a folder fail, as on a read-only file system."""

    def forbid(folder):
        def failing(function):
            def call(path, *args, **options):
                writes = function is not plain["open"] or args[0] & os.O_CREAT
                if writes and str(path).startswith(str(folder)):
                    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
                return function(path, *args, **options)

            return call

        def opened(path, mode="r", *args, **options):
            if str(path).startswith(str(folder)) and set(mode) & set("xwa+"):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return plain_open(path, mode, *args, **options)

        for name, function in plain.items():
            monkeypatch.setattr(os, name, failing(function))
        monkeypatch.setattr("builtins.open", opened)
        monkeypatch.setattr("io.open", opened)

    names = ("open", "mkdir", "unlink", "rename", "link", "utime", "rmdir")
    plain, plain_open = {name: getattr(os, name) for name in names}, open
    return forbid


ROWS = {"a": (0.0, 0.0), "b": (0.5, 0.0), "c": (9.0, 9.0)}


@pytest.mark.parametrize("known", [None, 1, 2])
def test_a_reader_without_rights_gets_components(known, tmp_path, read_only):
    """The stored groups are only a cache; groups of an older version are used."""
    index = made(tmp_path, ROWS)
    if known == 1:
        told(index)
    index.update(frame({"d": (9.5, 9.0)}))
    if known == 2:
        told(index)
    read_only(tmp_path)
    index = dask_simjoin.open_index(tmp_path)
    lazy = index.components()
    assert lazy.dtypes.equals(lazy.compute().dtypes)
    assert told(index) == {"a": "a", "b": "a", "c": "c", "d": "c"}


def test_components_in_memory_have_several_partitions(tmp_path, monkeypatch, read_only):
    monkeypatch.setattr(components, "PARTITION", 2)
    index = made(tmp_path, ROWS)
    expected = index.components()
    shutil.rmtree(tmp_path / FOLDER)
    read_only(tmp_path)
    found = dask_simjoin.open_index(tmp_path).components()
    assert found.npartitions == expected.npartitions == 2
    want = {"id": ["a", "b", "c"], "component": ["a", "a", "c"]}
    assert found.compute().to_dict("list") == want


def test_components_on_a_full_disk(tmp_path, monkeypatch):
    index = made(tmp_path, ROWS)

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert told(index) == {"a": "a", "b": "a", "c": "c"}
    assert not list((tmp_path / FOLDER).iterdir())


def test_all_calls_on_a_read_only_folder(tmp_path, read_only):
    index = made(tmp_path, ROWS)
    index.update(frame({"d": (9.5, 9.0)}))
    new = frame({"e": (0.0, 0.0)})
    read_only(tmp_path)
    index = dask_simjoin.open_index(tmp_path)
    assert (len(index), len(index.rows()), len(index.pairs())) == (4, 4, 2)
    assert len(index.join(new)) == 2 and len(index.changes(1)) == 1
    assert index.history().index.tolist() == [1, 2] and index.plan(new).rows == 1
    assert index.check().damaged == 0 and index.quality().rows == 4
    assert index.persist().memory.rows == 4
    for call in (
        lambda: index.update(new),
        lambda: index.delete(["a"]),
        lambda: index.optimize("all"),
        lambda: index.restore(1),
        lambda: index.vacuum(1),
    ):
        with pytest.raises(
            IndexWriteError, match=r"Read-only .*make its folder writable, and repeat"
        ):
            call()
    assert index.vacuum(10) == 0
