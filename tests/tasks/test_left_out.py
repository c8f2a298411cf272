"""Values and positions of rows that are left out."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import SourceChangedError
from dask_simjoin.request.requests import SelfJoinRequest
from dask_simjoin.tasks.left_out import (
    filled,
    filled_frame,
    for_all_rows,
    left_out_positions,
    left_out_rows,
    positions_in_frame,
    rows_of,
)

FRAME = pd.DataFrame(
    {"x": [np.nan, 1.0, 2.0, np.inf], "name": list("abcd")}, index=[7, 7, 8, 9]
)
SPEC = SelfJoinRequest(1.0, on="x", keep="name", dropna=True).spec(FRAME)
KEPT = np.array([False, True, True, False])


def test_values_of_all_rows():
    assert filled(np.array([5, 6]), KEPT, -1).tolist() == [-1, 5, 6, -1]
    assert filled(np.array([[5], [6]]), KEPT, 0).tolist() == [[0], [5], [6], [0]]
    values, labels = for_all_rows(np.array([5, 6]), FRAME, SPEC, 0)
    assert values.tolist() == [0, 5, 6, 0] and labels is FRAME.index
    whole = np.arange(4)
    assert for_all_rows(whole, FRAME, SPEC, 0)[0] is whole
    assert filled(whole, None, 0) is whole


def test_frames_of_all_rows():
    values = pd.DataFrame({0.5: [1, 2], 2.0: [3.0, 4.0]}, index=[7, 8])
    found = filled_frame(values, FRAME, KEPT, 0)
    assert found.index.equals(FRAME.index) and found.dtypes.equals(values.dtypes)
    assert found.to_dict("list") == {0.5: [0, 1, 2, 0], 2.0: [0.0, 3.0, 4.0, 0.0]}
    column = filled_frame(values[0.5].rename("n"), FRAME, KEPT, -1)
    assert column.tolist() == [-1, 1, 2, -1] and column.name == "n"


def test_rows_without_an_index():
    chunk = rows_of(FRAME, SPEC)
    assert chunk["ids"].tolist() == [7, 7, 8, 9] and chunk["id_keys"] is None
    assert chunk["kept"]["name"].tolist() == list("abcd")


def test_rows_of_a_partition():
    from dask_simjoin.planning.partition import summarise

    summary = summarise(FRAME, 0, SPEC, False)
    fingerprint = 0, (summary.source_rows, summary.box)
    chunk = left_out_rows(FRAME, fingerprint, SPEC)
    assert chunk["kept"]["name"].tolist() == ["a", "d"]
    assert left_out_positions(FRAME, fingerprint, 10, SPEC).tolist() == [10, 13]
    assert not len(left_out_positions(FRAME[1:3], (0, (2, summary.box)), 0, SPEC))
    with pytest.raises(SourceChangedError):
        left_out_rows(FRAME[:3], fingerprint, SPEC)


def test_positions_in_the_frame():
    rng = np.random.default_rng(2)
    for share in (0.0, 0.3, 1.0):
        kept = rng.random(50) >= share
        numbers = np.append(np.arange(kept.sum()), -1)
        found = positions_in_frame(numbers, np.flatnonzero(~kept))
        assert found.tolist() == [*np.flatnonzero(kept), -1]


def test_big_endian_rows_of_a_partition():
    # Dask describes the columns of such partitions as native
    from dask_simjoin.planning.partition import summarise

    # pandas can select rows of some such frames, depending on their blocks
    frame = FRAME.assign(x=FRAME["x"].astype(">f8"), y=1.0, z=np.arange(4))
    summary = summarise(frame, 0, SPEC, False)
    chunk = left_out_rows(frame, (0, (summary.source_rows, summary.box)), SPEC)
    assert chunk["kept"]["name"].tolist() == ["a", "d"]


def test_a_column_of_values_has_its_own_fill():
    """As of a result of several columns of which one was chosen."""
    values = pd.Series([1.0, 2.0], FRAME.index[KEPT][:2], name="b")
    kept = np.zeros(len(FRAME), bool)
    kept[:2] = True
    found = filled_frame(values, FRAME, kept, {"a": -1, "b": np.inf})
    assert found.tolist() == [1.0, 2.0] + [np.inf] * (len(FRAME) - 2)
