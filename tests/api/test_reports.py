from xml.etree import ElementTree

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.errors import PlanningError, UnsupportedFrameError
from dask_simjoin.graph.records import RUNS, Runs

FRAME = pd.DataFrame(
    np.random.default_rng(0).uniform(size=(200, 2)), columns=["x", "y"]
)


@pytest.fixture(autouse=True)
def no_other_runs(monkeypatch):
    """Forget the joins of other tests while one runs."""
    fresh = Runs()
    for name in ("_runs", "_results"):
        monkeypatch.setattr(RUNS, name, getattr(fresh, name))


@pytest.fixture
def ddf():
    return dd.from_pandas(FRAME, npartitions=3)


def test_persisted_pairs(ddf):
    first, second = (
        ddf.simjoin.self_join(eps, return_distance=True).persist()
        for eps in (0.1, 0.05)
    )
    for pairs in (first, second):
        report = pairs.simjoin.report()
        assert report.done and report.rows == len(pairs)


def test_persisted_results_of_further_steps(ddf):
    pairs = ddf.simjoin.self_join(0.1, return_distance=True)
    near = pairs[pairs.distance < 0.05].persist()
    assert near.simjoin.report() is pairs.simjoin.report()
    ddf.simjoin.self_join(0.05).compute()
    with pytest.raises(
        UnsupportedFrameError, match="Several joins of this process may have made"
    ):
        near.simjoin.report()


@pytest.mark.parametrize(
    "verb", ["neighbor_counts", "count_pairs", "dbscan", "near_duplicated", "knn_join"]
)
def test_persisted_values(ddf, verb):
    options = {"k": 2} if verb == "knn_join" else {"eps": 0.1}
    result = getattr(ddf.simjoin, verb)(**options).persist()
    assert (
        verb.split("_")[0] in dask_simjoin.report(result).title
        or dask_simjoin.report(result).done
    )


def test_computed_results_are_known_by_their_rows(ddf):
    pairs = ddf.simjoin.self_join(0.1).compute()
    ddf.simjoin.self_join(0.05).compute()
    assert pairs.simjoin.report().rows == len(pairs)
    assert dask_simjoin.report(len(pairs)).rows == len(pairs)
    with pytest.raises(
        UnsupportedFrameError, match="does not match a join of this process"
    ):
        FRAME.simjoin.report()


def test_written_results_are_known_by_their_path(ddf, tmp_path):
    pairs = ddf.simjoin.self_join(0.1)
    pairs.to_parquet(tmp_path / "pairs")
    report = pairs.simjoin.report()
    assert report.done
    assert dask_simjoin.report(tmp_path / "pairs") is report
    assert dask_simjoin.report() is report
    with pytest.raises(UnsupportedFrameError, match=r"dask_simjoin.report\(path\)"):
        dd.read_parquet(tmp_path / "pairs").simjoin.report()
    with pytest.raises(
        UnsupportedFrameError, match="does not match a join of this process"
    ):
        dask_simjoin.report(tmp_path / "nothing")


def test_matrices(ddf):
    pytest.importorskip("scipy")
    graph = ddf.simjoin.neighbor_graph(0.1)
    with pytest.raises(PlanningError, match="has not been planned in this process"):
        dask_simjoin.report(graph)
    graph.compute()
    assert dask_simjoin.report(graph).done


def test_without_any_join():
    with pytest.raises(PlanningError, match="No lazy join has been planned"):
        dask_simjoin.report()


def rows_of(shown):
    """The first cells of the rows of a table."""
    return [
        row[0].text for row in ElementTree.fromstring(shown._repr_html_()).iter("tr")
    ]


def test_notebooks_list_the_verbs(ddf, tmp_path):
    assert rows_of(FRAME.simjoin) == rows_of(ddf.simjoin) == list(VERBS)
    index = FRAME.simjoin.index(0.1, tmp_path / "index")
    assert {"update", "pairs", "vacuum", "check"} <= set(rows_of(index))
    assert "200 rows" in index._repr_html_()
