"""What joins did is recorded: reports, log lines, and nothing that showing a lazy result would plan."""

import logging

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.errors import PlanningError, UnsupportedFrameError
from dask_simjoin.graph import planner

EPS = 0.1


@pytest.fixture
def frame():
    x = np.random.default_rng(3).uniform(size=(120, 2))
    return pd.DataFrame(x, columns=["x", "y"]).assign(tags=[["a", "b"][k % 2 :] for k in range(120)])


@pytest.fixture
def lazy(frame):
    with dask.config.set(scheduler="synchronous", **{"dataframe.convert-string": False}):
        yield dd.from_pandas(frame, npartitions=3)


@pytest.fixture
def plans(monkeypatch):
    """The number of plans that were made, as a list of as many."""
    made, compute = [], planner.plan_join
    monkeypatch.setattr(planner, "plan_join", lambda *args: made.append(1) or compute(*args))
    return made


OF_ROWS = {
    "self_join": {"eps": EPS, "on": ["x", "y"], "blocksize": "1 kB", "partitioning": "entity"},
    "knn_join": {"k": 2, "on": ["x", "y"]},
    "set_self_join": {"on": "tags", "threshold": 0.5},
}
OTHERS = {
    "neighbor_counts": {"eps": EPS, "on": ["x", "y"]},
    "dbscan": {"eps": EPS, "on": ["x", "y"]},
    "k_distances": {"k": 2, "on": ["x", "y"]},
    "optics": {"max_eps": EPS, "on": ["x", "y"]},
    "drop_near_duplicates": {"eps": EPS, "on": ["x", "y"]},
    "set_neighbor_counts": {"on": "tags", "threshold": 0.5},
    "drop_set_near_duplicates": {"on": "tags", "threshold": 0.5},
}


@pytest.mark.parametrize("verb", [*OF_ROWS, *OTHERS])
def test_reports_tell_what_was_done(lazy, verb):
    result = getattr(lazy.simjoin, verb)(**(OF_ROWS | OTHERS)[verb])
    with pytest.raises(PlanningError, match="has not been planned in this process"):
        dask_simjoin.report(result)
    found = result.compute()
    told = dask_simjoin.report(result)
    assert told.done and told.seconds > 0 and told.planning > 0 and told.threads == 1
    if verb in OF_ROWS:
        assert told.rows == len(found) and told.bytes > 0
        assert told.partitions == result.npartitions
        assert result.simjoin.report() is told
    steps = told.to_frame()
    assert (steps["tasks"] >= 1).all() and (steps["longest"] <= steps["seconds"] + 1e-9).all()
    assert told.to_dict()["steps"].keys() == set(steps.index)
    text = repr(told)
    assert text.startswith("Report of ") and all(f"  {step} " in text for step in steps.index)
    html = told._repr_html_()
    assert html.count("<tr>") == len(text.splitlines()) - 1 and all(
        f">{step}<" in html for step in steps.index
    )


def test_numbers_are_told_of(lazy, frame):
    result = lazy.simjoin.count_pairs(EPS, on=["x", "y"])
    assert result.compute() > 0
    told = dask_simjoin.report(result)
    assert told.rows == frame.simjoin.count_pairs(EPS, on=["x", "y"]) and told.partitions == 1
    assert told.candidates >= told.rows


def test_a_part_of_a_result_is_not_all_of_it(lazy):
    result = lazy.simjoin.self_join(EPS, **{k: v for k, v in OF_ROWS["self_join"].items() if k != "eps"})
    first = result.partitions[0].compute()
    told = dask_simjoin.report(result)
    assert not told.done and told.partitions == 1 and told.rows == len(first)
    assert "not done" in repr(told) and f"1 of {result.npartitions}" in repr(told)
    everything = result[result["left"] >= 0].compute()  # what follows is fused, and counts no rows
    assert told.done and told.rows == len(everything)
    result.compute()
    assert told.rows == len(everything)  # the last run, and not both


def test_on_a_cluster_workers_tell_the_client(frame, client, caplog):
    with caplog.at_level(logging.INFO, "dask_simjoin"):
        lazy = dd.from_pandas(frame[["x", "y"]], npartitions=3)
        result = lazy.simjoin.self_join(0.17, blocksize="1 kB", partitioning="entity")
        found = result.compute()
        told = dask_simjoin.report(result)
    assert told.done and told.rows == len(found) and 1 <= told.threads <= 2
    assert "done self_join, eps=0.17" in caplog.text


def test_plain_frames_log_one_line(frame, caplog):
    with caplog.at_level(logging.INFO, "dask_simjoin"):
        found = frame.simjoin.self_join(EPS, on=["x", "y"])
        frame.simjoin.count_pairs(EPS, on=["x", "y"])
    first, second = [record.getMessage() for record in caplog.records if record.name == "dask_simjoin"]
    assert first.startswith(f"done self_join of a plain frame: {len(found):,} rows, in ")
    assert second.startswith("done count_pairs of a plain frame: in ")


def test_what_has_no_report(frame, lazy):
    for result in (frame.simjoin.self_join(EPS, on=["x", "y"]), lazy, 3):
        with pytest.raises(UnsupportedFrameError, match=r"contains no lazy join|Several joins"):
            dask_simjoin.report(result)
