"""What arrays of both libraries are asked for: numbers rounded down, places that may be
none, inverses.
"""

import numpy as np
import pytest

from dask_simjoin.engine.base import narrowing_of
from dask_simjoin.engine.compat import (
    DIVIDED,
    FLOAT32,
    FLOAT64,
    constants_of,
    dims_of,
    float32_below,
    inverse_of,
    looked_up,
    narrowed,
    row_bytes,
    storage_of,
    widened,
)
from dask_simjoin.metrics import make_metric
from tests.support.narrow import KINDS, float32_rows
from tests.support.profiles import in_turns


def test_what_is_rounded_down_is_the_largest_that_is_not_above():
    rng = np.random.default_rng(0)
    values = rng.normal(size=2000) * 10.0 ** rng.integers(-60, 60, 2000)
    values = np.concatenate([values, [0.0, 1.0, -1.0, 3.5e38, 1e300, np.inf]])
    found = float32_below(values)
    assert found.dtype == np.float32
    assert (found <= values).all()
    with np.errstate(over="ignore"):
        assert (np.nextafter(found, np.float32(np.inf)) > values)[:-1].all()
    assert found[-1] == np.inf


@pytest.mark.parametrize("rows", [0, 3])
def test_places_of_none(rows):
    table = np.arange(10, 10 + rows, dtype=np.int32)
    places = np.array([[-1, -1], [rows - 1, -1]])
    found = looked_up(table, places)
    assert found.dtype == np.int32
    assert found.tolist() == [[-1, -1], [12 if rows else -1, -1]]


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_where_numbers_are(kind):
    found = inverse_of(np.array([2, 0, 3, 1], kind))
    assert found.dtype == np.int32 and found.tolist() == [1, 3, 0, 2]


def stored(x, metric):
    """The columns of rows, their coordinates, and narrow points of them or None."""
    columns = x.astype(np.float64)
    points, lengths = make_metric(metric).divided(columns, np)
    return columns, points, narrowed(columns, points, lengths)


@in_turns(
    1,
    kind=list(KINDS),
    dims=[1, 2, 33, 384, 2048],
    metric=["euclidean", "cosine", "manhattan"],
)
def test_coordinates_are_the_same_to_the_bit(kind, dims, metric):
    x = float32_rows(kind, 200, dims, np.random.default_rng(dims))
    _, points, rows = stored(x, metric)
    assert rows is not None and rows.flags.c_contiguous
    assert (
        storage_of(rows) == (DIVIDED if metric == "cosine" else FLOAT32)
        and dims_of(rows) == dims
    )
    assert rows[0].nbytes == row_bytes(
        dims, metric == "cosine"
    ) and "STORED" in constants_of(rows)
    places = ~np.isnan(points).any(axis=1)
    assert places.any()
    assert (
        widened(rows)[places].tobytes()
        == np.ascontiguousarray(points)[places].tobytes()
    )


def test_rows_that_are_taken_keep_their_lengths():
    x = float32_rows("normal", 50, 7, np.random.default_rng(0))
    _, points, rows = stored(x, "cosine")
    some = np.random.default_rng(1).permutation(50)[:20]
    both = np.concatenate([rows[some], rows[:3]])
    assert (widened(both) == np.concatenate([points[some], points[:3]])).all()


def test_what_float32_does_not_hold_stays_in_float64():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 40))
    mixed = float32_rows("normal", 20, 40, rng).astype(np.float64)
    mixed[7, 3] = 0.1
    large = np.full((2, 40), 1e39)
    for columns in (x, mixed, large, np.full((2, 40), 2.0**24 + 1)):
        assert (
            stored(columns, "euclidean")[2] is None
            and stored(columns, "cosine")[2] is None
        )
    assert storage_of(x) == FLOAT64 and constants_of(x) == {} and widened(x) is x
    # a column of groups is not divided, and other metrics have other coordinates than
    # columns
    whole = np.float64(rng.integers(-5, 5, (20, 40)))
    points, lengths = make_metric("cosine").divided(whole[:, :-1], np)
    assert narrowed(whole, np.column_stack([points, whole[:, -1]]), lengths) is None
    assert narrowed(whole, points, lengths) is None


def test_rows_with_nan_do_not_matter():
    x = float32_rows("normal", 5, 40, np.random.default_rng(0))
    x[2, 4] = np.nan
    x[3] = 0
    for metric in ("euclidean", "cosine"):
        assert stored(x, metric)[2] is not None
    assert stored(x[:0], "cosine")[2].shape == (0, 42)


def test_the_module_of_an_array():
    assert narrowing_of(np.zeros((1, 1))).widened is widened
