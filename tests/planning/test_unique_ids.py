"""Ids that repeat are found across partitions, in buckets that fit the budget."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import DuplicateIdError
from dask_simjoin.planning import unique_ids
from tests.engine.test_ids import REMEDY, WHERE, assert_refused, days, named
from tests.support.frames import computed, lay
from tests.support.oracle import as_set, assert_same_pairs
from tests.support.profiles import every_nth, in_turns


@pytest.fixture(params=WHERE)
def where(request):
    """Rows are named by the index, or by the column "key"."""
    return request.param


WITHIN = {
    "ints sorted": ([5, 5, 6, 7, 8, 9], "5"),
    "ints unsorted": ([8, 8, 6, 7, 5, 9], "8"),
    "last of all": ([1, 2, 3, 4, 9, 9], "9"),
    "strings": (list("ccabde"), "'c'"),
    "all the same": ([4] * 6, "4"),
    "datetimes": (days(7, 7, 1, 2, 3, 4), r".*2020\D+0?1\D+0?7.*"),
    "datetimes in ns": (days(7, 7, 1, 2, 3, 4, unit="ns"), r".*2020\D+0?1\D+0?7.*"),
    "unsorted datetimes in ns": (
        days(2, 1, 2, 3, 4, 5, unit="ns"),
        r".*2020\D+0?1\D+0?2.*",
    ),
    "timedeltas in ns": (
        pd.to_timedelta([7, 7, 1, 2, 3, 4], unit="D").as_unit("ns"),
        r".*(7 days|days=7).*",
    ),
    "unsorted timedeltas in ns": (
        pd.to_timedelta([7, 1, 7, 2, 3, 4], unit="D").as_unit("ns"),
        r".*(7 days|days=7).*",
    ),
    "zeros of both signs": ([0.0, -0.0, 1, 2, 3, 4], "-?0.0"),
}


@pytest.mark.parametrize("case", WITHIN)
def test_ids_repeat_within_a_partition(how, where, case):
    ids, shown = WITHIN[case]
    if how == "dask-3" and case.startswith("unsorted"):
        how = "dask-1"  # the two rows must lie in one partition
    partition = 2 if how == "dask-3" and case == "last of all" else 0
    subject = "The ids in column 'key'" if where == "column" else "The index labels"
    remedy = (
        "Use id= with another column"
        if where == "column"
        else "Use id= with a column of unique values"
    )
    text = (
        rf"^{subject} are not unique: {shown} repeats(?: in partition {partition})?, so pairs would be "
        rf"ambiguous\. {remedy}, or add one: {REMEDY}"
    )
    frame, options = named(ids, where)
    assert_refused(frame, how, options, text)


ACROSS = {
    "ints unsorted": ([3, 1, 9, 2, 4, 3], "3"),
    "ints sorted": ([1, 2, 2, 3, 4, 5], "2"),
    "at the ends": ([1, 2, 3, 4, 5, 1], "1"),
    "in ranges within ranges": ([0, 9, 3, 4, 4, 5], "4"),
    "partitions in reverse": ([8, 9, 4, 5, 3, 4], "4"),
    "strings": (list("abcdea"), "'a'"),
    "datetimes in order and not": (days(1, 4, 6, 2, 5, 4), r".*2020\D+0?1\D+0?4.*"),
    "datetimes in ns": (days(1, 4, 6, 2, 5, 4, unit="ns"), r".*2020\D+0?1\D+0?4.*"),
    "zeros of both signs": ([0.0, 1, 2, 3, 4, -0.0], "-?0.0"),
    "negative": ([-1, -9, -2, -8, -3, -9], "-9"),
}


@pytest.mark.parametrize("case", ACROSS)
def test_ids_repeat_across_partitions(where, case):
    ids, shown = ACROSS[case]
    subject = "The ids in column 'key'" if where == "column" else "The index labels"
    text = rf"^{subject} are not unique: {shown} repeats in several partitions, so .*{REMEDY}"
    frame, options = named(ids, where)
    assert_refused(frame, "dask-3", options, text)


@in_turns(
    1,
    dtype=["float64", "float32", "Float64", "double[pyarrow]", "category", "object"],
    second=[1, 5],
)
def test_zeros_of_both_signs_are_equal(how, where, dtype, second):
    """In one partition or in two."""
    ids = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    ids[second] = -0.0
    frame, options = named(pd.Series(ids, dtype="float64").astype(dtype).array, where)
    assert_refused(frame, how, options, r"are not unique: -?0\.0 repeats(?: in |,)")


@pytest.mark.parametrize("ordered", [False, True])
def test_categories_whose_order_is_not_that_of_their_values(where, ordered):
    """Codes that increase say nothing of values: these are c, a | b, a."""
    frame, options = named(
        pd.Categorical(list("cabade"), categories=list("cbade"), ordered=ordered), where
    )
    assert_refused(frame, "dask-3", options, "'a' repeats in several partitions")


def test_many_ids_that_repeat_once(where):
    rng = np.random.default_rng(1)
    ids = rng.permutation(10_000)
    ids[9_000] = ids[20]
    frame, options = named(ids, where, np.arange(10_000) * 5.0)
    assert_refused(
        frame, "dask-3", options, rf"{ids[20]} repeats in several partitions"
    )


NO_REPEATS = {
    "interleaved": [0, 3, 1, 4, 2, 5],
    "partitions in reverse": [4, 5, 2, 3, 0, 1],
    "unsorted": [5, 0, 3, 2, 4, 1],
    "ranges within ranges": [0, 9, 3, 6, 4, 5],
    "ranges that touch": [0, 2, 3, 5, 6, 8],
    "negative": [-1, 1, -2, 2, -3, 3],
    "strings": list("adbecf"),
    "datetimes": days(1, 4, 6, 2, 5, 3),
    "floats": [0.0, 0.5, -0.5, 0.25, np.inf, -np.inf],
    "mixed": np.array([1, "a", 2, "b", 3, "c"], object),
    "strings here and numbers there": np.array(["a", "b", 1, 2, 3, 4], object),
}


@pytest.mark.parametrize("case", NO_REPEATS)
def test_ids_that_do_not_repeat(how, where, case):
    frame, options = named(NO_REPEATS[case], where)
    keys = (frame["key"] if where == "column" else frame.index).tolist()
    pairs = computed(lay(frame, how).simjoin.self_join(1.0, **options))
    assert as_set(pairs) == {(keys[i], keys[i + 1]) for i in (0, 2, 4)}


def test_many_interleaved_ids(where):
    rng = np.random.default_rng(2)
    frame, options = named(
        rng.permutation(9_999), where, np.repeat(np.arange(3_333) * 5.0, 3)
    )
    keys = (
        (frame["key"] if where == "column" else frame.index).to_numpy().reshape(-1, 3)
    )
    pairs = lay(frame, "dask-3").simjoin.self_join(0.0, **options).compute()
    expected = {
        (int(r[i]), int(r[j])) for r in keys for i, j in ((0, 1), (0, 2), (1, 2))
    }
    assert_same_pairs(as_set(pairs), expected)


def _shuffled_ids(kind, rows=3000):
    numbers = np.random.default_rng(0).permutation(rows)
    if kind == "text":
        return pd.Index([f"row {n}" for n in numbers])
    if kind == "time":
        return pd.to_datetime(numbers, unit="s")
    return pd.Index(numbers - 1000, dtype=kind)


@pytest.mark.parametrize(
    "kind", every_nth(4, ["int64", "int16", "float64", "text", "time"])
)
def test_ids_are_compared_in_buckets_that_fit_the_budget(kind):
    ids = _shuffled_ids(kind)
    frame = pd.DataFrame({"x": np.arange(3000.0) * 9}, index=ids)
    parts = [frame.iloc[n : n + 500] for n in range(0, 3000, 500)]
    split = dd.from_map(lambda part: part, parts, meta=frame.iloc[:0])
    with dask.config.set({"simjoin.blocksize": 3200, "scheduler": "sync"}):
        assert len(split.simjoin.self_join(1.0).compute()) == 0
        parts[5] = parts[5].set_axis([*ids[2500:2999], ids[17]])
        again = dd.from_map(
            lambda part: part, parts, meta=frame.iloc[:0], label="again"
        )
        with pytest.raises(DuplicateIdError, match=r"repeats in several partitions"):
            again.simjoin.self_join(1.0).compute()


def test_ids_whose_keys_collide_are_compared_themselves(monkeypatch):
    monkeypatch.setattr(
        unique_ids, "id_keys", lambda ids: np.zeros(len(ids), np.uint64)
    )
    frame = pd.DataFrame({"x": np.arange(3000.0) * 9}, index=_shuffled_ids("text"))
    split = dd.from_map(
        lambda n: frame.iloc[n : n + 1500], [0, 1500], meta=frame.iloc[:0]
    )
    assert len(split.simjoin.self_join(1.0).compute(scheduler="sync")) == 0
