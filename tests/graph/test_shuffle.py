"""Rows that workers hold are sent to regions by one task of each thread: what is found
is the same.
"""

from collections import Counter

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from distributed.protocol import deserialize, serialize

from dask_simjoin.cluster.algorithms.dbscan import (
    ClusterNumbering,
    ComponentClusters,
    StartingClusters,
)
from dask_simjoin.cluster.algorithms.duplicates import Candidates, GroupRows
from dask_simjoin.cluster.algorithms.edges import PlaceCounts
from dask_simjoin.cluster.algorithms.halo_dbscan import (
    ChunkClusters,
    GlobalNumbers,
    SharedRows,
)
from dask_simjoin.cluster.expressions import components  # noqa: F401  (registers the tuples that steps send)
from dask_simjoin.errors import SourceChangedError
from dask_simjoin.graph import row_cache
from dask_simjoin.graph.shuffle import dealt_out, runs_of
from dask_simjoin.planning.entity_chunks import BY_WORKER
from dask_simjoin.tasks import by_worker
from dask_simjoin.tasks.neighbor_rows import FoundRows
from tests.support.frames import split
from tests.support.points import frame_of
from tests.support.profiles import every_nth, in_turns
from tests.support.task_stream import tasks_of

EPS = 0.03
SPATIAL = {"partitioning": "spatial", "blocksize": "9 kB"}

VERBS = {
    "pairs": lambda a, b, **how: a.simjoin.self_join(EPS, on=["c0", "c1"], **how),
    "columns": lambda a, b, **how: a.simjoin.self_join(
        EPS,
        on=["c0", "c1"],
        keep=["name", "more"],
        return_distance=True,
        pairs="both",
        **how,
    ),
    "names": lambda a, b, **how: a.simjoin.self_join(
        EPS, on=["c0", "c1"], id="name", **how
    ),
    "missing": lambda a, b, **how: a.simjoin.self_join(
        EPS, on=["c0", "gaps"], dropna=True, **how
    ),
    "radius": lambda a, b, **how: a.simjoin.self_join(
        eps="reach", pairs="both", on=["c0", "c1"], **how
    ),
    "two": lambda a, b, **how: a.simjoin.join(b, EPS, on=["c0", "c1"], **how),
    "left": lambda a, b, **how: a.simjoin.join(
        b, EPS, on=["c0", "c1"], how="left", **how
    ),
}


@pytest.fixture
def frame():
    rng = np.random.default_rng(5)
    frame = frame_of(rng.uniform(size=(1200, 2))).assign(
        more=0.5, reach=rng.uniform(0, 0.04, 1200)
    )
    gaps = frame["c1"].where(rng.uniform(size=1200) < 0.8)
    return frame.assign(name=[f"n{k}" for k in range(1200)], gaps=gaps)


def held_of(frame):
    """Held by two workers in turns, in partitions that differ in size, one of which is
    empty.
    """
    return split(frame, (100, 250, 250, 500, 800, 1100)).persist()


@pytest.fixture
def pack(client):
    """Let workers pack another number of rows at once."""
    yield lambda rows: client.run(pack_at_once, rows)
    client.run(pack_at_once, by_worker.BATCH)


def pack_at_once(rows):
    by_worker.BATCH = rows


@in_turns(1, at_once=[1, 200, 1 << 19], verb=every_nth(4, VERBS))
def test_pairs_of_held_rows(frame, pack, verb, at_once):
    """Partitions are packed one by one, a few at once, and all at once."""
    pack(at_once)
    other = frame.sample(frac=0.5, random_state=1).reset_index(drop=True)
    want = VERBS[verb](frame, other)
    found = VERBS[verb](held_of(frame), held_of(other), **SPATIAL)
    assert (
        found.expr.plan.chunks.method == BY_WORKER and len(found.expr.plan.chunks) >= 3
    )
    columns = list(want.columns)
    for some in (found := found.compute(), want):
        some.sort_values(columns, inplace=True, ignore_index=True)
    pd.testing.assert_frame_equal(found, want)


def test_one_task_of_each_worker_packs_what_it_holds(frame, client):
    held = held_of(frame)[["c0", "c1"]]
    with tasks_of(client) as ran:
        count = held.simjoin.count_pairs(EPS, **SPATIAL)
        assert count.compute() == frame[["c0", "c1"]].simjoin.count_pairs(EPS)
    tasks = Counter(key_split(task["key"]) for task in ran)
    assert tasks["simjoin_send"] <= 2 and not [
        name for name in tasks if "shuffle" in name
    ]


