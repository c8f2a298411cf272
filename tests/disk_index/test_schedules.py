"""Writers, vacuums and readers of an index, in orders of their file operations: see the program."""

import pytest

from dask_simjoin.disk_index import vacuum
from tests.checks.index_schedules import LISTINGS, explore


@pytest.mark.parametrize("listing", LISTINGS)
def test_no_order_loses_a_version_or_a_file(listing):
    """Some of the orders in which one is stopped once while the others work."""
    found = explore(1, listing, commits=(1, 1), readers=1, step=48)
    assert found["2 made"] > 8


def test_a_vacuum_that_leaves_temporaries_is_found_out(monkeypatch):
    """Their writer makes a number that was made and removed."""
    monkeypatch.setattr(vacuum, "sweep", lambda root: 0)
    with pytest.raises(AssertionError, match=r"\(3, 2, 4\)"):
        explore(1, "least")
