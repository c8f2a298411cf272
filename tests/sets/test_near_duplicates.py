"""Near duplicates of sets: which rows stay, by their definition, whatever the blocks
and partitions.
"""

import itertools
import re
from fractions import Fraction

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import BudgetError, ColumnError, OptionError
from dask_simjoin.sets.predicate import Rule
from tests.support.duplicates import marked, order_of
from tests.support.profiles import every_nth, examples
from tests.support.sets import as_columns, rows_of_sets, wanted_pairs

KEEP = ["first", "last", "v", False]
GROUPINGS = ["greedy", "connected"]


@pytest.fixture(autouse=True)
def plain_lists():
    """Lists stay lists in Dask DataFrames that are made of pandas'."""
    with dask.config.set({"dataframe.convert-string": False, "scheduler": "sync"}):
        yield


def wanted(rows, rule, keep, grouping, special, values=None):
    """Marks by the definition."""
    near = np.zeros((len(rows), len(rows)), bool)
    for i, j in wanted_pairs(rows, rows, rule, special, special, True):
        near[i, j] = near[j, i] = True
    if keep is False:
        return near.any(1).tolist()
    return marked(
        near | np.eye(len(rows), dtype=bool),
        order_of(keep, len(rows), values),
        grouping,
    )


RULES = [
    ("jaccard", 0.6, ">="),
    ("jaccard", 0.5, "="),
    ("jaccard", 1, ">="),
    ("dice", 0.5, ">"),
    ("cosine", 0.55, ">="),
    ("overlap", 2, ">="),
    ("overlap", 2, "="),
    ("jaccard", 1, ">"),
]
"""With comparisons by which equal sets do not match, too."""


