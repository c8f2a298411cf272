"""Reports and log lines record what joins did."""

import logging

import dask.dataframe as dd
import pytest

import dask_simjoin
from dask_simjoin.errors import PlanningError, UnsupportedFrameError
from dask_simjoin.reports.run import RunReport, StepRecord

EPS = 0.1


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
    assert (steps["tasks"] >= 1).all() and (steps["longest"] <= steps["seconds"] + 1e-9).all()
    assert told.to_dict()["steps"].keys() == set(steps.index)
    text = repr(told)
    assert text.startswith("Report of ") and all(f"  {step} " in text for step in steps.index)
    html = told._repr_html_()
    assert html.count("<tr>") == len(text.splitlines()) - 1 and all(
        f">{step}<" in html for step in steps.index
    )


def test_numbers_are_told_of(lazy_tagged, tagged):
    result = lazy_tagged.simjoin.count_pairs(EPS, on=["x", "y"])
    assert result.compute() > 0
    told = dask_simjoin.report(result)
    assert told.rows == tagged.simjoin.count_pairs(EPS, on=["x", "y"]) and told.partitions == 1
    assert told.candidates >= told.rows


def test_a_part_of_a_result_is_not_all_of_it(lazy_tagged):
    result = lazy_tagged.simjoin.self_join(**OF_ROWS["self_join"])
    first = result.partitions[0].compute()
    told = dask_simjoin.report(result)
    assert not told.done and told.partitions == 1 and told.rows == len(first)
    assert "not done" in repr(told) and f"1 of {result.npartitions}" in repr(told)
    everything = result[result["left"] >= 0].compute()  # what follows is fused, and counts no rows
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
    first, second = [record.getMessage() for record in caplog.records if record.name == "dask_simjoin"]
    assert first.startswith(f"done self_join of a plain frame: {len(found):,} rows, in ")
    assert second.startswith("done count_pairs of a plain frame: in ")


def test_what_has_no_report(tagged, lazy_tagged):
    for result in (tagged.simjoin.self_join(EPS, on=["x", "y"]), lazy_tagged, 3):
        with pytest.raises(UnsupportedFrameError, match=r"contains no lazy join|Several joins"):
            dask_simjoin.report(result)


def test_records_of_tasks_are_added_up_once():
    """A task that ran again has one record; the first task after all are done begins a new run."""
    report = RunReport("self_join", None, 0.1)
    task = StepRecord("pairs", "a", 2, 10.0, 12.0, 3, "thread 1")
    report.add(task)
    report.add(task._replace(begin=11.0, end=13.0))
    assert (report.partitions, report.rows, report.done, report.seconds) == (1, 3, False, 2.0)
    report.add(task._replace(key="b", begin=10.5, rows=4, thread="thread 2"))
    assert (report.partitions, report.rows, report.done, report.threads) == (2, 7, True, 2)
    assert report.seconds == 2.5
    report.add(task._replace(rows=5))
    assert (report.partitions, report.rows, report.done) == (1, 5, False)
    report.begin()
    report.add(task._replace(key="b", rows=6))
    assert (report.partitions, report.rows, report.done) == (1, 6, False)
