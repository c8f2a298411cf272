"""Versions of an index: which rows each has, and ids that come again."""

import pytest

import dask_simjoin
from dask_simjoin.disk_index.manifests import versions
from dask_simjoin.errors import OptionError, VersionGoneError
from tests.support.oracle import as_set
from tests.support.stored import rows_on_a_line


def files(path):
    """All files of an index, by their folder."""
    return {
        folder.name: {one.name for one in folder.iterdir()} for folder in path.iterdir()
    }


def test_what_is_kept_can_be_asked_for(index):
    """`vacuum` keeps all that the versions it keeps need, and nothing else."""
    before = files(index.path)
    assert index.vacuum(keep=4) > 0
    assert index.history().index.tolist() == [2, 3, 4, 5]
    changes = index.changes(2).compute()
    assert as_set(changes[changes["diff"] > 0]) == set()
    assert {tuple(sorted(pair)) for pair in as_set(changes[changes["diff"] < 0])} == {
        (1, 2),
        (6, 7),
    }
    old = dask_simjoin.open_index(index.path, version=2)
    assert as_set(old.pairs().compute()) == {(k, k + 1) for k in range(1, 7)}
    with pytest.raises(VersionGoneError, match="Version 1 of the index"):
        index.restore(1)
    index.restore(2)
    assert as_set(index.pairs().compute()) == {(k, k + 1) for k in range(1, 7)}
    assert index.vacuum(keep=1) > 0
    assert index.history().index.tolist() == [6]
    assert as_set(index.pairs().compute()) == {(k, k + 1) for k in range(1, 7)}
    assert len(files(index.path)["rows"]) < len(before["rows"])
    assert versions(index.path) == [6]
    # known, though its changes are gone
    again = index.update(rows_on_a_line([6, 7]), delete=[0], batch="a")
    assert again.report.known and again.version == 2
    with pytest.raises(VersionGoneError):
        again.added  # noqa: B018


def test_an_id_may_come_again(index):
    """Once it is deleted it is free; its row is a new one, behind all others."""
    with pytest.raises(OptionError, match="that no row of the index has: 1, 7"):
        index.delete([1, 2, 7])
    changes = index.update(rows_on_a_line([1]))
    assert changes.report.inserted == 1
    assert as_set(changes.added.compute()) == {(2, 1), (0, 1)}
    index.delete([1])
    assert as_set(index.pairs().compute()) == {(k, k + 1) for k in range(2, 6)}