@settings(max_examples=examples(150))
@given(
    rows=rows_of_sets(most=30, tokens=6, size=5),
    kind=st.sampled_from(["lists", "strings", "arrow", "text"]),
    rule=st.sampled_from(RULES),
    keep=st.sampled_from(KEEP),
    grouping=st.sampled_from(GROUPINGS),
    cuts=st.lists(st.integers(0, 30), max_size=3),
    size=st.sampled_from([None, 200, 1000]),
    special=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_any_sets(rows, kind, rule, keep, grouping, cuts, size, special, seed):
    similarity, threshold, comparison = rule
    special &= similarity != "overlap"
    values = np.random.default_rng(seed).integers(-2, 3, len(rows)) / 2.0
    values[values == 1] = np.nan
    frame, how = as_columns(rows, kind)
    frame = frame.assign(v=values)
    rule = Rule(similarity, Fraction(str(threshold)), comparison)
    want = wanted(rows, rule, keep, grouping, special, values)
    how |= {
        "on": "sets",
        "threshold": threshold,
        "similarity": similarity,
        "comparison": comparison,
        "allow_empty": special,
        "allow_missing": special,
        "keep": keep,
        "grouping": grouping,
    }
    found = frame.simjoin.set_near_duplicated(**how)
    assert found.tolist() == want and found.dtype == bool
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [frame.iloc[start:stop] for start, stop in itertools.pairwise(edges)]
    # it makes texts of lists with pandas 2
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_map(lambda n: parts[n], range(len(parts)), meta=frame.iloc[:0])
        assert (
            lazy.simjoin.set_near_duplicated(**how, blocksize=size).compute().tolist()
            == want
        )
        stay = lazy.simjoin.drop_set_near_duplicates(**how, blocksize=size).compute()
    pd.testing.assert_frame_equal(stay, frame[~np.array(want, bool)])


def texts():
    """Texts of few words, of which many are alike, and some are copies."""
    random = np.random.default_rng(5)
    rows = [f"w{a} w{b} w{c} x{d}" for a, b, c, d in random.integers(0, 12, (120, 4))]
    return pd.DataFrame(
        {"text": pd.Series(rows, dtype="str"), "v": random.permutation(120)}
    )


@pytest.mark.parametrize("grouping", every_nth(4, GROUPINGS))
def test_lazy_marks_are_aligned_and_computed_late(grouping):
    frame = texts()
    calls = []

    def read(n):
        calls.append(n)
        return frame.iloc[n * 30 : n * 30 + 30]

    ddf = dd.from_map(read, range(4), meta=frame.iloc[:0])
    how = {
        "on": "text",
        "threshold": 0.6,
        "tokenizer": "whitespace",
        "grouping": grouping,
    }
    lazy = ddf.simjoin.set_near_duplicated(**how)
    stay = ddf.simjoin.drop_set_near_duplicates(**how, keep="v")
    assert not calls and lazy.dtype == bool and lazy.name is None
    sets = [text.split() for text in frame["text"]]
    rule = Rule("jaccard", Fraction(3, 5), ">=")
    want = np.array(wanted(sets, rule, "first", grouping, False))
    assert 10 < want.sum() < 110
    whole = ddf.assign(gone=lazy).compute()
    assert (
        whole["gone"].tolist() == want.tolist()
        and whole["v"].tolist() == frame["v"].tolist()
    )
    assert lazy.partitions[2].compute().tolist() == want[60:90].tolist()
    best = ~np.array(wanted(sets, rule, "v", grouping, False, frame["v"]))
    assert stay[["v"]].compute().index.tolist() == frame.index[best].tolist()
    moved = ddf.shuffle("v")
    found = moved.assign(
        gone=moved.simjoin.set_near_duplicated(**how, keep="v")
    ).compute()
    assert found["gone"].sort_index().tolist() == (~best).tolist()


def test_like_pandas_where_texts_are_equal():
    frame = texts()
    for keep in ("first", "last", False):
        how = {"tokenizer": "whitespace", "keep": keep}
        ordered = frame["text"].map(lambda text: tuple(sorted(set(text.split()))))
        found = frame.simjoin.set_near_duplicated("text", 1, **how)
        pd.testing.assert_series_equal(
            found, ordered.duplicated(keep=keep), check_names=False
        )
        once = frame.simjoin.drop_set_near_duplicates("text", 1, **how)
        pd.testing.assert_frame_equal(once, frame[~ordered.duplicated(keep=keep)])


def test_on_a_cluster(client):
    frame = texts()
    how = {"on": "text", "threshold": 0.6, "tokenizer": "whitespace"}
    with dask.config.set(scheduler=None):
        verb = dd.from_pandas(frame, npartitions=3).simjoin.set_near_duplicated
        lazy = [
            verb(**how, grouping=grouping, blocksize="6 kB") for grouping in GROUPINGS
        ]
        for grouping, found in zip(GROUPINGS, dask.compute(*lazy), strict=True):
            pd.testing.assert_series_equal(
                found, frame.simjoin.set_near_duplicated(**how, grouping=grouping)
            )


def test_refused():
    frame = texts()
    how = {"on": "text", "threshold": 0.6, "tokenizer": "whitespace"}
    for data in (frame, dd.from_pandas(frame, npartitions=2)):
        with pytest.raises(
            OptionError,
            match=re.escape("keep='lst' is not allowed (did you mean 'last'?)"),
        ):
            data.simjoin.set_near_duplicated(**how, keep="lst")
        with pytest.raises(ColumnError, match="Name a column of numbers, times"):
            data.simjoin.drop_set_near_duplicates(**how, keep="text")
        with pytest.raises(OptionError, match="grouping='chain' is not allowed"):
            data.simjoin.set_near_duplicated(**how, grouping="chain")


@pytest.mark.parametrize("lazy", [False, True])
def test_pairs_that_one_task_cannot_hold(lazy, monkeypatch):
    """Groups of connected rows need no pairs, and copies of one text make none."""
    frame = texts()
    how = {"on": "text", "threshold": 0.6, "tokenizer": "whitespace"}
    data = dd.from_pandas(frame, npartitions=3) if lazy else frame
    monkeypatch.setattr("dask_simjoin.sets.near_duplicates.ROW_BYTES", 1 << 50)
    with pytest.raises(
        BudgetError,
        match=r"needs all pairs of distinct values.*threshold=0\.6 gives \d+",
    ):
        dask.compute(data.simjoin.set_near_duplicated(**how))
    dask.compute(data.simjoin.set_near_duplicated(**how, grouping="connected"))
    copies = pd.DataFrame({"text": ["a b", "b a"] * 50})
    copied = dd.from_pandas(copies, npartitions=3) if lazy else copies
    (gone,) = dask.compute(copied.simjoin.set_near_duplicated(**how))
    assert gone.sum() == 99
