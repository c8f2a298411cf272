"""Reports and log lines record what joins did."""

import itertools
import logging
import time

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin import methods
from dask_simjoin.catalog import METHODS
from dask_simjoin.engine.base import ABOUT
from dask_simjoin.errors import (
    ColumnError,
    OptionError,
    OptionTypeError,
    PlanningError,
    UnitsWarning,
    UnsupportedFrameError,
)
from dask_simjoin.papers import cluster_index
from dask_simjoin.papers.grid_batches import warp_efficiency
from dask_simjoin.reports.run import RunReport, StepRecord
from tests.support.frames import lay
from tests.support.oracle import brute_force
from tests.support.points import frame_of
from tests.support.profiles import everything, in_turns

EPS = 0.1


OF_ROWS = {
    "self_join": {
        "eps": EPS,
        "on": ["x", "y"],
        "blocksize": "1 kB",
        "partitioning": "entity",
    },
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
def test_reports_tell_what_was_done(lazy_tagged, verb):
    result = getattr(lazy_tagged.simjoin, verb)(**(OF_ROWS | OTHERS)[verb])
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
    assert (steps["tasks"] >= 1).all() and (
        steps["longest"] <= steps["seconds"] + 1e-9
    ).all()
    assert told.to_dict()["steps"].keys() == set(steps.index)
    text = repr(told)
    assert text.startswith("Report of ") and all(
        f"  {step} " in text for step in steps.index
    )
    html = told._repr_html_()
    assert html.count("<tr>") == len(text.splitlines()) - 1 and all(
        f">{step}<" in html for step in steps.index
    )


def test_numbers_are_told_of(lazy_tagged, tagged):
    result = lazy_tagged.simjoin.count_pairs(EPS, on=["x", "y"])
    assert result.compute() > 0
    told = dask_simjoin.report(result)
    assert (
        told.rows == tagged.simjoin.count_pairs(EPS, on=["x", "y"])
        and told.partitions == 1
    )
    assert told.candidates >= told.rows


def test_a_part_of_a_result_is_not_all_of_it(lazy_tagged):
    result = lazy_tagged.simjoin.self_join(**OF_ROWS["self_join"])
    first = result.partitions[0].compute()
    told = dask_simjoin.report(result)
    assert not told.done and told.partitions == 1 and told.rows == len(first)
    assert "not done" in repr(told) and f"1 of {result.npartitions}" in repr(told)
    # what follows is fused, and counts no rows
    everything = result[result["left"] >= 0].compute()
    assert told.done and told.rows == len(everything)
    result.compute()
    assert told.rows == len(everything)  # the last run, and not both


def test_on_a_cluster_workers_tell_the_client(tagged, client, caplog):
    with caplog.at_level(logging.INFO, "dask_simjoin"):
        lazy = dd.from_pandas(tagged[["x", "y"]], npartitions=3)
        result = lazy.simjoin.self_join(0.17, blocksize="1 kB", partitioning="entity")
        found = result.compute()
        told = dask_simjoin.report(result)
    assert told.done and told.rows == len(found) and 1 <= told.threads <= 2
    assert "done self_join, eps=0.17" in caplog.text


def test_plain_frames_log_one_line(tagged, caplog):
    with caplog.at_level(logging.INFO, "dask_simjoin"):
        found = tagged.simjoin.self_join(EPS, on=["x", "y"])
        tagged.simjoin.count_pairs(EPS, on=["x", "y"])
    first, second = [
        record.getMessage()
        for record in caplog.records
        if record.name == "dask_simjoin"
    ]
    assert first.startswith(
        f"done self_join of a plain frame: {len(found):,} rows, in "
    )
    assert second.startswith("done count_pairs of a plain frame: in ")


def test_what_has_no_report(lazy_tagged):
    number = 987_653  # no other join has so many rows
    for result in (pd.DataFrame(index=range(number)), lazy_tagged, number):
        with pytest.raises(
            UnsupportedFrameError, match=r"contains no lazy join|Several joins"
        ):
            dask_simjoin.report(result)


def test_records_of_tasks_are_added_up_once():
    """A task that ran again has one record; the first task after all are done begins a
    new run.
    """
    report = RunReport("self_join", None, 0.1)
    task = StepRecord("pairs", "a", 2, 10.0, 12.0, 3, "thread 1")
    report.add(task)
    report.add(task._replace(begin=11.0, end=13.0))
    assert (report.partitions, report.rows, report.done, report.seconds) == (
        1,
        3,
        False,
        2.0,
    )
    report.add(task._replace(key="b", begin=10.5, rows=4, thread="thread 2"))
    assert (report.partitions, report.rows, report.done, report.threads) == (
        2,
        7,
        True,
        2,
    )
    assert report.seconds == 2.5
    report.add(task._replace(rows=5))
    assert (report.partitions, report.rows, report.done) == (1, 5, False)
    report.begin()
    report.add(task._replace(key="b", rows=6))
    assert (report.partitions, report.rows, report.done) == (1, 6, False)


X = np.random.default_rng(0).exponential(2.5, (1500, 2))
PAIRS = len(brute_force(X, 0.3))


@in_turns(
    1,
    lambda method, metric: (
        everything() or metric == "euclidean" or method in ("sweep", "tiles")
    ),
    method=[
        "sweep",
        "tiles",
        "grid",
        "nested_loop",
        "zorder",
        "kmeans",
        methods.Grid.plain(),
        methods.Grid.gpu_join("auto"),
    ],
    metric=["euclidean", "manhattan"],
)
def test_every_method_tells_what_it_finds(method, metric, how):
    found = lay(frame_of(X), how).simjoin.profile(0.3, metric=metric, method=method)
    pairs = len(brute_force(X, 0.3, metric))
    numbers = found.numbers
    assert found.rows == 1500 and numbers["pairs"] == pairs
    assert numbers["selectivity"] == 2 * pairs / 1500
    assert pairs <= numbers["candidates"] < 1500 * 1500
    assert (
        list(found.seconds) == ["layout", "index", "join"]
        and min(found.seconds.values()) > 0
    )
    assert set(numbers) <= set(ABOUT)
    assert found.method == (method if isinstance(method, str) else "grid")


def test_seconds_have_what_a_method_does_before_it_builds(monkeypatch):
    """Clusters are made while a join is planned: their seconds are the method's."""
    lloyd, slept = cluster_index.lloyd, 0.2

    def slow(*given):
        time.sleep(slept)
        return lloyd(*given)

    frame = frame_of(X)
    frame.simjoin.profile(0.3, method="kmeans")
    monkeypatch.setattr(cluster_index, "lloyd", slow)
    assert (
        frame.simjoin.profile(0.3, method=methods.KMeans(clusters=5)).seconds["layout"]
        >= slept
    )
    assert frame.simjoin.profile(0.3).seconds["layout"] < slept
    near = frame.simjoin.profile(k=3, method="zorder").seconds
    assert list(near) == ["layout", "index", "search"] and near["layout"] > 0


def test_windows_and_boxes_are_counted_as_numpy_does():
    x = X[:700]
    sweep = frame_of(x).simjoin.profile(0.3, method="sweep").numbers
    swept = int(x.var(axis=0).argmax())
    width = 0.3 * (1 + 2.0**-18)
    row = np.floor((x[:, 1 - swept] - x[:, 1 - swept].min()) / width)
    near = (np.abs(row[:, None] - row) <= 1) & (
        np.abs(x[:, None, swept] - x[:, swept]) <= 0.3
    )
    assert sweep["candidates"] == np.count_nonzero(np.triu(near, 1))
    tiles = frame_of(x).simjoin.profile(0.3, method="tiles").numbers
    assert sweep["pairs"] == tiles["pairs"] == len(brute_force(x, 0.3))
    number = -(-700 // 64)
    assert number <= tiles["tile_pairs"] <= number * (number + 1) / 2
    assert tiles["near_queries"] * 64 >= tiles["candidates"] > tiles["pairs"]
    with pytest.warns(UnitsWarning):
        every = frame_of(x).simjoin.profile(100.0, method="tiles").numbers
    assert every["tile_pairs"] == number * (number + 1) / 2
    assert every["candidates"] == every["pairs"] == 700 * 699 / 2


def test_half_patterns_compare_half_as_much():
    frame = frame_of(X)
    full, lid = (
        frame.simjoin.profile(0.3, method=methods.Grid(pattern=one)).numbers
        for one in ("full", "lid")
    )
    assert 0.5 < lid["comparisons"] / full["comparisons"] < 0.65
    assert (
        full["compare_ops"] == 2 * full["comparisons"] and full["cells"] == lid["cells"]
    )
    given, queue = (
        frame.simjoin.profile(0.3, method=methods.Grid(order=order, threads=1)).numbers
        for order in ("given", "queue")
    )
    assert (
        given["warp_efficiency_model"] < 0.6 < 0.9 < queue["warp_efficiency_model"] <= 1
    )


def test_the_model_of_warps():
    """A warp of 32 lanes waits for its slowest query; with 16 threads a query it has
    two.
    """
    lanes, active = warp_efficiency(np.array([1] * 31 + [9] + [5] * 16), 1)
    assert (lanes, active) == (32 * 9 + 32 * 5, 31 + 9 + 16 * 5)
    assert warp_efficiency(np.array([3, 1, 2]), 16) == (2 * 3 + 2 * 2, 6)
    work = np.sort(np.random.default_rng(0).exponential(9, 4096))[::-1]
    shares = [
        active / lanes
        for lanes, active in (warp_efficiency(work, t) for t in (1, 8, 32))
    ]
    assert all(a <= b for a, b in itertools.pairwise(shares)) and shares[-1] == 1


def test_it_prints_and_draws():
    pytest.importorskip("matplotlib").use("agg")
    found = frame_of(X).simjoin.profile(0.3, method="grid")
    text = repr(found)
    assert text.startswith("Profile of a self-join\n  engine") and f"{PAIRS:,}" in text
    assert "warp efficiency model" in text and "%" in text
    table = found.to_frame()
    assert (
        table.loc["pairs", "value"] == PAIRS and table.loc["seconds: join", "value"] > 0
    )
    assert isinstance(table, pd.DataFrame) and table["about"].str.len().min() > 3
    assert f">{PAIRS:,}<" in found.svg() and found.svg() in found._repr_html_()
    assert (
        found.to_dict()["numbers"] == found.numbers
        and found.to_dict()["seconds"] == found.seconds
    )
    ax = found.plot()
    assert next(iter(ax.patches)).get_width() == PAIRS
    assert found.plot(ax) is ax
    ax.figure.clf()


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_few_rows(rows, method):
    found = frame_of(np.zeros((rows, 2))).simjoin.profile(
        1.0, on=["c0", "c1"], method=method
    )
    assert found.numbers["pairs"] == rows // 2 and found.rows == rows
    assert repr(found) and found.svg()


def test_options_are_checked():
    frame = frame_of(X)
    with pytest.raises(OptionError, match="method='cells' is not allowed"):
        frame.simjoin.profile(0.3, method="cells")
    with pytest.raises(OptionTypeError, match=r"profile\(\) has no option 'blocksize'"):
        dask_simjoin.profile(frame, 0.3, blocksize="1 MB")
    with pytest.raises(ColumnError):
        frame.simjoin.profile(0.3, on="nothing")
