"""Values of rows: few tasks if they are only reduced; divisions, columns and filters of
counts.
"""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.dataframe.utils import assert_eq
from dask.utils import key_split

from dask_simjoin.graph.row_values import (
    FoundPartitions,
    FoundTogether,
    join_held,
    together,
)
from tests.support.profiles import in_turns

EPS, PARTITIONS = 0.03, 24

REDUCED = {
    "max": lambda labels: labels.max(),
    "noise": lambda labels: (labels == -1).sum(),
    "some": lambda labels: labels.nlargest(7),
    "all": lambda labels: labels,
    "mean": lambda labels: labels.astype("float64").mean(),
}


@pytest.fixture(scope="module")
def frame():
    x = np.random.default_rng(8).uniform(size=(1200, 2))
    return pd.DataFrame(x, columns=["x", "y"], index=np.arange(1200) * 3)


@pytest.fixture(scope="module")
def want(frame):
    return frame.simjoin.dbscan(EPS, 4)


def nodes(lazy, kind):
    """The expressions of a kind that are left of what `compute` computes."""
    made = lazy.expr.finalize_compute().optimize(fuse=False)
    return [node for node in made.walk() if isinstance(node, kind)]


@in_turns(
    1,
    options=[{}, {"partitioning": "entity", "blocksize": "9 kB"}],
    reduced=list(REDUCED),
)
def test_reductions_of_labels(frame, want, reduced, options):
    """Of one chunk, and of several whose pieces are of cut partitions, too."""
    with dask.config.set(scheduler="sync"):
        labels = dd.from_pandas(frame, npartitions=PARTITIONS).simjoin.dbscan(
            EPS, 4, **options
        )
        lazy = REDUCED[reduced](labels)
        found, expected = lazy.compute(), REDUCED[reduced](want)
        if np.ndim(found):
            pd.testing.assert_series_equal(found, expected)
        else:
            assert found == expected
        (few,) = nodes(lazy, FoundTogether)
        assert few.npartitions in (2, 3) and not nodes(lazy, FoundPartitions)
        assert few.known_divisions and few.divisions[:: few.npartitions] == (
            0,
            3 * 1199,
        )


