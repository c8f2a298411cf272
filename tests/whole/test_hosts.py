"""Joins on several hosts, which are network namespaces: see `tools.hosts`."""

import dask
import pytest

from tools import hosts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def able():
    if why := hosts.missing():
        pytest.skip(f"no hosts can be made: {why}")


def test_a_join_on_three_hosts_of_which_one_vanishes():
    rows = 200_000
    with dask.config.set(scheduler="threads"):
        wanted, more = (hosts.pairs_of(hosts.points(rows, n)) for n in (6, 7))
    with hosts.hosts(3, workers=1, rate="200mbit", timeout="15s") as made:
        assert hosts.pairs_of(hosts.points(rows, 6)) == wanted
        assert made.sent() > 0
        hosts.vanish(made)  # the scheduler does not know it yet, and sends tasks there
        assert len(made.client.scheduler_info(n_workers=-1)["workers"]) == 3
        assert hosts.pairs_of(hosts.points(rows, 7)) == more
        assert len(made.client.scheduler_info(n_workers=-1)["workers"]) == 2


@pytest.mark.parametrize("fault", ["a slow host", "a full disk"])
def test_joins_with_a_fault_are_right(fault):
    rows = 200_000
    with dask.config.set(scheduler="threads"):
        wanted = {name: job(hosts.points(rows)) for name, job in hosts.JOBS.items()}
    found = hosts.tried(fault, rows, 1, wanted)
    assert all(what.startswith("right") for what in found.values()), found
