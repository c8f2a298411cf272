"""Writers, vacuums and readers of an index, in orders of their operations on files, or
of their requests to a store: see the program.
"""

import itertools

import pytest

from dask_simjoin.disk_index import versions
from dask_simjoin.disk_index.manifests import latest, manifest_path
from dask_simjoin.disk_index.publishing import Outcome
from dask_simjoin.errors import IndexWriteError
from tests.checks.index_schedules import KINDS, LISTINGS, a_place, explore
from tests.support.profiles import chosen

LOCAL = KINDS[:2]


@pytest.fixture
def run(request):
    """The function that runs orders, in a place of a kind."""
    if request.param != "disk":
        pytest.importorskip("obstore")
    with a_place(request.param) as place:
        yield lambda *args, **how: explore(place, *args, **how)


@pytest.mark.parametrize(
    ("run", "listing"),
    chosen(
        list(itertools.product(LOCAL, LISTINGS)),
        list(zip(LOCAL, ["least", "after"], strict=True)),
    ),
    indirect=["run"],
)
def test_no_order_loses_a_version_or_a_file(listing, run):
    """Some of the orders in which one is stopped once while the others work."""
    assert run(1, listing, commits=(1, 1), readers=1, step=80)["2 made"] > 3


@pytest.mark.parametrize("run", LOCAL, indirect=True)
def test_files_of_a_running_writer_may_be_taken_for_leftovers(run):
    """The vacuum makes a version before it removes them."""
    found = run(1, "least", commits=(1, 1), step=16, leftovers=True)
    assert any("fences" in name for name in found)


@pytest.mark.parametrize("run", LOCAL, indirect=True)
def test_a_vacuum_without_a_fence_is_found_out(run, monkeypatch):
    plain, chain = versions.publish, versions.chain

    def publish(own, base, manifest):
        if manifest.kind == "rewrite":
            return Outcome.PUBLISHED
        return plain(own, base, manifest)

    monkeypatch.setattr(versions, "publish", publish)
    monkeypatch.setattr(
        versions, "chain", lambda root, _, keep, known: chain(root, latest(root), keep)
    )
    with pytest.raises((AssertionError, IndexWriteError)):
        run(1, "after", commits=(1, 1), leftovers=True)


@pytest.mark.parametrize("run", LOCAL, indirect=True)
def test_a_vacuum_that_frees_names_is_found_out(run, monkeypatch):
    """Their writer makes a number that was made and removed."""

    def bury(root, number):
        return manifest_path(root, number).unlink() or 0

    monkeypatch.setattr(versions, "bury", bury)
    with pytest.raises(AssertionError):
        run(1, "after")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("leftovers", [False, True])
@pytest.mark.parametrize("run", ["s3"], indirect=True)
def test_no_order_of_requests_to_a_server_loses_a_version_or_a_file(leftovers, run):
    pytest.importorskip("moto")
    how = {"commits": (1, 1), "readers": 1, "step": 20, "leftovers": leftovers}
    assert run(1, "least", **how)["2 made"] > 3
