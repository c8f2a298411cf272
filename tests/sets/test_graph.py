"""Joins of sets of Dask DataFrames: the same pairs as those of plain frames, however
rows lie.
"""

import itertools

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin
from dask_simjoin.errors import BudgetError, DuplicateIdError, TokenError
from dask_simjoin.graph.planner import STATISTICS, collect, plan_for
from dask_simjoin.graph.source import freeze
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.request.columns import example_of
from dask_simjoin.sets import QGrams, graph
from dask_simjoin.sets.graph import SET_STEPS
from dask_simjoin.sets.requests import SetSelfJoinRequest
from tests.support.profiles import examples, in_turns
from tests.support.sets import as_columns, found_pairs, rows_of_sets

TEXTS = pd.DataFrame({"text": ["a b c", "a b c d", "e f", "a b"]})


def test_sources_keep_plans_and_frames_keep_statistics():
    frame = dd.from_pandas(TEXTS, npartitions=2)
    spec = SetSelfJoinRequest("text", 0.5, tokenizer="whitespace").spec(
        example_of(frame)
    )
    source = freeze(frame, spec.columns)
    STATISTICS.clear()
    plan = plan_for(source, spec, PAIRS, steps=SET_STEPS)
    assert plan.rows == 4 and len(STATISTICS) == 1
    assert plan_for(source, spec, PAIRS, steps=SET_STEPS) is plan
    again = collect(freeze(frame, spec.columns), spec, True, steps=SET_STEPS)
    assert [summary.source_rows for summary in again.summaries] == [2, 2]
    assert len(STATISTICS) == 1


KEYS = ["left", "right"]
SMALL = {"simjoin.output-size": "400 B"}


@pytest.fixture(autouse=True)
def plain_lists():
    """Lists stay lists in Dask DataFrames that are made of pandas'."""
    with dask.config.set({"dataframe.convert-string": False, "scheduler": "threads"}):
        yield


def table(rows, seed=0, most=7, tokens=12):
    random = np.random.default_rng(seed)
    sets = [
        random.integers(0, tokens, random.integers(0, most)).tolist()
        for _ in range(rows)
    ]
    frame = pd.DataFrame({"sets": sets, "name": [f"row {n}" for n in range(rows)]})
    frame.loc[::17, "sets"] = None
    return frame


def parted(frame, npartitions):
    return dd.from_pandas(frame, npartitions=npartitions, sort=False)


def same(found, expected):
    """Compare frames of pairs, whatever their order."""
    found, expected = (
        some.sort_values(KEYS, ignore_index=True) for some in (found, expected)
    )
    pd.testing.assert_frame_equal(found, expected)


@settings(max_examples=examples(60))
@given(
    rows=rows_of_sets(most=40),
    kind=st.sampled_from(["lists", "strings", "arrow", "text"]),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    size=st.sampled_from([None, 300, 2000]),
    special=st.booleans(),
)
def test_pairs_do_not_depend_on_partitions(rows, kind, cuts, size, special):
    frame, how = as_columns(rows, kind)
    how |= {"allow_empty": special, "allow_missing": special}
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [frame.iloc[start:stop] for start, stop in itertools.pairwise(edges)]
    ddf = dd.from_map(lambda n: parts[n], range(len(parts)), meta=frame.iloc[:0])
    expected = frame.simjoin.set_self_join(
        "sets", 0.6, keep="name", return_similarity=True, **how
    )
    with dask.config.set(SMALL):
        lazy = ddf.simjoin.set_self_join(
            "sets", 0.6, keep="name", return_similarity=True, blocksize=size, **how
        )
        same(lazy.compute(), expected)
    assert ddf.simjoin.count_set_pairs(
        "sets", 0.6, blocksize=size, **how
    ).compute() == len(expected)
    counts = ddf.simjoin.set_neighbor_counts("sets", 0.6, blocksize=size, **how)
    pd.testing.assert_series_equal(
        counts.compute(), frame.simjoin.set_neighbor_counts("sets", 0.6, **how)
    )


@in_turns(1, how=["inner", "left", "leftsemi", "leftanti"], special=[False, True])
def test_two_tables(how, special):
    frame, other = table(150), table(90, seed=1)
    more = {"how": how, "allow_empty": special, "allow_missing": special}
    expected = frame.simjoin.set_join(other, "sets", 0.6, **more)
    assert len(expected)
    for left, right in (
        (parted(frame, 3), parted(other, 2)),
        (parted(frame, 1), other),
        (frame, parted(other, 4)),
    ):
        for size in (None, "4 kB"):
            found = left.simjoin.set_join(
                right, "sets", 0.6, blocksize=size, **more
            ).compute()
            if how in ("inner", "left"):
                same(found, expected)
            else:
                pd.testing.assert_frame_equal(found, expected)


