"""A frame that lies in memory is passed over once, whatever is asked of it; others each
time.
"""

import gc
from dataclasses import replace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401
from dask_simjoin.errors import DuplicateIdError
from dask_simjoin.graph import planner
from dask_simjoin.graph.lazy_join import LazyJoin
from dask_simjoin.planning.partition import summarise
from dask_simjoin.request.requests import SelfJoinRequest

pytestmark = pytest.mark.usefixtures("in_this_thread")


@pytest.fixture
def passes(monkeypatch):
    """Numbers of the partitions that are summarised."""
    found = []

    def summarize(*args):
        found.append(args[1])
        return summarise(*args)

    steps = replace(planner.DISTANCE_STEPS, summarize=summarize, summarize_parts=None)
    monkeypatch.setattr(LazyJoin, "_steps", steps)
    monkeypatch.setattr(planner, "STATISTICS", planner.StatisticsCache())
    return found


def frame(seed, rows=300):
    random = np.random.default_rng(seed)
    made = pd.DataFrame(random.uniform(size=(rows, 3)), columns=list("xyz"))
    return made.assign(name=random.permutation(rows))


def held(kind, seed):
    lazy = dd.from_pandas(frame(seed), npartitions=3, sort=False)
    return lazy.persist() if kind == "persisted" else lazy


@pytest.mark.parametrize("kind", ["persisted", "from pandas"])
def test_held_rows_are_passed_over_once(passes, kind):
    ddf = held(kind, 1)
    on = {"on": ["x", "y"]}
    pairs = ddf.simjoin.self_join(0.05, **on)
    assert len(pairs) == len(frame(1).simjoin.self_join(0.05, **on))
    assert sorted(passes) == [0, 1, 2]
    assert len(ddf.simjoin.self_join(0.1, **on)) > len(pairs)
    assert len(passes) == 3
    ddf.simjoin.self_join(0.1, on=["y", "x"]).npartitions  # noqa: B018
    assert len(passes) == 6  # other coordinates
    assert ddf.simjoin.count_pairs(0.05, **on).compute() == len(pairs)
    labels = ddf.simjoin.dbscan(0.05, **on).compute()
    assert labels.tolist() == frame(1).simjoin.dbscan(0.05, **on).tolist()
    assert len(passes) <= 12
    before = len(passes)
    ddf.simjoin.count_pairs(0.06, **on).compute()
    ddf.simjoin.dbscan(0.06, **on).compute()
    ddf.simjoin.self_join(0.06, **on, keep="z").npartitions  # noqa: B018
    assert len(passes) == before + 3  # another column is kept


def test_what_is_made_anew_is_passed_over_anew(passes):
    for ddf in (
        held("persisted", 2).map_partitions(lambda part: part),
        dd.from_map(lambda n: frame(n), range(3), meta=frame(0).iloc[:0]).assign(
            name=1
        ),
    ):
        passes.clear()
        for eps in (0.01, 0.02):
            ddf.simjoin.count_pairs(eps, on=["x", "y"]).compute()
        assert len(passes) == 2 * ddf.npartitions


def test_a_run_is_named_once(passes, monkeypatch):
    pairs, named, of = (
        held("persisted", 7).simjoin.self_join(0.05, on=["x", "y"]),
        [],
        LazyJoin.named,
    )

    def watched(join):
        named.append(join)
        return of.fget(join)

    monkeypatch.setattr(LazyJoin, "named", property(watched))
    assert pairs.expr.plan is pairs.expr.plan and pairs.npartitions == 1
    assert len(named) == 1


def test_tables_of_a_join_are_drawn_from_apart(passes):
    ddf = held("persisted", 3)
    for eps in (0.01, 0.02):
        assert len(ddf.simjoin.join(ddf, eps, on=["x", "y"])) >= 300
    assert sorted(passes) == [0, 1, 2, *range(1 << 40, (1 << 40) + 3)]


def test_ids_are_compared_once_and_repeated_ones_refused_each_time(passes, monkeypatch):
    compared = []
    check = planner._check_across
    monkeypatch.setattr(
        planner, "_check_across", lambda *args: compared.append(args) or check(*args)
    )
    ddf = held("persisted", 4)
    for eps in (0.01, 0.02, 0.03):
        ddf.simjoin.self_join(eps, on=["x", "y"], id="name").npartitions  # noqa: B018
    assert len(passes) == 3
    assert len(compared) == 1
    again = dd.from_pandas(
        frame(4).assign(name=np.arange(300) % 299), npartitions=3, sort=False
    ).persist()
    for eps in (0.01, 0.02):
        with pytest.raises(DuplicateIdError, match="0 repeats in several partitions"):
            again.simjoin.self_join(eps, on=["x", "y"], id="name").npartitions  # noqa: B018


@pytest.mark.parametrize("kind", ["persisted", "from pandas"])
def test_nothing_outlives_its_frame(passes, kind):
    ddf = held(kind, 5)
    ddf.simjoin.count_pairs(0.01, on=["x", "y"]).compute()
    assert len(planner.STATISTICS) == 1
    del ddf
    gc.collect()
    assert len(planner.STATISTICS) == 0


def test_what_is_kept_is_bounded():
    kept = planner.StatisticsCache(most=40_000)
    frames = [dd.from_pandas(frame(n), npartitions=3, sort=False) for n in range(9)]
    spec = SelfJoinRequest(eps=0.1, on=["x", "y"]).spec(frame(0).iloc[:0])
    made = []

    def make(n):
        made.append(n)
        return [summarise(frame(n), 0, spec, True, 1)]

    for n in [*range(9), 8, 0]:
        place = kept.place(frames[n].expr, "request")
        found = kept.find(place)
        if found is None:
            found = planner.TableStatistics(make(n))
            kept.keep(place, found)
        assert found.summaries[0].source_rows == 300
    assert made == [*range(9), 0]
    assert 2 <= len(kept) == 40_000 // found.size < 9
