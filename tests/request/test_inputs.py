"""What is no data frame: arrays, and tables that stream Arrow's batches."""

import re

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dask_simjoin
from dask_simjoin.errors import UnsupportedFrameError
from tests.support.frames import computed

X = np.random.default_rng(0).uniform(size=(60, 2))
FRAME = pd.DataFrame(X)
CALLS = {
    "self_join": (0.1,), "neighbor_counts": (0.1,), "count_pairs": (0.1,), "knn_join": (None, 3),
    "dbscan": (0.1, 3), "near_duplicated": (0.1,), "drop_near_duplicates": (0.1,), "k_distances": (2,),
}  # fmt: skip


class Streamed:
    """What offers Arrow's interface and nothing else, as tables of other libraries do."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def same(found, want):
    """Whether two results are the same."""
    if isinstance(found, pa.Table | pa.Array):  # as the table that was given
        found = found.to_pandas()
    if isinstance(want, int):
        return found == want
    if want.ndim == 1:
        return found.tolist() == want.tolist()
    rows = [sorted(map(tuple, frame.reset_index(drop=True).to_numpy().tolist())) for frame in (found, want)]
    return rows[0] == rows[1] and len(rows[0]) > 0


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("kind", ["numpy", "records", "dask", "arrow", "stream"])
def test_verbs_take_them(verb, kind):
    table = pa.table({str(name): FRAME[name].to_numpy() for name in FRAME})
    given = {
        "numpy": X, "records": FRAME.rename(columns=str).to_records(index=False),
        "dask": da.from_array(X, chunks=(25, 1)), "arrow": table, "stream": Streamed(table),
    }[kind]  # fmt: skip
    want = getattr(FRAME.simjoin, verb)(*CALLS[verb])
    assert same(computed(getattr(dask_simjoin, verb)(given, *CALLS[verb])), want)


@pytest.mark.parametrize(
    "other", [X[:20], Streamed(pa.table({"0": X[:20, 0], "1": X[:20, 1]}))], ids=["array", "table"]
)
def test_as_the_right_table(other):
    on = {} if isinstance(other, np.ndarray) else {"left_on": [0, 1], "right_on": ["0", "1"]}
    want = FRAME.simjoin.join(FRAME.iloc[:20], 0.1)
    assert same(FRAME.simjoin.join(other, 0.1, **on), want)
    assert same(dask_simjoin.join(X, other, 0.1, **on), want)


def test_values_of_tables_stay_what_they_are():
    """Large integers with missing ones would change as float64; texts and lists are Arrow's own."""
    table = pa.table({
        "x": [0.0, 0.5, 9.0], "number": pa.array([2**60 + 1, None, 3]), "text": ["a", None, "c"],
        "view": pa.array(["a", "b", "c"], pa.string_view()), "many": [["a"], ["b"], []],
    })  # fmt: skip
    keep = ["number", "text", "view", "many"]
    (row,) = dask_simjoin.self_join(Streamed(table), 1.0, on="x", keep=keep).to_pylist()
    assert row["number_left"] == 2**60 + 1 and pd.isna(row["number_right"])
    assert row["text_left"] == "a" and pd.isna(row["text_right"])
    assert (row["view_left"], row["view_right"]) == ("a", "b")
    assert (list(row["many_left"]), list(row["many_right"])) == (["a"], ["b"])


def test_lists_and_sets_of_tables():
    table = pa.table(
        {"vector": [[0.0, 0.0], [0.0, 1.0], [5.0, 5.0]], "words": [["a", "b"], ["b", "a"], ["c"]]}
    )
    assert dask_simjoin.count_pairs(table, 1.0, on="vector") == 1
    assert dask_simjoin.count_set_pairs(Streamed(table), "words", 1.0) == 1


def test_components_of_tables():
    table = Streamed(pa.table({"left": [1, 2], "right": [2, 3]}))
    assert dask_simjoin.connected_components(table)["component"].to_pylist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), ()])
def test_arrays_of_other_shapes(shape):
    with pytest.raises(UnsupportedFrameError, match=re.escape(f"frame= is an array of shape {shape}")):
        dask_simjoin.self_join(np.zeros(shape), 1.0)
    with pytest.raises(UnsupportedFrameError, match=re.escape(f"other= is an array of shape {shape}")):
        FRAME.simjoin.join(np.zeros(shape), 1.0)


def test_what_is_nothing_of_the_kind():
    for given in ([[0.0, 1.0]], 3, "text", None):
        with pytest.raises(UnsupportedFrameError, match="is not a data frame; use a Dask DataFrame"):
            dask_simjoin.self_join(given, 1.0)


@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_other_libraries(library):
    there = pytest.importorskip(library)
    made = there.DataFrame if library == "polars" else lambda columns: there.from_arrow(pa.table(columns))
    found = dask_simjoin.self_join(made({"x": X[:, 0], "y": X[:, 1]}), 0.1, return_distance=True)
    assert isinstance(found, pa.Table if library == "duckdb" else there.DataFrame)
    found = found.to_pandas()
    assert same(found, FRAME.simjoin.self_join(0.1, return_distance=True))