def test_names_and_columns_of_two_tables():
    left = pd.DataFrame({"a": [["x", "y"], ["z"]], "one": [10, 20], "v": [1, 2]})
    right = pd.DataFrame({"b": [["y", "x"], ["x"]], "two": ["p", "q"], "v": [3, 4]})
    how = {
        "left_on": "a",
        "right_on": "b",
        "left_id": "one",
        "right_id": "two",
        "keep": "v",
    }
    expected = pd.DataFrame(
        {"left": [10, 10], "right": ["p", "q"], "v_left": [1, 1], "v_right": [3, 4]}
    )
    for one, other in ((left, right), (parted(left, 2), parted(right, 1))):
        found = one.simjoin.set_join(other, None, 0.5, **how)
        same(found if isinstance(found, pd.DataFrame) else found.compute(), expected)


def test_many_equal_sets_are_cut_into_partitions():
    """Rows of one set give more pairs than a partition may hold."""
    frame = pd.DataFrame({"sets": [[1, 2]] * 300 + [[1, 2, 3]] * 40 + [[7]] * 3})
    expected = frame.simjoin.set_self_join("sets", 0.6)
    with dask.config.set({"simjoin.output-size": "16 kB"}):
        lazy = parted(frame, 3).simjoin.set_self_join("sets", 0.6)
        parts = [len(part) for part in dask.compute(*lazy.to_delayed())]
    same(lazy.compute(), expected)
    assert sum(parts) == len(expected) == 300 * 299 // 2 + 40 * 39 // 2 + 300 * 40 + 3
    assert max(parts) <= 1100 and len(parts) > 50


def test_rows_that_a_filter_chose_and_columns_that_are_asked_for():
    frame = table(200)
    frame["odd"] = np.arange(200) % 3
    ddf = parted(frame, 4)
    some = frame[frame.odd > 0]
    expected = some.simjoin.set_self_join("sets", 0.6, return_similarity=True)
    lazy = ddf[ddf.odd > 0].simjoin.set_self_join("sets", 0.6, return_similarity=True)
    same(lazy.compute(), expected)
    assert sorted(lazy["right"].compute()) == sorted(expected["right"])
    same(lazy[lazy.similarity < 1].compute(), expected[expected.similarity < 1])
    same(lazy.partitions[0].compute(), lazy.compute())
    counts = ddf.assign(n=ddf.simjoin.set_neighbor_counts("sets", 0.6))
    want = frame.assign(n=frame.simjoin.set_neighbor_counts("sets", 0.6))
    pd.testing.assert_frame_equal(counts[counts.n > 4].compute(), want[want.n > 4])
    pd.testing.assert_frame_equal(counts.partitions[2].compute(), want.iloc[100:150])


def test_rows_that_are_shuffled():
    frame = table(200).assign(k=np.arange(200) % 7, row=np.arange(200))
    want = frame.simjoin.set_neighbor_counts("sets", 0.6)
    moved = parted(frame, 4).shuffle("k")
    found = moved.assign(n=moved.simjoin.set_neighbor_counts("sets", 0.6)).compute()
    assert dict(zip(found["row"], found["n"], strict=True)) == want.to_dict()
    semi = moved.simjoin.set_join(
        frame.iloc[:20], "sets", 0.6, how="leftsemi"
    ).compute()
    other = frame.simjoin.set_join(frame.iloc[:20], "sets", 0.6, how="leftsemi")
    assert sorted(semi["row"]) == sorted(other["row"])


@pytest.mark.slow
def test_on_a_cluster(client):
    frame, other = table(300), table(100, seed=3)
    with dask.config.set(scheduler=None):
        ddf = parted(frame, 5)
        how = {"allow_missing": True, "blocksize": "8 kB"}
        lazy = ddf.simjoin.set_self_join("sets", 0.6, keep="name", **how)
        same(
            lazy.compute(),
            frame.simjoin.set_self_join("sets", 0.6, keep="name", allow_missing=True),
        )
        expected = frame.simjoin.set_neighbor_counts("sets", 0.6)
        pd.testing.assert_series_equal(
            ddf.simjoin.set_neighbor_counts("sets", 0.6).compute(), expected
        )
        found = ddf.simjoin.set_join(other, "sets", 0.6, how="left").compute()
        same(found, frame.simjoin.set_join(other, "sets", 0.6, how="left"))
        groups = dask_simjoin.connected_components(lazy[["left", "right"]]).compute()
        plain = frame.simjoin.set_self_join("sets", 0.6, allow_missing=True)
        pd.testing.assert_frame_equal(groups, dask_simjoin.connected_components(plain))


