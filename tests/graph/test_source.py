"""Values of a graph are gathered from their own workers; frozen sources keep their
partitions.
"""

import os
from collections import Counter

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.dataframe.dask_expr._expr import Assign
from dask.tokenize import tokenize

from dask_simjoin.cluster import DBSCAN
from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.graph import source
from dask_simjoin.graph.dask_private import Task, TaskRef
from dask_simjoin.graph.source import Listed, freeze, gather, map_frozen
from tests.support.profiles import every_nth, in_turns


class Kept:
    """A value that knows in which processes it was."""

    def __init__(self, *processes):
        self.processes = *processes, os.getpid()

    def __reduce__(self):
        return Kept, self.processes


def test_values_do_not_meet_in_a_worker(client):
    keys = [("kept", n) for n in range(8)]
    found = gather({key: Task(key, Kept) for key in keys}, keys)
    assert len({one.processes[0] for one in found}) == 2  # made by both workers
    assert {one.processes[1:] for one in found} == {(os.getpid(),)}


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_only_what_is_asked_for_is_computed(scheduler):
    asked = []

    def add(n, *others):
        asked.append(n)
        return n + sum(others)

    graph = {n: Task(n, add, n, *([TaskRef(n - 1)] if n else [])) for n in range(4)}
    with dask.config.set(scheduler=scheduler):
        assert gather(graph, [2, 0, 2]) == [3, 0, 3]
        assert gather(graph, []) == []
    assert sorted(asked) == [0, 1, 2]


def test_what_is_listed_is_told_apart():
    items = [(0, (5, "a")), (1, (5, "b"))]
    listed = Listed(items)
    assert list(listed) == items and listed[1] == items[1] and len(listed) == 2
    assert tokenize(listed) == tokenize(Listed(items))
    others = [
        items[:1],
        [*items, items[0]],
        [(0, (5, "a")), (1, (6, "b"))],
        [(0, (5, "b")), (1, (5, "a"))],
    ]
    assert tokenize(listed) not in {tokenize(Listed(other)) for other in others}


@pytest.mark.parametrize("partitioning", ["entity", "spatial"])
@pytest.mark.parametrize("before", [2, 4])
def test_partitions_that_dask_changes_when_it_lowers_a_frame(partitioning, before):
    """Dask removes the shuffle into three partitions, because another one follows."""
    x = np.random.default_rng(0).random((40, 2))
    rows = pd.DataFrame({"x": x[:, 0], "y": x[:, 1], "key": range(40), "g": 1})
    lazy = (
        dd.from_pandas(rows, npartitions=before)
        .shuffle("g", npartitions=3)
        .drop_duplicates(subset=["key"])
    )
    # otherwise, this test checks nothing
    assert lazy.npartitions != lazy.optimize().npartitions
    source = freeze(lazy, ["x", "y", "key", "g"])
    assert map_frozen("sizes", len, source).npartitions == source.inner.npartitions
    options = {"on": ["x", "y"], "id": "key", "keep": ["g"]}
    found = lazy.simjoin.self_join(
        0.1, partitioning=partitioning, blocksize=400, **options
    )
    expected = rows.simjoin.self_join(0.1, **options)
    assert unordered(found.compute()) == unordered(expected)


def unordered(pairs):
    """Return each pair of a self-join as a set, because the shuffle changes the order
    of rows.
    """
    return Counter(map(frozenset, zip(pairs["left"], pairs["right"], strict=True)))


FRAME = pd.DataFrame({"x": np.arange(20.0), "y": 0.0, ("a", 1): 0.0})
SELECTIONS = [
    lambda frame: frame[lambda rows: rows["x"] > 9],
    lambda frame: frame[np.isfinite],
    lambda frame: frame[FRAME[["x"]] > 9],
    lambda frame: frame[lambda rows: ["x", "y"]],
    lambda frame: frame[lambda rows: rows["x"] > 9].assign(z=1),
    lambda frame: dd.concat([frame, frame[lambda rows: rows["x"] > 9]]),
]


@pytest.mark.parametrize("select", SELECTIONS)
def test_selections_that_dask_cannot_compute_are_refused(select):
    lazy = select(dd.from_pandas(FRAME, npartitions=2))
    for call in (
        lambda: lazy.simjoin.count_pairs(1, on=["x", "y"]),
        lambda: lazy.simjoin.knn_join(k=1, on="x"),
        lambda: DBSCAN(eps=1, on=["x"]).fit(lazy),
        lambda: FRAME.simjoin.join(lazy, 1, on="x"),
    ):
        with pytest.raises(UnsupportedFrameError, match=r"indexed by .* nor a mask"):
            call()


def test_an_index_refuses_such_selections(tmp_path):
    index = FRAME.simjoin.index(1, tmp_path / "index", on="x")
    lazy = dd.from_pandas(FRAME.set_index(FRAME.index + 20), npartitions=2)
    for call in (index.update, index.join):
        with pytest.raises(UnsupportedFrameError, match="indexed by"):
            call(lazy[lambda rows: rows["x"] > 9])


