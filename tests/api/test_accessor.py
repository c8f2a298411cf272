"""The accessor has every verb, and type checkers and editors read the same from its
stub.
"""

import os
import re
import subprocess
import sys

import pytest

from dask_simjoin.api.accessor import SimJoinAccessor
from dask_simjoin.api.verbs import VERBS
from tests.support.paths import ROOT
from tools import stubs

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
dask_simjoin.SimJoinAccessor(frame).self_join(eps=1.0).merge(frame)
dask_simjoin.SimJoinAccessor(frame).self_join(epsilon=1.0)
report = dask_simjoin.SimJoinAccessor(frame).index(1.0, "path").update(frame).report
"""


def test_the_accessor_has_every_verb_and_no_other():
    methods = {
        name
        for name, value in vars(SimJoinAccessor).items()
        if callable(value) and name[0] != "_"
    }
    assert methods - {"report"} == set(VERBS)
    for name, verb in VERBS.items():
        assert vars(SimJoinAccessor)[name].__wrapped__ is verb.function


def test_stubs_are_up_to_date():
    """Editors complete what they have, and mypy checks calls by it."""
    for path, text in stubs.files().items():
        assert path.read_text() == text, "python -m tools.generate"


def test_a_stub_without_a_verb_is_stale(monkeypatch):
    others = {name: verb for name, verb in VERBS.items() if name != "dbscan"}
    monkeypatch.setattr(stubs, "VERBS", others)
    assert stubs.accessor() != stubs.ACCESSOR.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_what_is_misspelt_is_found(tmp_path, checker):
    pytest.importorskip(checker)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    options = ["--strict"] if checker == "mypy" else ["--pythonpath", sys.executable]
    ran = subprocess.run(
        [sys.executable, "-m", checker, *options, path],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    first = (
        PROGRAM.splitlines().index('dask_simjoin.self_join(frame, 1.0, metric="cosin")')
        + 1
    )
    lines = range(1, PROGRAM.count("\n") + 1)
    wrong = {number for number in lines if f"program.py:{number}:" in ran.stdout}
    assert wrong == {
        *range(first, first + 5),
        *range(first + 7, first + 10),
        first + 11,
    }, ran.stdout


TYPED = """
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask_simjoin import SimJoinAccessor, self_join
from dask_simjoin.cluster import DBSCAN, HDBSCAN
from dask_simjoin.neighbors import KNeighborsTransformer

def check(frame: pd.DataFrame, lazy: dd.DataFrame, x: np.ndarray, chunked: da.Array) -> None:
    reveal_type(SimJoinAccessor(frame).self_join(1.0))  # DataFrame
    reveal_type(SimJoinAccessor(lazy).knn_join(k=3))  # DataFrame
    reveal_type(SimJoinAccessor(frame).dbscan(1.0))  # Series
    reveal_type(SimJoinAccessor(lazy).dbscan(1.0))  # Series
    reveal_type(SimJoinAccessor(frame).neighbor_counts(1.0))  # Series
    reveal_type(SimJoinAccessor(frame).neighbor_counts([1.0, 2.0]))  # DataFrame
    reveal_type(SimJoinAccessor(frame).count_pairs("5 km"))  # int
    reveal_type(SimJoinAccessor(lazy).count_pairs([1.0]))  # Series
    reveal_type(SimJoinAccessor(frame).plan(1.0))  # PlanReport
    reveal_type(self_join(frame, 1.0))  # DataFrame
    reveal_type(DBSCAN(1.0).fit(frame))  # DBSCAN
    reveal_type(HDBSCAN().fit(x).condensed_tree_.to_pandas())  # DataFrame
    reveal_type(HDBSCAN().fit(x).single_linkage_tree_.to_numpy())  # ndarray
    reveal_type(DBSCAN(1.0).fit_predict(x))  # ndarray
    reveal_type(HDBSCAN().fit_predict(frame))  # Series
    reveal_type(KNeighborsTransformer().fit(frame))  # KNeighborsTransformer
"""

FRAMES = """
from typing import Any
class Series: ...
class DataFrame:
    def __init__(self, data: Any = ...) -> None: ...
"""

NUMPY = """
from typing import Any
class ndarray: ...
def __getattr__(name: str) -> Any: ...
"""

STUBS = {
    "pandas": FRAMES,
    "dask": "",
    "dask/dataframe": FRAMES,
    "dask/array": "class Array: ...",
    "numpy": NUMPY,
}

SKIPPED = """
[mypy]
[mypy-click.*,dask.*,distributed.*]
follow_imports = skip
[mypy-dask,dask.array,dask.dataframe]
follow_imports = normal
"""
"""The settings of mypy, which would read libraries for several seconds."""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checkers_know_results(tmp_path, checker):
    """With small stubs of pandas, Dask and NumPy, so that nothing else needs to be
    installed or read.
    """
    pytest.importorskip(checker)
    for name, text in STUBS.items():
        folder = tmp_path / "typings" / name
        folder.mkdir(parents=True)
        (folder / "__init__.pyi").write_text(text)
    (tmp_path / "mypy.ini").write_text(SKIPPED)
    (tmp_path / "program.py").write_text(TYPED)
    options = [] if checker == "mypy" else ["--pythonpath", sys.executable]
    ran = subprocess.run(
        [sys.executable, "-m", checker, *options, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": "typings"},
    )
    for number, line in enumerate(TYPED.splitlines(), 1):
        if "reveal_type" in line:
            want = line.rpartition("# ")[2]
            found = next(
                (
                    one
                    for one in ran.stdout.splitlines()
                    if f"program.py:{number}:" in one
                ),
                "",
            )
            assert re.search(rf"\b{want}(\[.*\])?\W*$", found), (line, ran.stdout)