def test_texts_from_parquet(tmp_path):
    names = [
        f"{a} {b} {c}"
        for a in ("ab", "abc", "xyz")
        for b in ("st", "sta")
        for c in range(12)
    ]
    frame = pd.DataFrame({"name": names})
    for n in range(3):
        frame.iloc[n * 24 : (n + 1) * 24].reset_index(drop=True).to_parquet(
            tmp_path / f"{n}.parquet"
        )
    ddf = dd.read_parquet(tmp_path).simjoin.with_row_id()
    lazy = ddf.simjoin.set_self_join("name", 0.7, tokenizer=QGrams(2), id="row_id")
    assert found_pairs(lazy.compute()) == found_pairs(
        frame.simjoin.set_self_join("name", 0.7, tokenizer=QGrams(2))
    )
    with pytest.raises(DuplicateIdError, match="are not unique: 0 repeats"):
        ddf.simjoin.set_self_join("name", 0.7, tokenizer="words").compute()
    assert ddf.simjoin.count_set_pairs(
        "name", 0.7, tokenizer=("qgrams", 2)
    ).compute() == len(lazy)


def test_nothing_is_computed_when_it_is_built():
    calls = []

    def read(n):
        calls.append(n)
        return pd.DataFrame({"sets": [[n], [n, 1]]}, index=[2 * n, 2 * n + 1])

    ddf = dd.from_map(read, range(3), meta=pd.DataFrame({"sets": [[1]]}).iloc[:0])
    lazy = [
        ddf.simjoin.set_self_join("sets", 0.5),
        ddf.simjoin.count_set_pairs("sets", 0.5),
        ddf.simjoin.set_neighbor_counts("sets", 0.5),
        ddf.simjoin.set_join(ddf[["sets"]], "sets", 0.5, how="leftanti"),
    ]
    assert not calls
    found = [one.compute() for one in lazy]
    assert [len(found[0]), found[1], len(found[2]), len(found[3])] == [7, 7, 6, 0]


def test_what_only_the_data_tell_is_refused():
    frame = table(40)
    ddf = parted(frame, 3)
    with dask.config.set({"simjoin.result-limit": "100 B"}):
        with pytest.raises(
            BudgetError,
            match=r"threshold=0\.5 gives [0-9,]+ pairs \(.*count_set_pairs\(\)",
        ):
            ddf.simjoin.set_self_join("sets", 0.5).compute()
        with pytest.raises(
            BudgetError, match=r"gives [0-9,]+ pairs \(.* Use a larger threshold\."
        ):
            ddf.simjoin.set_join(frame, "sets", 0.5).compute()
    bad = frame.copy()
    bad.at[30, "sets"] = "text"
    for ask in ("set_self_join", "count_set_pairs", "set_neighbor_counts"):
        with pytest.raises(
            TokenError,
            match=r"row \d+ of partition 2 \(label 30\) holds a str, which is not a list",
        ):
            getattr(parted(bad, 3).simjoin, ask)("sets", 0.5).compute()
    with pytest.raises(
        TokenError,
        match=r"^In the right table, column 'sets' must hold lists of tokens",
    ):
        ddf.simjoin.set_join(parted(bad, 3), "sets", 0.5).compute()
    strings = pd.DataFrame({"sets": [["a"]]})
    with pytest.raises(
        TokenError, match="Some tokens are strings and others are integers"
    ):
        ddf.simjoin.set_join(strings, "sets", 0.5).compute()
    again = pd.concat([frame, frame])
    with pytest.raises(DuplicateIdError, match="are not unique"):
        parted(again, 3).simjoin.set_self_join("sets", 0.5).compute()
    assert parted(again, 3).simjoin.count_set_pairs("sets", 0.5).compute() > 0


def test_outer_joins_of_files_keep_their_partitions(tmp_path):
    frame = pd.DataFrame({"x": 0.0, "key": range(9), "text": list("abcdefghi")})
    for n in range(3):
        frame[3 * n : 3 * n + 3].to_parquet(tmp_path / f"{n}.parquet", index=False)
    lazy = dd.read_parquet(tmp_path)
    how = {"id": "key", "tokenizer": "words", "how": "outer"}
    found = lazy.simjoin.set_join(lazy[lazy["key"] < 5], "text", 0.5, **how)
    assert len(found) == len(found.persist()) == 9
    found = lazy.simjoin.set_join(lazy, "text", 0.5, **how)
    assert len(found) == len(found.persist()) == 9


@pytest.mark.parametrize("kind", [int, str])
def test_tokens_that_do_not_fit_in_a_worker_are_refused(kind, monkeypatch):
    """Else a worker might run out of memory, and be restarted again and again."""
    frame = pd.DataFrame({"words": [[kind(n), kind(n + 1)] for n in range(300)]})
    join = dd.from_pandas(frame, npartitions=3).simjoin.set_self_join
    few = Limits(threads=2, memory=10_000, cluster=True, limit=20_000)
    monkeypatch.setattr(graph, "limits_for", lambda library: few)
    refused = pytest.raises(BudgetError, match=r"303 of them.*larger workers")
    with refused:
        join("words", threshold=0.9).compute()
    enough = Limits(threads=2, memory=20_000, cluster=True, limit=40_000)
    monkeypatch.setattr(graph, "limits_for", lambda library: enough)
    assert len(join("words", threshold=0.9).compute()) == 0
