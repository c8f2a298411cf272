"""Of two writers one makes a version, and the other makes the next one of it, or is
refused.
"""

import contextlib
import errno
import os

import dask
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import folders, publishing
from dask_simjoin.disk_index import index as module
from dask_simjoin.errors import (
    DuplicateIdError,
    IndexConflictError,
    IndexStoreError,
    IndexWriteError,
)
from tests.support.gates import PATIENCE
from tests.support.growing import Model
from tests.support.oracle import as_set
from tests.support.threads import started


def frame(ids):
    return pd.DataFrame({"key": np.array(ids), "x": np.array(ids, float) / 2})


@pytest.fixture
def made(tmp_path):
    frame(range(6)).simjoin.index(
        1.0, tmp_path / "index", on="x", id="key", row_group=2
    )
    return [dask_simjoin.open_index(tmp_path / "index") for _ in range(2)]


def before_commits(monkeypatch, acts):
    """Do something of another writer's before each commit of the first one."""
    plain, todo = module.commit, list(acts)

    def commit(*args):
        if todo:
            act = todo.pop(0)
            monkeypatch.setattr(module, "commit", plain)
            act()
            monkeypatch.setattr(module, "commit", commit)
        return plain(*args)

    monkeypatch.setattr(module, "commit", commit)
    return todo


def test_the_slower_writer_tries_again(made, monkeypatch):
    """Its rows are numbered after those of the faster one, whose pairs it finds too."""
    left = before_commits(monkeypatch, [lambda: made[1].update(frame([10, 12]))])
    changes = made[0].update(frame([11, 20]), delete=[0])
    assert not left
    assert (changes.since, changes.version) == (2, 3)
    assert as_set(changes.added.compute()) == {(10, 11), (12, 11)}
    assert as_set(changes.removed.compute()) == {(0, 1), (0, 2)}
    want = Model(1.0, {k: (k / 2,) for k in (1, 2, 3, 4, 5, 10, 12, 11, 20)})
    for one in made:
        assert as_set(one.pairs().compute()) == want.pairs()


def test_ids_are_looked_up_again(made, monkeypatch):
    """What the faster writer took in is known when the slower one tries again."""
    before_commits(monkeypatch, [lambda: made[1].update(frame([10]))])
    with pytest.raises(DuplicateIdError, match=r"contains 1 of the new ids: 10\. Use"):
        made[0].update(frame([10, 11]))
    assert len(made[0]) == 7


def test_the_same_batch_of_two_writers_is_taken_once(made, monkeypatch):
    before_commits(
        monkeypatch, [lambda: made[1].update(frame([10, 11]), batch="night")]
    )
    changes = made[0].update(frame([10, 11]), batch="night")
    assert changes.report.known
    assert made[0].version == 2
    assert as_set(changes.added.compute()) == {(10, 11)}


def test_a_writer_that_is_always_slower_is_refused(made, monkeypatch):
    others = [lambda k=k: made[1].update(frame([k])) for k in range(10, 13)]
    before_commits(monkeypatch, others)
    with pytest.raises(
        IndexConflictError,
        match=r"3 times during this call, so nothing was changed\. Let one",
    ):
        made[0].update(frame([30]))
    assert sorted(made[0].rows().compute()["key"]) == [*range(6), 10, 11, 12]


def test_two_threads_lose_nothing(made):
    """Each takes in its own rows, and tries again as often as it must."""

    def work(number):
        for k in range(3):
            while True:
                with contextlib.suppress(IndexConflictError):
                    made[number].update(
                        frame([100 + 10 * number + k]), batch=f"{number} {k}"
                    )
                    break

    # set here for both: threads that set it would put back each other's value
    with dask.config.set(scheduler="sync"):
        for done in [started(work, number) for number in range(2)]:
            done.result(PATIENCE)
    want = [*range(6), 100, 101, 102, 110, 111, 112]
    rows = made[0].rows().compute()
    assert sorted(rows["key"]) == want
    assert {tuple(sorted(pair)) for pair in as_set(made[0].pairs().compute())} == Model(
        1.0, {k: (k / 2,) for k in want}
    ).pairs()
    assert made[0].version == 7
    assert set(made[0].history()["batch"].dropna()) == {
        f"{n} {k}" for n in range(2) for k in range(3)
    }


