"""Tables of a call, in memory and of Dask."""

import dask.dataframe as dd
import pandas as pd
import pytest

from dask_simjoin.calls.tables import LazyTable, PlainTable, table_of
from dask_simjoin.errors import OptionError

FRAME = pd.DataFrame({"x": [3, 1, 2]})


def more(frame, number):
    return frame + number


def largest(rows):
    return rows.max().to_frame().T


@pytest.fixture(params=[False, True], ids=["plain", "lazy"])
def table(request):
    return table_of(dd.from_pandas(FRAME, npartitions=2) if request.param else FRAME)


def test_kinds_of_tables(table):
    is_lazy = isinstance(table, LazyTable)
    assert is_lazy == (not table.has_positions)
    assert table.known_length() == (None if is_lazy else 3)
    assert table.own_threads(2) == (None if is_lazy else 2)
    assert table.computed().equals(FRAME)
    error = OptionError("rows in memory only")
    if is_lazy:
        with pytest.raises(OptionError, match="in memory"):
            table.in_memory(error)
    else:
        assert table.in_memory(error) is FRAME
    assert type(table_of(5)) is PlainTable and table_of(5).computed() == 5


@pytest.mark.parametrize(
    "how", [{}, {"meta": FRAME.iloc[:0]}, {"meta": lambda: FRAME.iloc[:0]}]
)
def test_a_function_of_each_partition(table, how):
    made = table_of(table.by_partition(more, 1, **how)).computed()
    assert made["x"].tolist() == [4, 2, 3]


@pytest.mark.parametrize("finish", [None, largest])
def test_reduced_rows(table, finish):
    biggest = table_of(table.reduced(largest, largest, finish)).computed()
    assert biggest["x"].tolist() == [3]


def test_one_partition(table):
    whole = table.in_one()
    assert whole.computed().equals(FRAME)
    assert getattr(whole.rows, "npartitions", 1) == 1


def test_numbers_of_rows(table):
    numbered = table_of(table.numbered("n")).computed()
    assert numbered["n"].tolist() == [0, 1, 2] and numbered["n"].dtype == "int64"


def test_lazy_form_of_a_table(table):
    made = table.lazy("pandas")
    assert isinstance(table_of(made), LazyTable)
    assert made.compute().equals(FRAME)


def test_only_plain_tables_log_results(table, caplog):
    with caplog.at_level("INFO", "dask_simjoin"):
        table.log_done("self_join", FRAME, 0.5)
    plain = type(table) is PlainTable
    lines = ["done self_join of a plain frame: 3 rows, in 0.50 s"] if plain else []
    assert caplog.messages == lines
