"""Runs are recorded: what of them is kept, what is logged, and what is made only when
somebody looks.
"""

import gc
import logging
import weakref
from dataclasses import replace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.graph.lazy_join import LazyJoin
from dask_simjoin.graph.records import Runs
from dask_simjoin.reports.facts import BlockReport
from dask_simjoin.sizes import KEPT

EPS = 0.1


@pytest.fixture
def frame():
    return pd.DataFrame(
        np.random.default_rng(3).uniform(size=(120, 2)), columns=["x", "y"]
    )


@pytest.fixture
def lazy(frame):
    with dask.config.set(scheduler="synchronous"):
        yield dd.from_pandas(frame, npartitions=3)


@pytest.fixture
def looks(monkeypatch, caplog):
    """Attributes of plans' reports that were looked at; log lines look, too."""
    caplog.set_level("WARNING", "dask_simjoin")
    found = []

    def look(report, name):
        found.append(name)
        return object.__getattribute__(report, name)

    monkeypatch.setattr(BlockReport, "__getattribute__", look, raising=False)
    return found


@pytest.mark.parametrize("options", [{"eps": EPS}, {"k": 2}])
def test_reports_are_made_when_somebody_looks(lazy, looks, options):
    verb = "knn_join" if "k" in options else "self_join"
    result = getattr(lazy.simjoin, verb)(**options)
    result.compute()
    assert not looks
    told = dask_simjoin.report(result)
    repr(told)
    assert "plan" in looks
    told.to_dict()
    assert "to_frame" in looks


def test_records_keep_no_frame():
    frame = pd.DataFrame(
        np.random.default_rng(5).uniform(size=(100, 2)), columns=["x", "y"]
    )
    lazy = dd.from_pandas(frame, npartitions=2)
    result = lazy.simjoin.self_join(EPS)
    result.compute(scheduler="synchronous")
    told, source = dask_simjoin.report(result), weakref.ref(lazy.expr)
    assert told.rows is not None
    del lazy, result, frame
    gc.collect()
    assert source() is None
    assert repr(told).startswith("Report of self_join")


def test_old_runs_are_forgotten(lazy):
    runs, plan = Runs(), lazy.simjoin.plan(EPS, on=["x", "y"])
    join = next(
        lazy.simjoin.self_join(EPS, on=["x", "y"]).expr.find_operations(LazyJoin)
    )
    for n in range(KEPT + 1):
        named = type(join.named)(str(n), "a join", join.named.report)
        runs.planned(named, plan, 0.0)
    assert runs.find("0") is None and runs.find("1") is not None
    assert repr(runs.find("1")).endswith("not run here yet")


def test_log_lines(lazy, caplog):
    result = lazy.simjoin.self_join(0.13, on=["x", "y"])
    with caplog.at_level(logging.INFO, "dask_simjoin"):
        found = result.compute()
    planned, done = [
        record.getMessage()
        for record in caplog.records
        if record.name == "dask_simjoin"
    ]
    assert planned.startswith(
        "planned self_join, eps=0.13: 120 rows, 1 block pairs, about "
    )
    assert done.startswith(f"done self_join, eps=0.13: {len(found):,} rows, ")


def test_a_cluster_that_is_expected_to_be_slower_is_logged(lazy, caplog):
    join = next(
        lazy.simjoin.self_join(EPS, on=["x", "y"]).expr.find_operations(LazyJoin)
    )
    report = lazy.simjoin.plan(EPS, on=["x", "y"])
    for seconds in (None, 0.5 * report.seconds, 2 * report.seconds):
        plan = replace(report, plan=replace(report.plan, one_process=seconds))
        with caplog.at_level(logging.INFO, "dask_simjoin"):
            Runs().planned(join.named, plan, 0.0)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    assert lines[2].startswith(f"planned {join.named.title}: about ")
    assert lines[2].endswith(" s without the cluster, which is faster here")
