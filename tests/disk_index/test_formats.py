"""An older format of the index is read and upgraded by the next version; a newer format
is refused.
"""

import json

import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import manifests
from dask_simjoin.errors import IndexFormatError
from tests.support.oracle import as_set

HOW = {"on": "x", "id": "key"}


def points(*keys):
    """Rows with a key and the same coordinate."""
    return pd.DataFrame({"key": list(keys), "x": [float(key) for key in keys]})


def format_of(path, version):
    """The format of a version's manifest."""
    return json.loads(manifests.manifest_path(path, version).read_text())["format"]


@pytest.fixture
def two(tmp_path, monkeypatch):
    """An index of format 1, and a package whose format 2 calls `eps` `radius` in the
    manifest.
    """
    points(1, 2, 5).simjoin.index(1.0, tmp_path, **HOW)
    read, write = manifests.from_json, manifests.to_json

    def upgrade(body):
        options = dict(body["options"])
        return body | {"options": options | {"radius": options.pop("eps")}}

    def from_json(body):
        options = dict(body["options"])
        return read(body | {"options": options | {"eps": options.pop("radius")}})

    monkeypatch.setattr(manifests, "FORMAT", 2)
    monkeypatch.setattr(manifests, "UPGRADES", {1: upgrade})
    monkeypatch.setattr(manifests, "from_json", from_json)
    monkeypatch.setattr(manifests, "to_json", lambda manifest: upgrade(write(manifest)))
    return tmp_path


def test_an_older_index_is_read_and_its_next_version_is_of_the_new_format(two):
    index = dask_simjoin.open_index(two)
    assert as_set(index.pairs().compute()) == {(1, 2)}
    assert as_set(index.update(points(4)).added.compute()) == {(5, 4)}
    assert [format_of(two, version) for version in (1, 2)] == [1, 2]
    assert as_set(dask_simjoin.open_index(two).pairs().compute()) == {(1, 2), (5, 4)}
    assert as_set(dask_simjoin.open_index(two, version=1).pairs().compute()) == {(1, 2)}
    assert index.check().damaged == 0


def test_a_newer_format_is_refused(two, monkeypatch):
    dask_simjoin.open_index(two).update(points(4))
    monkeypatch.undo()
    with pytest.raises(
        IndexFormatError,
        match=r"format 2, and this version of dask_simjoin reads 1; install a newer",
    ):
        dask_simjoin.open_index(two)


def test_a_format_that_is_no_longer_read_is_refused_with_those_that_are(
    two, monkeypatch
):
    monkeypatch.setattr(manifests, "FORMAT", 4)
    monkeypatch.setattr(manifests, "UPGRADES", {2: dict, 3: dict})
    with pytest.raises(
        IndexFormatError,
        match="format 1, and this version of dask_simjoin reads 2 to 4",
    ):
        dask_simjoin.open_index(two)


def test_every_older_format_has_its_upgrade():
    assert sorted(manifests.UPGRADES) == list(
        range(min(manifests.UPGRADES, default=1), manifests.FORMAT)
    )
