"""Lazy counts beside their rows: divisions, columns and filters."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.dataframe.utils import assert_eq


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
    assert eager["n"].isna().sum() == (3 if dropped else 0)
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
        crowd.iloc[10 * i : 10 * i + 10].reset_index(drop=True).to_parquet(tmp_path / f"part-{i}.parquet")
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
    found = ddf.assign(n=ddf.simjoin.neighbor_counts(1.0, on="x")).compute().sort_values("row")
    assert found["n"].tolist() == crowd.simjoin.neighbor_counts(1.0, on="x").tolist()
