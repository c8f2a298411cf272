"""Rows in memory, and which of them another version has with other values: by plain
Python.
"""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.disk_index.row_batch import (
    _unlike,
    concat_replaced,
    other_values,
    replaced_of,
    totals_of,
)
from tests.support.oracle import totals

METRICS = {1: "manhattan", 2: "euclidean", np.inf: "chebyshev"}


def rows(seq, x, kept=None):
    found = {"seq": np.array(seq), "x": np.array(x, float)[:, None]}
    return found if kept is None else found | {"kept": pd.DataFrame({"kept": kept})}


def test_replaced_rows_are_those_on_both_sides():
    other = rows([5, 2, 9, 7], [0.5, 0.2, 0.9, 0.7])
    parts = [
        replaced_of([np.array([9, 5]), np.array([100])], other),
        replaced_of([np.array([3])], other),
    ]
    assert parts[0]["seq"].tolist() == [5, 9] and len(parts[1]["seq"]) == 0
    found = concat_replaced(
        [replaced_of([np.array([9])], other), replaced_of([np.array([5, 7])], other)]
    )
    assert found["seq"].tolist() == [5, 7, 9] and found["x"][:, 0].tolist() == [
        0.5,
        0.7,
        0.9,
    ]
    assert concat_replaced([parts[1]]) is None


@pytest.mark.parametrize("stay", [True, False])
def test_rows_have_their_values_of_the_other_version(stay):
    here = rows([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])
    replaced = rows([2, 4], [20.0, 40.0])
    x, there, changed = other_values(replaced, here, np.array([3, 0, 1]), stay)
    assert x[:, 0].tolist() == [40.0, 1.0, 20.0] and changed.tolist() == [
        True,
        False,
        True,
    ]
    assert there.tolist() == [True, stay, True]


def test_rows_that_keep_something_else_are_not_there():
    here = rows([1, 2, 3], [1.0, 2.0, 3.0], ["a", "b", None])
    replaced = rows([1, 2, 3], [1.0, 2.0, 3.0], ["a", "B", None])
    _, there, _ = other_values(replaced, here, np.arange(3), False)
    assert there.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("own", "other", "differ"),
    [
        (
            [1.0, None, float("nan"), 2.0],
            [1.0, None, None, 3.0],
            [False, False, False, True],
        ),
        (["a", None, "b"], [None, None, "b"], [True, False, False]),
        ([[1], [2, 3]], [[1], [2]], [False, True]),
    ],
)
def test_values_that_differ(own, other, differ):
    sides = (pa.chunked_array([pa.array(side)]) for side in (own, other))
    assert _unlike(*sides).tolist() == differ


@pytest.mark.parametrize("norm", METRICS)
def test_totals_of_rows_one_by_one(norm):
    x, y = np.random.default_rng(0).normal(size=(2, 20, 3))
    assert (
        totals_of(x, y, norm).tolist() == np.diag(totals(x, y, METRICS[norm])).tolist()
    )