def test_what_is_not_only_reduced_stays_as_it_is(frame, want):
    """What goes partition by partition, or beside the frame's rows, has the frame's
    partitions.
    """
    with dask.config.set(scheduler="sync"):
        rows = dd.from_pandas(frame, npartitions=PARTITIONS)
        labels = rows.simjoin.dbscan(EPS, 4)
        sizes = labels.map_partitions(len)
        assert sizes.compute().tolist() == [len(frame) // PARTITIONS] * PARTITIONS
        beside = (labels * rows.x).sum()
        assert beside.compute() == pytest.approx((want * frame.x).sum())
        pd.testing.assert_series_equal(
            rows.assign(v=labels).v.compute(), want.rename("v")
        )
        some = labels.partitions[3:6]
        pd.testing.assert_series_equal(some.compute(), want[150:300])
        for lazy in (sizes, beside, rows.assign(v=labels).v):
            assert nodes(lazy, FoundPartitions) and not nodes(lazy, FoundTogether)
        assert nodes(labels.partitions[3:9], FoundTogether)
        together = dask.compute(
            labels.max(), labels.min(), labels.map_partitions(len).sum()
        )
        assert together == (want.max(), want.min(), len(want))


def test_partitions_are_put_together():
    assert together([]) == [] and together([5]) == [(0, 1)]
    assert together([5, 5, 5, 5]) == [(0, 2), (2, 4)]
    assert together([1 << 20, 3, 0, 1 << 20]) == [(0, 1), (1, 3), (3, 4)]
    assert together([0, 0]) == [(0, 2)]
    held = [[(0, 0, 1)], [(0, 1, 2), (1, 0, 1)], [(1, 1, 2)], [(0, 2, 3)]]
    assert join_held(held, [(0, 3), (3, 4)]) == (((0, 0, 2), (1, 0, 2)), ((0, 2, 3),))


def test_partitions_without_rows(frame):
    rows = dd.from_pandas(frame, npartitions=PARTITIONS)
    with dask.config.set(scheduler="sync"):
        for some in (rows[rows.x < 0], rows[rows.x < 0].persist()):
            labels = some.simjoin.dbscan(EPS, 4)
            assert (
                labels.compute().tolist() == [] and (labels >= 0).sum().compute() == 0
            )


@pytest.fixture
def crowd():
    """Sixty rows whose numbers of neighbours differ."""
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": np.sort(rng.exponential(3.0, 60)), "row": np.arange(60)})


@pytest.mark.parametrize("npartitions", [1, 3, 6])
def test_counts_keep_divisions_and_index(crowd, npartitions):
    frame = crowd.set_index(pd.date_range("2020", periods=60, name="day"))
    ddf = dd.from_pandas(frame, npartitions=npartitions)
    counts = ddf.simjoin.neighbor_counts(1.0, on="x")
    assert counts.known_divisions
    assert counts.divisions == ddf.divisions
    assert counts.npartitions == ddf.npartitions
    assert_eq(counts, frame.simjoin.neighbor_counts(1.0, on="x"))
    assert counts.compute().index.equals(frame.index)
    assert counts.index.name == "day"


@pytest.mark.parametrize("npartitions", [1, 3, 6])
@pytest.mark.parametrize("dropped", [False, True])
def test_counts_as_a_column_where_divisions_are_known(crowd, npartitions, dropped):
    if dropped:
        crowd.loc[[3, 30, 31], "x"] = np.nan
    ddf = dd.from_pandas(crowd, npartitions=npartitions)
    lazy = ddf.assign(n=ddf.simjoin.neighbor_counts(1.0, on="x", dropna=dropped))
    eager = crowd.assign(n=crowd.simjoin.neighbor_counts(1.0, on="x", dropna=dropped))
    assert not dropped or (eager.loc[[3, 30, 31], "n"] == 0).all()
    pd.testing.assert_frame_equal(lazy.compute(), eager)


@pytest.mark.parametrize("npartitions", [1, 3, 6])
def test_counts_as_a_filter(crowd, npartitions):
    ddf = dd.from_pandas(crowd, npartitions=npartitions)
    lazy = ddf[ddf.simjoin.neighbor_counts(1.0, on="x") >= 20]
    eager = crowd[crowd.simjoin.neighbor_counts(1.0, on="x") >= 20]
    assert 0 < len(eager) < 60
    pd.testing.assert_frame_equal(lazy.compute(), eager)


def test_counts_as_a_column_of_parquet_files(crowd, tmp_path):
    """Divisions are unknown, and every file counts its rows from 0."""
    for i in range(6):
        crowd.iloc[10 * i : 10 * i + 10].reset_index(drop=True).to_parquet(
            tmp_path / f"part-{i}.parquet"
        )
    ddf = dd.read_parquet(tmp_path)
    expected = crowd.simjoin.neighbor_counts(1.0, on="x").to_numpy()
    counts = ddf.simjoin.neighbor_counts(1.0, on="x")
    assert counts.compute().to_numpy().tolist() == expected.tolist()
    found = ddf.assign(n=counts).compute().sort_values("row")
    assert found["n"].tolist() == expected.tolist()
    found = ddf[counts >= 20].compute()
    assert sorted(found["row"]) == crowd["row"][expected >= 20].tolist()


def test_counts_as_a_column_where_divisions_are_unknown(crowd):
    shuffled = crowd.sample(frac=1.0, random_state=0)
    ddf = dd.from_pandas(shuffled, npartitions=6, sort=False)
    assert not ddf.known_divisions
    found = (
        ddf.assign(n=ddf.simjoin.neighbor_counts(1.0, on="x"))
        .compute()
        .sort_values("row")
    )
    assert found["n"].tolist() == crowd.simjoin.neighbor_counts(1.0, on="x").tolist()


@pytest.mark.parametrize("held", [False, True])
def test_tasks_that_read_labels_are_no_roots(frame, held):
    """If each partition needs a root of its own, Dask orders them in quadratic time."""
    ddf = dd.from_pandas(frame, npartitions=6)
    ddf = ddf.persist(scheduler="sync") if held else ddf
    counts = ddf.simjoin.neighbor_counts(EPS, partitioning="spatial", blocksize=10_000)
    graph = dict(counts.expr.optimize().__dask_graph__())
    tasks = [task for key, task in graph.items() if key_split(key) == "simjoin_labels"]
    assert len(tasks) == 6
    for task in tasks:
        assert "simjoin_offsets" in map(key_split, task.dependencies)
