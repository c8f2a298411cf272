"""The accessor is there in every order of imports, and plain frames load no Dask
DataFrames.
"""

import json
import subprocess
import sys

import pytest

from tests.support.profiles import chosen

PARENT = """
import json, os, sys
import dask, numba, pandas, pyarrow  # once, for all processes that are forked

found = {}
for name, program in json.load(sys.stdin).items():
    if name == "dask_simjoin":  # programs before this one must not load it themselves
        import dask.array, distributed
    assert not any(loaded in sys.modules for loaded in ("dask_simjoin", "dask.dataframe"))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(write, 1)
        exec(program, {})
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with open(read) as printed:
        text = printed.read()
    found[name] = text.split() if os.waitpid(child, 0)[1] == 0 else None
print(json.dumps(found))
"""

PLAIN = """
import sys
import pandas as pd
import dask_simjoin

df = pd.DataFrame({"x": [0.0, 1.0, 5.0], "y": [0.0, 0.0, 1.0]})
assert len(df.simjoin.self_join(2.0)) == 1
assert len(df.simjoin.join(df, 2.0, how="left")) == 5
assert len(df.simjoin.knn_join(k=1)) == 3
assert df.simjoin.count_pairs(2.0) == 1
assert len(df.simjoin.closest_pairs(1)) == 1
assert list(df.simjoin.dbscan(2.0, min_samples=2)) == [0, 0, -1]
assert len(df.simjoin.drop_near_duplicates(2.0)) == 2
df.simjoin.plan(2.0)
print(*(name for name in ("distributed", "dask.dataframe", "dask.array") if name in sys.modules))
"""

SETS = """
import sys
import pandas as pd
import dask_simjoin

texts = pd.DataFrame({"text": ["a b c", "a b c d", "e"]})
how = {"on": "text", "threshold": 0.5, "tokenizer": "whitespace"}
assert len(texts.simjoin.set_self_join(**how)) == 1
assert len(texts.simjoin.drop_set_near_duplicates(**how)) == 2
texts.simjoin.set_plan(**how)
print(*(name for name in ("distributed", "dask.dataframe") if name in sys.modules))
"""

ORDER = """
import {0}
import {1}
import dask.dataframe as dd
import pandas as pd

ddf = dd.from_pandas(pd.DataFrame({{"x": [0.0, 1.0, 5.0]}}), npartitions=2)
pairs = ddf.simjoin.self_join(2.0)
assert "not planned yet" in repr(pairs)
print(len(pairs.compute()))
"""

ORDERS = [("dask_simjoin", "dask.dataframe"), ("dask.dataframe", "dask_simjoin")]

MODULES = chosen(
    [
        "graph.dask_private",
        "graph.base",
        "graph.pairs",
        "cluster.expressions.components",
        "sets.graph",
    ],
    ["graph.dask_private", "sets.graph"],
)

PROGRAMS = {
    "plain": PLAIN,
    "sets": SETS,
    **{first: ORDER.format(first, second) for first, second in ORDERS},
    **{
        module: f"import dask_simjoin.{module}; print('{module}')" for module in MODULES
    },
}


@pytest.fixture(scope="module")
def printed():
    """What each program prints in a process that has loaded libraries, but not this
    package.
    """
    command, programs = [sys.executable, "-c", PARENT], json.dumps(PROGRAMS)
    done = subprocess.run(
        command, input=programs, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert None not in found.values(), done.stderr
    return found


def test_plain_frames_load_no_dask_dataframes(printed):
    assert printed["plain"] == []


def test_sets_of_plain_frames_load_no_dask_dataframes(printed):
    assert printed["sets"] == []


def test_dask_frames_have_the_accessor_in_either_order(printed):
    assert [printed[first] for first, _ in ORDERS] == [["1"], ["1"]]


def test_modules_of_lazy_joins_can_be_imported_first(printed):
    """A worker that unpickles a task imports its module, before any Dask DataFrame."""
    assert [printed[module] for module in MODULES] == [[module] for module in MODULES]
