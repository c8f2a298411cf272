"""A writer that is overtaken by others and by a vacuum loses no row, and no version is
made twice, on a disk and on a store.
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
from dask_simjoin.disk_index import publishing, versions
from dask_simjoin.disk_index.files import EVERY_FOLDER, listed, write_table
from dask_simjoin.disk_index.folders import folder_of
from dask_simjoin.disk_index.manifests import latest, manifest_path, read_manifest
from dask_simjoin.disk_index.publishing import Outcome
from dask_simjoin.disk_index.types import BatchContent, Content
from dask_simjoin.disk_index.versions import chain, files_of
from dask_simjoin.errors import IndexConflictError, VersionGoneError
from tests.checks.index_schedules import a_place
from tests.support.gates import PATIENCE
from tests.support.oracle import as_set
from tests.support.profiles import every_nth
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


@pytest.fixture(params=["disk", "memory"])
def made(request):
    if request.param == "memory":
        pytest.importorskip("obstore")
    with a_place(request.param) as place, dask.config.set(scheduler="sync"):
        path = str(place / "index")
        yield row(1, 0.0).simjoin.index(1.0, path, on="x", id="key", recluster="never")


def opened(index):
    """The index again, as another process opens it."""
    return dask_simjoin.open_index(str(index.path))


def others(index, number, keep):
    """Make versions, and remove old ones, as another process would."""

    def act():
        other = opened(index)
        for k in range(number):
            other.update(row(100 + k, 100.0 + 3 * k), batch=f"other {k}")
        other.vacuum(keep=keep)

    return act


@pytest.mark.parametrize(("number", "keep"), every_nth(4, [(1, 1), (2, 1), (11, 10)]))
def test_a_number_that_was_removed_is_not_given_again(number, keep, made):
    changes = made.update(slow(row(4, 0.7), others(made, number, keep)), batch="a")
    assert (changes.report.inserted, changes.version) == (1, number + 2)
    now = opened(made)
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
        other = opened(made)
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
        opened(made).update(row(5, 0.2))
        return done

    monkeypatch.setattr(module, "attempted", attempted)
    changes = made.update(row(4, 0.7))
    assert (changes.since, changes.version, made.version) == (1, 2, 3)
    assert as_set(changes.added.compute()) == {(1, 4)}
    assert as_set(made.changes(2).compute()) == {(1, 5), (4, 5)}


def test_a_version_that_is_newer_than_the_one_that_was_read(made, monkeypatch):
    """Another writer makes it before this one chooses its number."""
    plain, left = versions.base_of, [lambda: opened(made).update(row(2, 0.5))]

    def base_of(*args):
        if left:
            left.pop()()
        return plain(*args)

    monkeypatch.setattr(versions, "base_of", base_of)
    assert made.update(row(4, 0.7)).since == 2
    assert sorted(made.rows().compute()["key"]) == [1, 2, 4]


def test_writers_beside_vacuums_lose_nothing(made):
    """Two writers, and two vacuums that keep one version only."""
    stopped = threading.Event()

    def write(number):
        index = opened(made)
        for k in range(4):
            for _ in range(50):
                with contextlib.suppress(IndexConflictError):
                    index.update(
                        row(100 + 10 * number + k, float(k)), batch=f"{number} {k}"
                    )
                    break

    def vacuum():
        while not stopped.is_set():
            opened(made).vacuum(keep=1)

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


def files(index):
    """The folder and the name of each file, but for those of a vacuum."""
    found = {
        (folder, path.name)
        for folder in EVERY_FOLDER
        for path in listed(index.path / folder)
    }
    return {one for one in found if one[1] not in (".oldest", ".removed")}


def before_the_first_creation(monkeypatch, act):
    """Let somebody else act once, before the first manifest is made."""
    plain = publishing._created

    def created(*args):
        monkeypatch.setattr(publishing, "_created", plain)
        act()
        return plain(*args)

    monkeypatch.setattr(publishing, "_created", created)


def test_a_writer_whose_files_count_as_leftovers_begins_again(made, monkeypatch):
    """Even if it was stopped for longer than a day: its files are gone, and so is its
    number.
    """
    other, kinds = opened(made), []

    def clean():
        assert other.vacuum() == 0  # files of a day or less stay
        with monkeypatch.context() as patched:
            patched.setattr(versions, "A_DAY", -1000)
            assert other.vacuum() > 0
        kinds.append(other.history()["kind"].tolist())

    before_the_first_creation(monkeypatch, clean)
    changes = made.update(row(4, 0.7), batch="late")
    assert kinds == [["index", "rewrite"]]
    assert (changes.since, changes.version) == (2, 3)
    assert sorted(made.rows().compute()["key"]) == [1, 4]
    assert made.check().damaged == 0
    needed = files_of(chain(made.path, read_manifest(made.path, 3)))
    manifests = {("_versions", manifest_path(made.path, n).name) for n in (1, 2, 3)}
    assert files(made) == needed | manifests


def test_a_vacuum_leaves_files_that_are_written_after_its_fence(made, monkeypatch):
    """They are those of a writer that has read the fence."""
    other = made.path / "keys" / f"{'0' * 32}.parquet"
    folder_of(other.parent).create(other.name, b"1234")
    monkeypatch.setattr(versions, "A_DAY", -1000)
    plain, writer = versions.publish, publishing.Transaction(made.path)

    def publish(own, base, manifest):
        outcome = plain(own, base, manifest)
        writer.lease.touch()
        writer.write("rows", lambda file: file.write(b"new"))
        return outcome

    monkeypatch.setattr(versions, "publish", publish)
    assert made.vacuum() == 4 and made.version == 2
    writer.write("rows", lambda file: file.write(b"newer"))
    names = [path.name for path in listed(made.path / "rows")]
    assert sum(name.startswith(writer.token) for name in names) == 2


def test_versions_are_removed_in_ascending_order(made, monkeypatch):
    """Else a listing could end with an old version."""
    for k in range(2, 8):
        made.update(row(k, 9.0 * k))
    plain, seen = versions.bury, []
    monkeypatch.setattr(
        versions, "bury", lambda root, n: (seen.append(n), plain(root, n))[1]
    )
    made.vacuum(keep=2)
    assert seen == [1, 2, 3, 4, 5]


def test_a_vacuum_that_is_always_slower_leaves_leftovers(made, monkeypatch):
    """Other writers take each number of its fence."""
    stray, plain = made.path / "rows" / f"{'0' * 32}.parquet", versions.publish
    folder_of(stray.parent).create(stray.name, b"1234")
    monkeypatch.setattr(versions, "A_DAY", -1000)
    done = []

    def publish(own, base, manifest):
        if manifest.kind == "rewrite" and len(done) < versions.ATTEMPTS:
            done.append(base)
            made.update(row(10 + base, 0.0))
        return plain(own, base, manifest)

    monkeypatch.setattr(versions, "publish", publish)
    assert opened(made).vacuum() == 0
    assert done == [1, 2, 3] and stray.exists() and made.version == 4
    assert opened(made).vacuum() == 4
    assert not stray.exists() and made.version == 5


def test_an_update_that_a_vacuum_ends_leaves_nothing(made, monkeypatch):
    """Its lease counts as a leftover, so its tasks stop."""

    def clean():
        with monkeypatch.context() as patched:
            patched.setattr(versions, "A_DAY", -1000)
            opened(made).vacuum()

    before = files(made)
    with pytest.raises(IndexConflictError, match="took longer than a day"):
        made.update(slow(row(4, 0.7), clean))
    fence = "_versions", manifest_path(made.path, 2).name
    assert files(made) == before | {fence}


def test_the_outcome_of_a_taken_number(made):
    """A number that is removed may have been this attempt's, so its files stay."""
    made.update(row(2, 9.0))
    made.update(row(3, 19.0))
    made.vacuum(keep=2)
    manifest = latest(made.path)
    for base, kept in ((0, True), (1, False)):
        own = publishing.Transaction(made.path)
        assert publishing.publish(own, base, manifest) is Outcome.OVERTAKEN
        assert own.kept == kept
    again = publishing.Transaction(made.path)
    assert publishing.publish(again, 3, manifest) is Outcome.PUBLISHED
    assert publishing.publish(again, 3, manifest) is Outcome.PUBLISHED and again.kept


def test_an_index_of_an_earlier_version_of_the_package(made):
    """Its vacuum removed manifests, so numbers below the first one are free."""
    for k in range(2, 5):
        made.update(row(k, 9.0 * k))
    for number in (1, 2):
        manifest_path(made.path, number).unlink()
    assert opened(made).history().index.tolist() == [3, 4]
    assert made.update(row(9, 0.5)).version == 5
    assert made.vacuum(keep=2) > 0
    assert made.history().index.tolist() == [4, 5] and made.check().damaged == 0


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
