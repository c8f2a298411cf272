"""Manifests whose checksums are right, and whose values are impossible, are refused by
the file's name.
"""

import json
import shutil

import dask
import pytest

import dask_simjoin
from dask_simjoin.disk_index.manifests import manifest_path
from dask_simjoin.errors import IndexFormatError
from tests.checks.index_damage import forget
from tests.support.stored import forged, rows_on_a_line

pytestmark = pytest.mark.usefixtures("in_this_thread")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """An index of two versions."""
    how = {"on": "x", "id": "key", "keep": "x", "store_pairs": True}
    folder = tmp_path_factory.mktemp("template")
    with dask.config.set(scheduler="sync"):
        made = rows_on_a_line(range(6)).simjoin.index(1.0, folder, **how)
        made.update(rows_on_a_line([6]), delete=[0], batch="b")
    return folder


@pytest.fixture
def path(template, tmp_path):
    """A copy of the template."""
    forget()
    return shutil.copytree(template, tmp_path / "index")


def body_of(path, version=2):
    return json.loads(manifest_path(path, version).read_bytes())["manifest"]


def first(field, **changes):
    """Change the first entry of a list."""

    def change(body):
        body[field] = [body[field][0] | changes, *body[field][1:]]

    return change


def twice(field):
    return lambda body: body.update({field: body[field] + body[field][:1]})


def option(**changes):
    return lambda body: body["options"].update(changes)


FORGED = {
    "'parent' is 2": lambda body: body.update(parent=2),
    "'parent' is 9": lambda body: body.update(parent=9),
    "'parent' is 0": lambda body: body.update(parent=0),
    "'kind' is 'odd'": lambda body: body.update(kind="odd"),
    "isoformat": lambda body: body.update(time="yesterday"),
    "number of rows is -5": lambda body: body.update(rows=-5),
    "number of rows is 5, not from 6 to 7": lambda body: body.update(rows=5),
    f"number of rows is {2**62}, not from 6": lambda body: body.update(rows=2**62),
    "'next_seq' is out of range": lambda body: body.update(next_seq=10**30),
    "'next_seq' is 3, not from 6": lambda body: body.update(next_seq=3),
    "'next_seq' is -1": lambda body: body.update(next_seq=-1),
    "file of rows twice": twice("files"),
    "file of deletions twice": twice("deleted"),
    "file of keys twice": twice("keys"),
    "file of pairs twice": lambda body: body["pairs"].update(
        files=body["pairs"]["files"] * 2
    ),
    "file of earlier batches twice": lambda body: body.update(
        earlier=["0" * 32 + ".parquet"] * 2
    ),
    "parquet is -1, not from 0": first("files", rows=-1),
    rf"parquet is {2**50}, not": first("keys", rows=2**50),
    r"version of .*parquet is 3, not from 1 to 2": first("deleted", version=3),
    r"smallest key of .* is 9, not from 0 to 5": first("keys", low=9, high=5),
    r"largest key of ": first("keys", high=2**64),
    "version of batch 'b' is 7": lambda body: body.update(batches={"b": 7}),
    "'contents'": lambda body: body.update(contents={"b": "1:2"}),
    "counter 'excess' is -1": lambda body: body.update(counters={"excess": -1}),
    "counter 'excess' is nan": lambda body: body.update(
        counters={"excess": float("nan")}
    ),
    "metric='hello' is not allowed": option(metric="hello"),
    "p=0 is not allowed": option(metric="minkowski", p=0),
    r"eps=-1\.0 is not allowed": option(eps=-1.0),
    "eps=inf is not allowed": option(eps=float("inf")),
    "eps=nan is not allowed": option(eps=float("nan")),
    r"columns 'on' are \[\]": option(on=[]),
    r"columns 'on' are \['x', 'x'\]": option(on=["x", "x"]),
    "'dims' is 3 for 1 columns": option(dims=3),
    "'dims' is 0": option(dims=0),
    "'names'": option(names=["one"]),
    r"'cut' is \[0, 0\]": option(cut=[0, 0]),
    r"'cut' is \[-1\]": option(cut=[-1]),
    "'group' is 0": option(group=0),
    "'group' is out of range": option(group=1 << 200),
    "'recluster' is 'often'": option(recluster="often"),
    r"'recluster' is '0\.5'": option(recluster=0.5),
    r"'unit_size' is 0\.0": option(unit_size=0.0),
    "'rows' has the wrong type": lambda body: body.update(rows=True),
}


@pytest.mark.parametrize("what", FORGED)
def test_impossible_values_are_refused(what, path):
    body = body_of(path)
    FORGED[what](body)
    manifest_path(path, 2).write_text(forged(body))
    text = rf"2\.json' is damaged: it is not a manifest \(.*{what}"
    with pytest.raises(IndexFormatError, match=text):
        dask_simjoin.open_index(path)
    found = dask_simjoin.open_index(path, version=1)
    assert [one.file for one in found.check().damage] == [f"_versions/{2:020}.json"]
    assert found.restore(1).version == 3


@pytest.mark.parametrize("parents", [(2, 2), (3, 2), (2, 3), (3, 3)])
def test_a_history_ends(parents, path):
    """Parents that form a loop are refused."""
    dask_simjoin.open_index(path).update(rows_on_a_line([9]))
    for version, parent in zip((2, 3), parents, strict=True):
        body = body_of(path, version) | {"parent": parent}
        manifest_path(path, version).write_text(forged(body))
    for call in (
        lambda: dask_simjoin.open_index(path).history(),
        lambda: dask_simjoin.open_index(path).changes(1),
    ):
        with pytest.raises(IndexFormatError, match="its 'parent' is"):
            call()


def test_the_largest_number_of_a_file_is_no_version(path):
    body = body_of(path) | {"version": 10**20 - 1}
    file = manifest_path(path, 10**20 - 1)
    file.write_text(forged(body))
    for call in (
        lambda: dask_simjoin.open_index(path),
        lambda: dask_simjoin.open_index(path, version=2).restore(2),
    ):
        with pytest.raises(IndexFormatError, match=r"9999\.json"):
            call()
    file.unlink()
    assert dask_simjoin.open_index(path).update(rows_on_a_line([9])).version == 3
