"""A request to an S3 server that fails, or a process killed before it, leaves one
version or the next.
"""

import subprocess
import sys
from pathlib import Path

import dask
import pytest

import dask_simjoin
from dask_simjoin.errors import IndexFormatError
from tests.disk_index import killed, killed_store
from tests.disk_index.test_crash import AFTER, BEFORE, FIRST, pairs, unordered
from tests.support import s3
from tests.support.profiles import everything

pytest.importorskip("obstore")
pytest.importorskip("moto")

ROOT = Path(__file__).parents[2]

STATES = {
    "make": (None, FIRST, 1),
    "update": (BEFORE, AFTER, 4),
    "restore": (BEFORE, FIRST, 4),
    "optimize": (BEFORE, BEFORE, 4),
    "vacuum": (BEFORE, BEFORE, 4),
}
"""The rows before and after an action, and the version that it makes."""


def folders(server, name, mode, step):
    """Where an action failed, by the number of requests before that; the last one did
    not fail.
    """
    url = s3.new_url()
    script, address = "tests.disk_index.killed_store", server["endpoint_url"]
    command = [sys.executable, "-m", script, address, url, name, mode, str(step)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    last = int(ran.stdout)
    assert last > 10
    return [
        {"path": f"{url}/{at}", "storage_options": server}
        for at in range(0, last + 1, step)
    ]


def contents(how):
    """The kind and the size of each object, and where it is."""
    from dask_simjoin.disk_index.stores import object_path

    root = object_path(how["path"], how["storage_options"])
    some = (one for folder in root.iterdir() for one in folder.iterdir())
    return tuple(
        sorted((one.parent.name, one.suffix, one.stat().st_size) for one in some)
    )


def verified(name, how):
    """Look at what a process left, and do the same again; tells the version that there
    was.
    """
    before, after, number = STATES[name]
    try:
        index = dask_simjoin.open_index(**how)
    except IndexFormatError:
        assert name == "make"
        killed_store.make(how)
        index, seen = dask_simjoin.open_index(**how), 0
    else:
        seen = index.version
        assert pairs(index) == unordered(after if seen == number else before)
    if name == "update":
        changes = index.update(
            killed.NEW, delete=killed.GONE, if_exists="replace", batch="new"
        )
        assert changes.report.known == (seen == number)
        assert (changes.since, changes.version) == (number - 1, number)
    elif name != "make":
        killed_store.ACTIONS[name](how)
    index = dask_simjoin.open_index(**how)
    assert pairs(index) == unordered(after)
    assert index.check().damaged == 0
    index.delete([4])
    assert len(index) == len(after.rows) - 1
    return seen


def every(server, name, mode, step):
    """The versions that there were, for each place to fail at; what was left alike is
    looked at once.
    """
    seen, numbers = {}, []
    with dask.config.set(scheduler="sync"):
        for how in folders(server, name, mode, step):
            left = contents(how)
            if left not in seen:
                seen[left] = verified(name, how)
            numbers.append(seen[left])
    assert numbers == sorted(numbers)
    return set(numbers)


@pytest.mark.slow
@pytest.mark.processes
def test_an_update_that_is_killed_is_done_or_not(server):
    assert every(server, "update", "kill", 37 if everything() else 111) == {3, 4}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("mode", killed_store.MODES)
@pytest.mark.parametrize("name", STATES)
def test_what_fails_is_done_or_not(server, name, mode, monkeypatch):
    """At any request."""
    from dask_simjoin.disk_index import versions

    monkeypatch.setattr(versions, "A_DAY", versions.A_DAY)  # which the action sets
    number = STATES[name][2]
    assert every(server, name, mode, 1) == {number - 1, number}
