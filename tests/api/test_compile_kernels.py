"""What is compiled beforehand is all that verbs need."""

import json
import os
import subprocess
import sys

import pytest

import dask_simjoin
from dask_simjoin.api.compile_kernels import OPTIONS
from dask_simjoin.errors import OptionError
from tests.support.profiles import every_nth

FIRST_USE = """
import json
import dask.dataframe as dd
import numpy as np
import pandas as pd
from numba.core import event
import dask_simjoin
from dask_simjoin.engine.cpu.kernels import jit
asked, read = set(), jit.read
jit.read = lambda name, *made: (asked.add(name), read(name, *made))[1]
begun = event.RecordingListener()
event.register("numba:compile", begun)
dask_simjoin.compile_kernels(["dbscan", "self_join", "set_self_join"], dims=[2])
ahead = len(asked)
asked.clear()
begun.buffer.clear()
x = np.random.default_rng(5).normal(size=(700, 3))
frame = pd.DataFrame(x, columns=list("abc"))
frame.simjoin.dbscan(0.3)
frame.simjoin.self_join(0.2, return_distance=True)
dd.from_pandas(frame, npartitions=3).simjoin.self_join(0.2, partitioning="entity").compute()
rows = np.random.default_rng(5).integers(0, 90, (2000, 6)).tolist()
sets = pd.DataFrame({"sets": rows})
for method in ("auto", "bitmap", "groupjoin"):
    sets.simjoin.set_self_join("sets", 0.6, similarity="cosine", method=method)
print(json.dumps([ahead, sorted(asked), sum(one.is_start for _, one in begun.buffer)]))
"""


@pytest.mark.processes
def test_nothing_is_left_to_compile():
    """What is used is in memory: compiled, or found as other tests left it."""
    ran = subprocess.run(
        [sys.executable, "-c", FIRST_USE],
        env=os.environ | {"DASK_SCHEDULER": "synchronous"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    ahead, asked, compiled = json.loads(ran.stdout)
    assert ahead > 5 and asked == [] and compiled == 0


def test_verbs_of_sets_have_no_dimensions():
    done = dask_simjoin.compile_kernels(["count_set_pairs", "count_pairs"], dims=[2, 3])
    assert done[["verb", "dims"]].values.tolist() == [
        ["count_pairs", 2],
        ["count_pairs", 3],
        ["count_set_pairs", 0],
    ]


@pytest.mark.parametrize(
    "metric", every_nth(4, ["braycurtis", "chebyshev", "cosine", "haversine"])
)
def test_other_metrics(metric):
    done = dask_simjoin.compile_kernels(["neighbor_counts"], dims=[2], metric=metric)
    assert done["dims"].tolist() == [2]


@pytest.mark.gpu
def test_on_a_gpu():
    done = dask_simjoin.compile_kernels(dims=[2], backend="cudf")
    assert len(done) >= len([verb for verb in OPTIONS if "edit" not in verb]) - 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"verbs": ["selfjoin"]},
        {"dims": [0]},
        {"dims": [2.5]},
        {"backend": "polars"},
        {"processes": 0},
    ],
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(OptionError, match="not allowed"):
        dask_simjoin.compile_kernels(**wrong)