def test_other_selections_are_computed():
    lazy = dd.from_pandas(FRAME, npartitions=2)
    for some in (
        lazy[lazy["x"] > 9],
        lazy.loc[lambda rows: rows["x"] > 9],
        lazy[["x", ("a", 1)]].query("x > 9"),
        lazy[["x", "y"]].loc[10:],
    ):
        assert some.simjoin.count_pairs(1, on="x").compute() == 9


def first_rows(part):
    return part.iloc[:2]


CHOSEN = {
    "some after a repartition": lambda g: g.repartition(npartitions=7).partitions[1:4],
    "some of fewer": lambda g: g.repartition(npartitions=2).partitions[1:],
    "head": lambda g: g.repartition(npartitions=4).head(4, compute=False),
    "tail": lambda g: g.repartition(npartitions=4).tail(7, compute=False),
    "of each partition": lambda g: g.map_partitions(first_rows),
    "of columns of each partition": lambda g: g[["x", "y", "k"]].map_partitions(
        first_rows
    ),
    "filtered": lambda g: g[g["x"] > 0.2].map_partitions(first_rows),
    "twice": lambda g: g.repartition(npartitions=5).map_partitions(first_rows),
    "sample": lambda g: g.sample(frac=0.5, random_state=3),
    "labels": lambda g: g.loc[3:20],
    "beside": lambda g: g.assign(y=g["y"].map_partitions(abs)),
}


@in_turns(1, kind=every_nth(4, CHOSEN), files=[3, 6, 9])
def test_rows_that_depend_on_partitions_are_those_of_dask(kind, files, tmp_path):
    """Dask merges small files, the fewer columns it reads, the more of them."""
    frame = pd.DataFrame(np.random.default_rng(0).random((40, 3)), columns=list("xyz"))
    frame = frame.assign(w="abc" * 20, k=range(40))
    for n, rows in enumerate(np.array_split(np.arange(40), files)):
        frame.iloc[rows].to_parquet(tmp_path / f"{n}.parquet")
    chosen = CHOSEN[kind](dd.read_parquet(tmp_path, filesystem="arrow"))
    expected = chosen.compute(scheduler="sync")["k"].tolist()
    how = {"on": ["x", "y"]}
    joined = chosen.simjoin.self_join(9.0, id="k", include_self=True, **how)
    graph = chosen.simjoin.neighbor_graph(9.0, **how)
    nearest = chosen.simjoin.knn_join(k=1, id="k", **how)
    with dask.config.set(scheduler="sync"):
        assert set(joined.compute()["left"]) == set(expected)
        assert len(joined) == len(expected) * (len(expected) + 1) // 2
        assert graph.compute().shape == (len(expected),) * 2
        assert sorted(nearest.compute()["left"]) == sorted(expected)
        assert len(chosen.simjoin.neighbor_counts(0.1, **how).compute()) == len(
            expected
        )
        marked = chosen.assign(n=chosen.simjoin.neighbor_counts(0.1, **how))
        assert marked.compute()["k"].tolist() == expected


def test_rows_with_numbers_are_divided_as_their_numbers(tmp_path):
    """Dask reads one column to number the rows, and so would merge more files."""
    frame = pd.DataFrame(np.random.default_rng(0).random((40, 3)), columns=list("xyz"))
    for n, rows in enumerate(np.array_split(np.arange(40), 9)):
        frame.iloc[rows].to_parquet(tmp_path / f"{n}.parquet")
    numbered = dd.read_parquet(tmp_path, filesystem="fsspec").simjoin.with_row_id()
    for partitions in (5, 12):
        for base in (numbered, numbered.repartition(npartitions=partitions)):
            rows = base.map_partitions(abs)
            found = rows.simjoin.self_join(0.2, on=["x", "y"], id="row_id")
            want = frame.simjoin.self_join(0.2, on=["x", "y"])
            found = found.compute(scheduler="sync")
            assert set(zip(found["left"], found["right"], strict=True)) == set(
                zip(want["left"], want["right"], strict=True)
            )


SORTED = {
    "head": lambda g, how: g.sort_values("k").head(13, **how),
    "tail": lambda g, how: g.sort_values("k").tail(13, **how),
    "descending": lambda g, how: g.sort_values("k", ascending=False).head(13, **how),
    "by two columns": lambda g, how: g.sort_values(["w", "k"]).head(13, **how),
    "largest": lambda g, how: g.nlargest(13, "k"),
    "smallest": lambda g, how: g.nsmallest(13, "k"),
    "filtered": lambda g, how: g.nsmallest(20, "k").query("x > 2"),
    "assigned": lambda g, how: g.sort_values("k").assign(z=1).head(13, **how),
    "some columns": lambda g, how: g.sort_values("k").head(13, **how)[["x", "y", "w"]],
}


