"""Files of an index: links, names and odd paths."""

import os

import pytest

import dask_simjoin
from dask_simjoin import errors
from tests.disk_index.test_requests import FRAME, NEW


@pytest.fixture
def made(tmp_path):
    return FRAME.simjoin.index(1.0, tmp_path / "index", on="x", id="key", keep="name")


def test_a_file_system_without_links(tmp_path, monkeypatch):
    def link(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(
        errors.OptionError, match=r"without hard links \(Operation not permitted\), by which of two"
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
