"""Files of an index: links, names and odd paths."""

import os

import numpy as np
import pyarrow as pa
import pytest

import dask_simjoin
from dask_simjoin import errors
from dask_simjoin.disk_index.files import (
    cut_parts,
    listed,
    read_file,
    write_named,
    write_new,
    write_table,
)
from tests.disk_index.test_updates import FRAME, NEW


@pytest.fixture
def made(tmp_path):
    return FRAME.simjoin.index(1.0, tmp_path / "index", on="x", id="key", keep="name")


def test_a_file_system_without_links(tmp_path, monkeypatch):
    def link(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(
        errors.OptionError,
        match=r"without hard links \(Operation not permitted\)\. The index needs",
    ):
        FRAME.simjoin.index(1.0, tmp_path / "index", on="x", id="key")


def test_odd_paths_and_names(made, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("~/o\u0308ne index", f"file://{tmp_path}/other"):
        assert FRAME.simjoin.index(1.0, path, on="x", id="key").path.parent == tmp_path
        assert len(dask_simjoin.open_index(path)) == 3
    with pytest.raises(errors.OptionError, match="half of a surrogate pair"):
        made.update(NEW, batch="\ud800")
    made.update(NEW, batch="\0 \n/../\u00e9")
    assert made.history()["batch"].tolist()[1:] == ["\0 \n/../\u00e9"]


@pytest.mark.parametrize("most", [1, 5, 9, 10, 100])
def test_parts_follow_each_other_and_are_as_large_as_they_may_be(most):
    rows = np.array([3, 4, 2, 9, 1, 0, 7, 2])
    parts = cut_parts(rows, most)
    assert np.concatenate(parts).tolist() == list(range(len(rows)))
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        assert rows[part].sum() <= most or len(part) == 1
        assert following is None or rows[part].sum() + rows[following[0]] > most
    assert cut_parts(rows[:0], most) == []


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path):
    def fail(file):
        file.write(b"some")
        raise OSError(28, "No space left on device")

    with pytest.raises(errors.IndexWriteError, match="No space left on device"):
        write_new(tmp_path / "new", fail)
    assert listed(tmp_path) == [] == listed(tmp_path / "none")
    assert write_new(tmp_path / "new", lambda file: file.write(b"all")) == 3
    with pytest.raises(errors.IndexWriteError):  # nothing is ever replaced
        write_new(tmp_path / "new", lambda file: file.write(b"other"))
    assert (tmp_path / "new").read_bytes() == b"all"


def test_a_file_is_called_by_its_checksum(tmp_path):
    table = pa.table({"x": [1, 2, 3]})
    names = [
        write_named(tmp_path, lambda file: write_table(table, file), first)[0]
        for first in ("a", "b")
    ]
    assert [path.name for path in listed(tmp_path)] == sorted(names)
    assert names[0].removeprefix("a-") == names[1].removeprefix("b-")
    assert read_file(tmp_path / names[0]).equals(table)