@pytest.mark.parametrize("kind", every_nth(4, SORTED))
def test_rows_chosen_by_sorting_are_joined_by_other_columns(kind):
    """Dask itself fails for `ddf.nlargest(13, "k")[["x"]]`."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.integers(0, 9, 40) * 1.0 for name in "xy"})
    frame = frame.assign(k=rng.permutation(40), w=["a b", "b c", "c a", "d e"] * 10)
    want = SORTED[kind](frame, {})
    some = SORTED[kind](dd.from_pandas(frame, npartitions=3), {"compute": False})
    how = {"on": ["x", "y"]}

    def pairs(made):
        return set(zip(made["left"], made["right"], strict=True))

    with dask.config.set(scheduler="sync"):
        assert pairs(some.simjoin.self_join(1.5, **how).compute()) == pairs(
            want.simjoin.self_join(1.5, **how)
        )
        assert pairs(
            some.simjoin.set_self_join("w", 0.9, tokenizer="words").compute()
        ) == pairs(want.simjoin.set_self_join("w", 0.9, tokenizer="words"))
        kept = some.simjoin.drop_near_duplicates(1.5, **how).compute()
        expected = want.simjoin.drop_near_duplicates(1.5, **how)
        assert kept.index.tolist() == expected.index.tolist()
        near = some.assign(n=some.simjoin.neighbor_counts(1.5, **how)).compute()
        assert near["n"].to_dict() == want.simjoin.neighbor_counts(1.5, **how).to_dict()


@pytest.mark.parametrize("labels", [slice(5, None), slice(5, 8), [5, 10]])
def test_partitions_of_labels_keep_their_values(labels):
    """Dask chooses partitions below `loc`, where their numbers are others."""
    frame = pd.DataFrame({"x": np.arange(12.0) ** 2, "y": 0.0})
    some = dd.from_pandas(frame, npartitions=4).loc[labels]
    counts = some.simjoin.neighbor_counts(20.0, on=["x", "y"])
    want = frame.loc[labels]
    want = want.assign(n=want.simjoin.neighbor_counts(20.0, on=["x", "y"]))
    for made in (some.assign(n=counts), some[counts >= 0].assign(n=counts)):
        parts = [
            made.partitions[n].compute(scheduler="sync")
            for n in range(made.npartitions)
        ]
        assert pd.concat(parts)["n"].to_dict() == want["n"].to_dict()


@pytest.mark.parametrize("memory", every_nth(4, [False, True]))
def test_groups_of_a_filtered_part_stay_beside_its_rows(memory, tmp_path):
    """Dask reads filtered rows from the files only where nothing else reads them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((80, 2)), columns=["x", "y"])
    frame = frame.assign(k=range(80), g=rng.integers(0, 5, 80), s=list("abcd") * 20)
    for n, rows in enumerate(np.array_split(np.arange(80), 9)):
        part = frame.iloc[rows].reset_index(drop=True)
        part.to_parquet(tmp_path / f"{n}.parquet")
    names = pd.DataFrame({"g": range(5), "more": range(5)})
    if memory:
        halves = frame[:40], frame[40:].reset_index(drop=True)
        base = dd.concat(
            [dd.from_pandas(one, npartitions=2, sort=False) for one in halves]
        )
    else:
        base = dd.read_parquet(tmp_path, filesystem="arrow").merge(names, on="g")
    base = base.repartition(npartitions=11)
    left, right = (
        some.map_partitions(abs_of_x, meta=some._meta)
        for some in (base, base[base.g > 1])
    )
    how = {"on": ["x", "y"], "by": "s", "left_id": "k", "right_id": "k"}
    with dask.config.set(scheduler="sync"):
        found = left.simjoin.join(right, 0.3, **how).compute()
        plain = [some.compute().reset_index(drop=True) for some in (left, right)]
    want = plain[0].simjoin.join(plain[1], 0.3, **how)
    pairs = [
        set(zip(some["left"], some["right"], strict=True)) for some in (found, want)
    ]
    assert pairs[0] == pairs[1] and len(pairs[0]) > 100


def abs_of_x(part):
    return part.assign(x=part["x"].abs())


def test_inputs_of_a_step_need_the_same_divisions():
    """Dask merges files by the columns that it reads. So a frame and a column that is
    added to it may have as many partitions, with other rows in each.
    """
    frame = pd.DataFrame({"x": range(10)})
    one, other = (
        dd.from_pandas(frame, npartitions=1).repartition(divisions=ends)
        for ends in ([0, 5, 9], [0, 3, 9])
    )
    steps = [Assign(one.expr, "y", each["x"].expr) for each in (one, other)]
    assert [source._has_equal_partitions(step) for step in steps] == [True, False]
