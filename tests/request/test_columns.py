"""Columns of odd labels: those of ours never take their place, and no label is taken for something else."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import ColumnError, OptionError
from tests.support.frames import computed

OURS = ["left", "right", "rank", "distance", "similarity", "id", "component", "neighbors", "k_distance",
        "cluster", "order", "duplicate", "diff", "row", "value", "key", "ids", "kept", "own_limit", "order",
        "simjoin_row_id", "row_id", "by=g", "by=g'", "matches", "taken", "position", "_seq",
        "_partitions", "count", "limit"]  # fmt: skip
"""Names that a verb gives a column, of a result or in between."""


def odd_frame(rows=12):
    """A frame with columns of all those names, whose values a verb must not touch."""
    rng = np.random.default_rng(0)
    own = {name: rng.integers(0, 100, rows) + 100 * k for k, name in enumerate(dict.fromkeys(OURS))}
    more = {7: rng.integers(0, 9, rows), ("a", 1): np.arange(rows)}
    x = pd.DataFrame({"x": rng.integers(0, 6, rows) * 1.0, "g": rng.choice(list("ab"), rows)})
    return pd.concat([x, pd.DataFrame(own), pd.DataFrame(more, index=x.index)], axis=1)


FRAME = odd_frame()
HOW = {"on": "x", "by": "g"}


@pytest.fixture(params=[0, 1, 3])
def frame(request):
    """Plain, and of Dask in one partition and in three."""
    with dask.config.set(scheduler="sync"):
        yield dd.from_pandas(FRAME, npartitions=request.param) if request.param else FRAME


def near():
    x, g = FRAME["x"].to_numpy(), FRAME["g"].to_numpy()
    return (np.abs(x[:, None] - x) <= 1.0) & (g[:, None] == g)


def test_rows_come_back_with_all_their_columns(frame):
    half = FRAME.iloc[::2]
    matched = near()[:, ::2].any(axis=1)
    for way, rows in (("leftsemi", matched), ("leftanti", ~matched)):
        found = computed(frame.simjoin.join(half, 1.0, how=way, **HOW))
        pd.testing.assert_frame_equal(found, FRAME[rows], check_dtype=False)
    once = computed(frame.simjoin.drop_near_duplicates(1.0, **HOW))
    marks = computed(frame.simjoin.near_duplicated(1.0, **HOW))
    pd.testing.assert_frame_equal(once, FRAME[~marks.to_numpy()], check_dtype=False)


def test_each_column_is_kept_as_it_is(frame):
    i, j = np.nonzero(np.triu(near(), 1))
    names = [name for name in FRAME.columns if name != "x"]
    found = computed(frame.simjoin.self_join(1.0, keep=names, return_distance=True, **HOW))
    found = found.sort_values(["left", "right"])
    assert list(zip(found["left"], found["right"], strict=True)) == sorted(zip(i, j, strict=True))
    for name in names:
        for side in ("left", "right"):
            assert found[f"{name}_{side}"].tolist() == FRAME[name][found[side]].tolist()


@pytest.mark.parametrize("name", ["by=g", "by=g'", "distance", "left", 7])
def test_each_column_is_a_coordinate_or_an_id(frame, name):
    x = FRAME[name].to_numpy()
    want = (np.abs(x[:, None] - x) <= 10) & (FRAME["g"].to_numpy()[:, None] == FRAME["g"].to_numpy())
    assert computed(frame.simjoin.count_pairs(10, on=[name], by="g")) == (want.sum() - len(x)) // 2
    if FRAME[name].is_unique:
        pairs = computed(frame.simjoin.self_join(1.0, id=name, **HOW))
        i, j = np.nonzero(np.triu(near(), 1))
        assert set(zip(pairs["left"], pairs["right"], strict=True)) == set(zip(x[i], x[j], strict=True))


@pytest.mark.parametrize("lazy", [False, True])
def test_a_tuple_that_names_a_column_of_groups(lazy):
    frame = FRAME.rename(columns={"g": ("g", 0)})
    want = (near().sum() - len(FRAME)) // 2
    with dask.config.set(scheduler="sync"):
        data = dd.from_pandas(frame, npartitions=2) if lazy else frame
        for by in (("g", 0), [("g", 0)]):
            assert computed(data.simjoin.count_pairs(1.0, on="x", by=by)) == want
        assert computed(data.simjoin.count_pairs(1.0, on="x", by=[("g", 0), "rank"])) == 0


@pytest.mark.parametrize("label", [True, False, None, np.nan])
@pytest.mark.parametrize("lazy", [False, True])
def test_truth_values_and_missing_labels_are_refused(label, lazy):
    """Of pandas [True] is a mask, and [None] names nothing."""
    frame = pd.DataFrame({"x": [0.0, 1.0, 9.0], label: [1, 2, 3]})
    frame = dd.from_pandas(frame, npartitions=2) if lazy else frame
    verbs = frame.simjoin
    calls = [
        lambda: verbs.self_join(1.0, on=[label]),
        lambda: verbs.self_join(1.0, on=["x", label]),
        lambda: verbs.self_join(1.0),
        lambda: verbs.self_join(1.0, on="x", by=[label]),
        lambda: verbs.self_join(1.0, on="x", keep=[label]),
        lambda: verbs.join(frame, 1.0, on="x", keep=[label]),
        lambda: verbs.knn_join(frame, 1, on="x", by=[label], max_distance=1.0),
        lambda: verbs.set_self_join([label], 1.0),
    ]
    if label is not None:
        calls.append(lambda: verbs.self_join(1.0, on="x", id=label))
    for call in calls:
        with pytest.raises(ColumnError, match=r"(on|by|keep|id)= names the column (True|False|None|nan),"):
            call()
    assert len(computed(verbs.self_join(1.0, on="x"))) == 1


def test_what_results_call_their_own_columns_is_reserved():
    frame, other = FRAME[["x", "distance", "left"]], FRAME[["x"]]
    for name in ("distance", "left"):
        with pytest.raises(OptionError, match=rf"column '{name}', .* is reserved .*; rename the column"):
            frame.simjoin.join(other, 1.0, on="x", keep=name)
    with pytest.raises(OptionError, match=r"column 'left', a name that is reserved .* or use other suff"):
        frame.simjoin.self_join(1.0, on="x", keep="left", suffixes=("", "_other"))
    one = pd.DataFrame({"x": [0.0], "a": 1, "a_left": 2})
    with pytest.raises(OptionError, match=r"two columns 'a_left'.*use other suffixes"):
        one.simjoin.join(one[["x", "a"]], 1.0, on="x", keep=["a", "a_left"])
