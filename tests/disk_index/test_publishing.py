"""A writer that is overtaken by others and by a vacuum loses no row, and no version is
made twice.
"""

import contextlib
import threading
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dask_simjoin
from dask_simjoin.disk_index import index as module
from dask_simjoin.disk_index import publishing
from dask_simjoin.disk_index.files import write_table
from dask_simjoin.disk_index.types import BatchContent, Content
from dask_simjoin.errors import IndexConflictError, VersionGoneError
from tests.support.gates import PATIENCE
from tests.support.oracle import as_set
from tests.support.threads import started

CONTENT = BatchContent(Content(3, 2**64 - 1), Content())


def row(key, x):
    return pd.DataFrame({"key": [key], "x": [x]})


def slow(frame, act):
    """A lazy frame, before whose rows are given somebody else does something, once."""
    left = [act]

    def rows(_):
        if left:
            left.pop()()
        return frame

    return dd.from_map(rows, [0], meta=frame.iloc[:0])


@pytest.fixture
def made(tmp_path):
    with dask.config.set(scheduler="sync"):
        yield row(1, 0.0).simjoin.index(
            1.0, tmp_path / "index", on="x", id="key", recluster="never"
        )


def others(path, number, keep):
    """Make versions, and remove old ones, as another process would."""

    def act():
        other = dask_simjoin.open_index(path)
        for k in range(number):
            other.update(row(100 + k, 100.0 + 3 * k), batch=f"other {k}")
        other.vacuum(keep=keep)

    return act


@pytest.mark.parametrize(("number", "keep"), [(1, 1), (2, 1), (11, 10)])
def test_a_number_that_was_removed_is_not_given_again(number, keep, made):
    changes = made.update(slow(row(4, 0.7), others(made.path, number, keep)), batch="a")
    assert (changes.report.inserted, changes.version) == (1, number + 2)
    now = dask_simjoin.open_index(made.path)
    assert now.version == number + 2
    assert sorted(now.rows().compute()["key"]) == [1, 4, *range(100, 100 + number)]
    assert now.history().index.is_monotonic_increasing and np.all(
        np.diff(now.history().index) == 1
    )
    assert as_set(changes.added.compute()) == {(1, 4)}
    assert as_set(now.changes(number + 1).compute()) == {(1, 4)}
    assert now.update(row(4, 0.7), batch="a").report.known


def test_files_that_a_vacuum_removes_beside_an_update_are_looked_for_anew(made):
    """What an update read of the version before is gone: it takes the last version
    instead.
    """
    made.update(row(2, 9.0))

    def act():
        other = dask_simjoin.open_index(made.path)
        other.optimize("all")
        other.vacuum(keep=1)

    changes = made.update(slow(row(4, 0.7), act), delete=[2])
    assert (changes.since, changes.version) == (3, 4)
    assert sorted(made.rows().compute()["key"]) == [1, 4]


def test_a_version_that_nobody_has_is_refused_and_not_looked_for_again(made):
    made.update(row(2, 9.0))
    made.vacuum(keep=1)
    with pytest.raises(VersionGoneError, match="Version 1 of the index"):
        made.restore(1)


def test_changes_are_those_of_the_update_though_others_come_after_it(made, monkeypatch):
    """Another writer makes a version between the commit of this one and its answer."""
    plain = module.attempted

    def attempted(*args):
        monkeypatch.setattr(module, "attempted", plain)
        done = plain(*args)
        dask_simjoin.open_index(made.path).update(row(5, 0.2))
        return done

    monkeypatch.setattr(module, "attempted", attempted)
    changes = made.update(row(4, 0.7))
    assert (changes.since, changes.version, made.version) == (1, 2, 3)
    assert as_set(changes.added.compute()) == {(1, 4)}
    assert as_set(made.changes(2).compute()) == {(1, 5), (4, 5)}


def test_writers_beside_vacuums_lose_nothing(made):
    """Two writers, and two vacuums that keep one version only."""
    stopped = threading.Event()

    def write(number):
        index = dask_simjoin.open_index(made.path)
        for k in range(4):
            for _ in range(50):
                with contextlib.suppress(IndexConflictError):
                    index.update(
                        row(100 + 10 * number + k, float(k)), batch=f"{number} {k}"
                    )
                    break

    def vacuum():
        while not stopped.is_set():
            dask_simjoin.open_index(made.path).vacuum(keep=1)

    vacuums = [started(vacuum) for _ in range(2)]
    try:
        for done in [started(write, number) for number in range(2)]:
            done.result(PATIENCE)
    finally:
        stopped.set()
    for done in vacuums:
        done.result(PATIENCE)
    assert sorted(made.rows().compute()["key"]) == [
        1,
        *range(100, 104),
        *range(110, 114),
    ]
    assert made.version == 9


def test_an_update_of_half_a_day_is_refused(made, monkeypatch):
    """A vacuum may take its files for those of nobody; a first load has no vacuum
    beside it.
    """
    monkeypatch.setattr(publishing, "HALF_A_DAY", -1)
    before = files(made.path)
    with pytest.raises(
        IndexConflictError, match=r"took longer than half a day.* fewer rows at a time"
    ):
        made.update(row(4, 0.7))
    assert files(made.path) == before
    row(1, 0.0).simjoin.index(1.0, made.path.with_name("other"), on="x", id="key")


def files(path):
    return {str(one.relative_to(path)) for one in path.glob("**/*")}


def test_names_of_updates_move_to_a_file_once_they_are_many(made):
    own = publishing.Transaction(made.path)
    own.lease.touch()
    for number, moved in (
        (publishing.MAX_BATCHES - 1, False),
        (publishing.MAX_BATCHES, True),
    ):
        parent = SimpleNamespace(
            batches={f"batch {k}": k for k in range(number)},
            earlier=(),
            contents={"batch 7": str(CONTENT)},
        )
        found = publishing.with_batch(own, parent, "new", 10**6, CONTENT)
        assert found.last["new"] == 10**6 and len(found.last) == (
            1 if moved else number + 1
        )
        assert len(found.earlier) == moved and (found.size > 0) == moved
        now = SimpleNamespace(
            batches=found.last, earlier=found.earlier, contents=found.contents
        )
        for name, known in (
            ("batch 7", (7, CONTENT)),
            ("batch 8", (8, None)),
            ("new", (10**6, CONTENT)),
            ("another", None),
            (None, None),
        ):
            assert publishing.made_by(made.path, now, name) == known


def test_batches_of_earlier_releases_have_no_content(made):
    own = publishing.Transaction(made.path)
    own.lease.touch()
    table = pa.table({"batch": ["night"], "version": [3]})
    name, _ = own.write("_versions", lambda file: write_table(table, file))
    now = SimpleNamespace(batches={"day": 4}, earlier=(name,), contents={})
    assert [publishing.made_by(made.path, now, name) for name in ("night", "day")] == [
        (3, None),
        (4, None),
    ]


def test_files_of_a_writer_that_another_one_overtakes_are_not_kept(made, monkeypatch):
    """The other writer links its manifest after the versions were listed."""
    path = publishing.manifest_path(made.path, 1)
    before, own = path.read_bytes(), publishing.Transaction(made.path)
    monkeypatch.setattr(publishing, "_largest", lambda root: 0)
    assert publishing._linked(own, 0, b"another manifest", path) is False
    assert not own.kept and path.read_bytes() == before
