"""A table that commands read."""

import numpy as np
import pandas as pd
import pytest

ROWS = 60


@pytest.fixture
def points(tmp_path, monkeypatch):
    """A table of points, as a folder of two parquet files, and the folder in which
    commands run.
    """
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(5).uniform(size=(ROWS, 2)).round(3)
    table = pd.DataFrame(x, columns=["x", "y"]).assign(
        name=[f"p{k}" for k in range(ROWS)]
    )
    (tmp_path / "points").mkdir()
    table[:40].to_parquet(tmp_path / "points" / "0.parquet")
    table[40:].to_parquet(tmp_path / "points" / "1.parquet")
    return table


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
