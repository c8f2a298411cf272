"""Frames whose partitions are held: no tasks stand between them and what is read of
them.
"""

import time
from collections import Counter

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.diagnostics import Profiler
from dask.utils import key_split

from dask_simjoin.errors import PlanningError, SourceChangedError
from dask_simjoin.graph.dask_private import Expr
from dask_simjoin.graph.source import (
    FilterBarrier,
    FrozenSource,
    is_held,
    optimise_beside,
)
from tests.support.frames import split
from tests.support.gates import PATIENCE
from tests.support.oracle import as_set, brute_force
from tests.support.points import frame_of
from tests.support.profiles import in_turns
from tests.support.task_stream import tasks_of
from tests.support.threads import started

EPS = 0.03


@pytest.fixture
def x():
    return np.random.default_rng(5).uniform(size=(1200, 2))


@in_turns(
    1,
    columns=[["c0", "c1", "name"], ["name", "c0", "more", "c1"]],
    options=[{}, {"keep": "name", "return_distance": True}, {"id": "name"}],
)
def test_a_cluster_reads_chunks_where_they_are_indexed(x, client, options, columns):
    """Two chunks of two partitions each, or of other columns that must be left out
    first.
    """
    frame = frame_of(x).assign(name=[f"n{k}" for k in range(len(x))], more=0.5)[columns]
    names = dict(zip(frame["name"], range(len(x)), strict=True))
    held = split(frame, (300, 600, 900)).persist()
    with tasks_of(client) as ran:
        pairs = held.simjoin.self_join(
            EPS, on=["c0", "c1"], partitioning="entity", blocksize=600 * 30, **options
        )
        found = pairs.compute()
    assert pairs.expr.plan.partitioning == "entity"
    if "id" in options:
        found = found.assign(
            left=found["left"].map(names), right=found["right"].map(names)
        )
    assert as_set(found) == brute_force(x, EPS)
    tasks = Counter(key_split(task["key"]) for task in ran)
    assert tasks["simjoin_index"] == len(pairs.expr.plan.chunks) > 1


def test_no_points_travel_before_they_are_indexed(x, client):
    held = split(frame_of(x), (300, 600, 900)).persist()
    with tasks_of(client) as ran:
        count = held.simjoin.count_pairs(EPS, partitioning="entity", blocksize=600 * 24)
        assert count.compute() == len(brute_force(x, EPS))
    tasks = Counter(key_split(task["key"]) for task in ran)
    assert tasks["simjoin_index"] == 2 and "simjoin_points" not in tasks
    assert len(held.simjoin.dbscan(0.05, 4, partitioning="entity").compute()) == len(x)


def test_partitions_that_are_cut_are_read_once(x, client):
    held = split(frame_of(x), (900,)).persist()
    with tasks_of(client) as ran:
        count = held.simjoin.count_pairs(EPS, partitioning="entity", blocksize=400 * 24)
        assert count.compute() == len(brute_force(x, EPS))
    tasks = Counter(key_split(task["key"]) for task in ran)
    assert tasks["simjoin_points"] == 2 and tasks["simjoin_index"] > 2


def test_rows_that_changed_are_refused_where_they_are_read(client):
    """What is held is not what was planned: the future was made anew, from a source
    that changed.
    """
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(size=(400, 2)), columns=["c0", "c1"])
    held = dd.from_pandas(frame, npartitions=4, sort=False).persist()
    count = held.simjoin.count_pairs(EPS, partitioning="entity", blocksize=200 * 24)
    sources = count.expr.plan.tables.sources
    wrong = tuple(tuple((rows + 1, box) for rows, box in own) for own in sources)
    object.__setattr__(count.expr.plan.tables, "sources", wrong)
    with pytest.raises(SourceChangedError, match="had 101 rows"):
        count.compute()


def test_held_partitions_are_no_tasks(x):
    with dask.config.set(scheduler="threads"):
        held = split(frame_of(x), (300, 300, 700)).persist()
        for partitioning in ("entity", "spatial"):
            with Profiler() as trace:
                pairs = held.simjoin.self_join(EPS, partitioning=partitioning)
                assert as_set(pairs.compute()) == brute_force(x, EPS)
            assert not [
                task.key for task in trace.results if task.key in held.__dask_keys__()
            ]
            assert not [
                task.key for task in trace.results if "pandas" in key_split(task.key)
            ]


def test_held_rows_do_not_get_another_name(x):
    """Dask makes it of all their numbers; what is planned beside them stands on the
    same expression.
    """
    with dask.config.set(scheduler="threads"):
        held = split(frame_of(x), (300, 300, 700)).persist()
        assert is_held(held.expr)
        assert any(node is held.expr for node in optimise_beside(held.expr).walk())
        assert any(
            node is held.expr for node in optimise_beside(held.assign(k=1).expr).walk()
        )
        some = held[held.c0 > 0.5]
        assert any(
            isinstance(node, FilterBarrier)
            for node in optimise_beside(some.expr).walk()
        )


class Patient(Expr):
    """Whose divisions are told once those of another expression are, in another thread."""

    _parameters = ["other"]

    def _divisions(self):
        ask = started(lambda: self.operand("other").inner.divisions)
        return ask.result(PATIENCE)


def test_planning_holds_up_no_other_frame(x):
    """A scheduler in this process may ask for divisions while a join is planned to tell
    its own.
    """
    other = split(frame_of(x), (300,))
    assert Patient(FrozenSource(other.expr)).divisions == other.divisions


def test_rows_on_a_cluster_are_not_joined_without_it(x, client):
    """Dask reports a missing dependency."""
    held = split(frame_of(x), (500,)).persist()
    refused = pytest.raises(PlanningError, match="in the memory of a cluster")
    with dask.config.set(scheduler="threads"), refused:
        held.simjoin.count_pairs(EPS).compute()
    assert held.simjoin.count_pairs(EPS).compute() == len(brute_force(x, EPS))


def test_two_joins_computed_together_read_a_source_once(x, client, tmp_path):
    frame = frame_of(x)

    def read(part):
        (tmp_path / f"{part}-{time.time_ns()}").touch()
        return frame.iloc[part * 400 : part * 400 + 400]

    lazy = dd.from_map(read, range(3), meta=frame.iloc[:0])
    number, labels = dask.compute(
        lazy.simjoin.count_pairs(EPS), lazy.simjoin.dbscan(EPS, 4)
    )
    assert number == len(brute_force(x, EPS))
    assert labels.tolist() == frame.simjoin.dbscan(EPS, 4).tolist()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_task_can_join(x, client):
    def join(frame):
        lazy = dd.from_pandas(frame, npartitions=3, sort=False)
        return int(lazy.simjoin.count_pairs(EPS).compute())

    assert client.submit(join, frame_of(x)).result() == len(brute_force(x, EPS))
