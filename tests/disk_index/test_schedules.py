"""Writers, vacuums and readers of an index, in orders of their file operations: see the
program.
"""

import pytest

from dask_simjoin.disk_index import versions
from dask_simjoin.disk_index.manifests import manifest_path
from tests.checks.index_schedules import LISTINGS, explore
from tests.support import s3
from tests.support.profiles import chosen


@pytest.mark.parametrize("listing", chosen(list(LISTINGS), ["least", "after"]))
def test_no_order_loses_a_version_or_a_file(listing):
    """Some of the orders in which one is stopped once while the others work."""
    found = explore(1, listing, commits=(1, 1), readers=1, step=48)
    assert found["2 made"] > 8


def test_a_vacuum_that_leaves_temporaries_is_found_out(monkeypatch):
    """Their writer makes a number that was made and removed."""
    monkeypatch.setattr(versions, "sweep", lambda root: 0)
    with pytest.raises(AssertionError, match=r"\(3, 2, 4\)"):
        explore(1, "least")


@pytest.fixture
def memory(monkeypatch):
    """A folder on a store in memory, and the program that runs orders of requests to
    it.
    """
    pytest.importorskip("obstore")
    from dask_simjoin.disk_index import stores
    from tests.checks import store_schedules

    monkeypatch.setattr(stores, "_client", stores._client)  # which the program replaces
    monkeypatch.setattr(stores, "_users", [])
    return store_schedules.in_memory(), store_schedules.explore


@pytest.mark.parametrize("listing", chosen(list(LISTINGS), ["least", "after"]))
def test_no_order_of_requests_loses_a_version_or_a_file(listing, memory):
    """Also if a vacuum takes files of a writer for leftovers: it makes a version before
    it removes them.
    """
    place, run = memory
    found = run(place, 1, listing, commits=(1, 1), readers=1, step=40)
    assert found["2 made"] > 3
    found = run(place, 1, listing, commits=(1, 1), step=8, leftovers=True)
    assert any("fences" in name for name in found)


def test_a_vacuum_that_makes_no_version_before_it_removes_files_is_found_out(
    memory, monkeypatch
):
    place, run = memory
    plain = versions.publish

    def publish(own, base, manifest):
        return manifest.kind == "rewrite" or plain(own, base, manifest)

    monkeypatch.setattr(versions, "publish", publish)
    with pytest.raises(AssertionError):
        run(place, 1, "after", commits=(1, 1), leftovers=True)


def test_a_vacuum_that_frees_names_is_found_out(memory, monkeypatch):
    place, run = memory

    def bury(root, number):
        return manifest_path(root, number).unlink() or 0

    monkeypatch.setattr(versions, "bury", bury)
    with pytest.raises(AssertionError):
        run(place, 1, "after")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("leftovers", [False, True])
def test_no_order_of_requests_to_a_server_loses_a_version_or_a_file(leftovers):
    pytest.importorskip("moto")
    from dask_simjoin.disk_index.stores import object_path
    from tests.checks.store_schedules import explore as run

    with s3.server() as options:
        place = object_path(s3.new_url(), options)
        assert (
            run(
                place,
                1,
                "least",
                commits=(1, 1),
                readers=1,
                step=20,
                leftovers=leftovers,
            )["2 made"]
            > 3
        )
