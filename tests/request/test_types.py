"""What type checkers are told of verbs."""

import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import dask_simjoin
from dask_simjoin.engine.methods import CHOICES
from dask_simjoin.metrics import METRICS
from dask_simjoin.request.options import MethodName, MetricName

ROOT = Path(__file__).parents[2]

PROGRAM = """
import dask_simjoin
import pandas as pd
from dask_simjoin.cluster import DBSCAN

frame = pd.DataFrame({"x": [0.0]})
dask_simjoin.self_join(frame, 1.0, metric="cosine", method="tiles", return_distance=True)
dask_simjoin.dbscan(frame, 1.0, min_samples=3).tolist()
dask_simjoin.self_join(frame, 1.0, metric="cosin")
dask_simjoin.self_join(frame, 1.0, metrik="cosine")
dask_simjoin.count_pairs(frame, 1.0, method="tile")
dask_simjoin.knn_join(frame, k="three")
DBSCAN(metric="cosin")
joins: dask_simjoin.SimJoinAccessor[pd.DataFrame] = frame.simjoin
joins.self_join(1.0, metric="cosine").merge(frame)
joins.self_join(1.0, metric="cosin")
joins.self_joint(1.0)
joins.dbscan(1.0, samples=3)
"""


def test_names_are_those_that_there_are():
    assert get_args(MetricName) == tuple(METRICS)
    assert get_args(MethodName) == CHOICES
    for verb in (dask_simjoin.self_join, dask_simjoin.dbscan, dask_simjoin.near_duplicated):
        assert get_type_hints(verb)["metric"] == MetricName


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_what_is_misspelt_is_found(tmp_path, checker):
    pytest.importorskip(checker)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    options = ["--strict"] if checker == "mypy" else ["--pythonpath", sys.executable]
    ran = subprocess.run(
        [sys.executable, "-m", checker, *options, path], cwd=ROOT, capture_output=True, text=True
    )
    first = PROGRAM.splitlines().index('dask_simjoin.self_join(frame, 1.0, metric="cosin")') + 1
    wrong = {number for number in range(1, 20) if f"program.py:{number}:" in ran.stdout}
    assert wrong == {*range(first, first + 5), *range(first + 7, first + 10)}, ran.stdout