def test_rows_that_are_not_held_are_shuffled(frame, client, monkeypatch):
    # workers do not keep rows that planning reads
    monkeypatch.setattr(row_cache, "CACHE_SHARE", 10**12)
    rows = split(frame, (300, 700))
    count = rows.simjoin.count_pairs(EPS, on=["c0", "c1"], **SPATIAL)
    assert count.expr.plan.chunks.method != BY_WORKER
    held = rows.persist()
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        asked = held.simjoin.count_pairs(EPS, on=["c0", "c1"], **SPATIAL)
        assert asked.expr.plan.chunks.method == "tasks"
    # which go back to where rows lie
    counts = held.simjoin.neighbor_counts(EPS, on=["c0", "c1"], **SPATIAL)
    assert counts.expr.plan.chunks.method != BY_WORKER
    want = frame.simjoin.neighbor_counts(EPS, on=["c0", "c1"])
    assert counts.compute().tolist() == want.tolist()
    assert (
        asked.compute()
        == count.compute()
        == frame.simjoin.count_pairs(EPS, on=["c0", "c1"])
    )


def test_rows_that_changed_are_refused(client):
    frame = pd.DataFrame(
        np.random.default_rng(0).uniform(size=(400, 2)), columns=["c0", "c1"]
    )
    count = (
        dd.from_pandas(frame, npartitions=4)
        .persist()
        .simjoin.count_pairs(EPS, **SPATIAL)
    )
    wrong = tuple(
        tuple((rows + 1, box) for rows, box in own)
        for own in count.expr.plan.tables.sources
    )
    object.__setattr__(count.expr.plan.tables, "sources", wrong)
    with pytest.raises(SourceChangedError, match="had 101 rows"):
        count.compute()


def test_partitions_are_dealt_out():
    """Each to a worker that holds it, and what several or none hold to who has the
    fewest.
    """
    holders = [["a"], ["b"], ["a", "b"], ["a"], [], ["gone"], ["a"]]
    assert dealt_out(holders, {"a": 1, "b": 1}) == [(0, [0, 3, 5, 6]), (1, [1, 2, 4])]
    several = [(0, [0, 3, 6]), (1, [1, 2]), (2, [4, 5])]
    assert dealt_out(holders, {"a": 2, "b": 1, "c": 1}) == several
    assert dealt_out([["b"]] * 3, {"b": 1, "a": 1}) == [(1, [0, 1, 2])]


def test_runs_of_partitions():
    assert runs_of([]) == []
    assert runs_of([3, 3, 1, 3]) == [(0, 2), (2, 3), (3, 4)]
    assert runs_of([0] * 17 + [1]) == [(0, 8), (8, 16), (16, 17), (17, 18)]


X = np.arange(1000)
BEST = Candidates(X, X + 1, X[:0])
TOLD = [
    PlaceCounts(7, X.astype(np.uint8)),
    ComponentClusters(X, X[::2], X[:0], X + 5),
    StartingClusters(3, X, X),
    StartingClusters(X, X, X),
    ClusterNumbering([0, 3, 9], X, X, X),
    GroupRows(X, X, BEST),
    ChunkClusters(X > 3, X, X, X[:0], X[::2]),
    SharedRows(X, X[:0], X, X),
    GlobalNumbers(X, [X, X[:0]]),
    FoundRows(
        X,
        frame_of(np.zeros((1000, 1))).index,
        {"a": X, "b": np.array(["x"] * 1000, object)},
    ),
]


def same(one, other):
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return np.array_equal(one, other) and getattr(one, "dtype", None) == getattr(
        other, "dtype", None
    )


@pytest.mark.parametrize("family", [["dask", "pickle"], ["cuda", "dask", "pickle"]])
@pytest.mark.parametrize("value", TOLD, ids=lambda value: type(value).__name__)
def test_they_arrive_as_they_left(value, family):
    header, frames = serialize(
        (value, {"kept": value}), serializers=family, on_error="raise"
    )
    header, frames = serialize(value, serializers=family, on_error="raise")
    assert same(value, deserialize(header, [bytes(frame) for frame in frames]))


@pytest.mark.parametrize("family", [["dask", "pickle"], ["cuda", "dask", "pickle"]])
def test_arrays_are_not_pickled(family):
    """What a GPU holds is copied to the host to be pickled; here the array's own memory
    is what is sent.
    """
    counts = np.arange(100_000, dtype=np.uint16)
    header, frames = serialize(
        PlaceCounts(0, counts), serializers=family, on_error="raise"
    )
    assert header["serializer"] == family[0]
    assert any(
        np.shares_memory(np.frombuffer(frame, np.uint8), counts) for frame in frames
    )