ERRORS = [FileExistsError, FileNotFoundError, TimeoutError]


@pytest.fixture
def links(monkeypatch):
    """Let the link of a manifest fail: before or after it is made, and then a function
    is called.
    """
    plain = os.link

    def fail(error, made, then=lambda: None):
        def link(source, target):
            if not str(target).endswith(".json"):
                return plain(source, target)
            if made:
                plain(source, target)
            monkeypatch.setattr(os, "link", plain)
            then()
            raise error

        monkeypatch.setattr(os, "link", link)

    return fail


def files(index):
    return {path for path in index.path.glob("*/*") if path.suffix != ".json"}


@pytest.mark.parametrize("error", ERRORS)
def test_a_link_whose_answer_was_lost_counts(error, made, links):
    """As in a network: the file system did it, and asked again, or said nothing."""
    links(error, made=True)
    changes = made[0].update(frame([10]), batch="night")
    assert (changes.version, changes.report.inserted, made[1].version) == (2, 1, 2)
    assert made[1].update(frame([10]), batch="night").report.known
    assert len(made[1].rows().compute()) == 7


@pytest.mark.parametrize("error", ERRORS[1:])
def test_a_link_that_fails_is_tried_again(error, made, links):
    links(error, made=False)
    assert made[0].update(frame([10])).version == 2
    assert made[0].check().damaged == 0


@pytest.mark.parametrize("error", ERRORS[1:])
def test_a_link_that_fails_as_another_writer_makes_the_version(error, made, links):
    before = files(made[0])
    links(error, made=False, then=lambda: made[1].update(frame([20])))
    assert made[0].update(frame([10])).version == 3
    assert sorted(made[0].rows().compute()["key"]) == [*range(6), 10, 20]
    assert len(files(made[0]) - before) == 6  # three of each version


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_link_that_is_refused_leaves_nothing(code, made, links):
    before = files(made[0])
    links(OSError(code, os.strerror(code)), made=False)
    with pytest.raises(IndexWriteError, match=r"2\.json' cannot be written"):
        made[0].update(frame([10]))
    assert files(made[0]) == before
    assert made[0].update(frame([10])).version == 2


@pytest.mark.parametrize("arrives", [False, True])
def test_a_file_system_that_does_not_answer(arrives, made, links):
    """The version may exist, so files stay."""
    left = [publishing.ATTEMPTS]

    def again():
        left[0] -= 1
        if left[0]:
            links(TimeoutError(5, "timed out"), False, again)

    before = files(made[0])
    links(TimeoutError(5, "timed out"), arrives, again)
    text = r"2\.json' was not confirmed, so the version may or may not exist: timed"
    with pytest.raises(IndexStoreError, match=text):
        made[0].update(frame([10]), batch="a")
    assert files(made[0]) > before and made[0].version == 1 + arrives
    assert made[1].update(frame([10]), batch="a").report.known == arrives


def test_a_full_disk_after_no_answer_leaves_files(made, links, monkeypatch):
    """The version may exist."""
    plain, before = folders.write_new, files(made[0])

    def full(path, write):
        raise IndexWriteError(28, "no room")

    def fill():
        monkeypatch.setattr(folders, "write_new", full)

    links(TimeoutError(5, "timed out"), False, fill)
    with pytest.raises(IndexWriteError, match="no room"):
        made[0].update(frame([10]))
    monkeypatch.setattr(folders, "write_new", plain)
    assert files(made[0]) > before


def test_files_stay_where_nobody_can_tell_whether_a_version_was_made(made, links):
    """The answer got lost, and what was made was removed before somebody looked: ids
    tell the rest.
    """

    def others():
        made[1].update(frame([20]))
        made[1].vacuum(keep=1)

    links(FileExistsError, made=True, then=others)
    with pytest.raises(DuplicateIdError, match=r"contains 1 of the new ids: 10\."):
        made[0].update(frame([10]))
    assert sorted(made[0].rows().compute()["key"]) == [*range(6), 10, 20]
    assert made[0].update(frame([10]), if_exists="ignore").report.ignored == 1
