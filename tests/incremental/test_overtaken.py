"""A writer that is overtaken by others and by a vacuum loses no row, and no version is made twice."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from tests.support.oracle import as_set


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
        yield row(1, 0.0).simjoin.index(1.0, tmp_path / "index", on="x", id="key", recluster="never")


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
    assert now.history().index.is_monotonic_increasing and np.all(np.diff(now.history().index) == 1)
    assert as_set(changes.added.compute()) == {(1, 4)}
    assert as_set(now.changes(number + 1).compute()) == {(1, 4)}
    assert now.update(row(4, 0.7), batch="a").report.known
