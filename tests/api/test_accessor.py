"""The accessor has every verb, and type checkers and editors read the same from its stub."""

import subprocess
import sys

import pytest

from dask_simjoin.api.accessor import SimJoinAccessor
from dask_simjoin.api.verbs import VERBS
from tests.checks import stubs
from tests.support.paths import ROOT

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
    methods = {name for name, value in vars(SimJoinAccessor).items() if callable(value) and name[0] != "_"}
    assert methods - {"report"} == set(VERBS)
    for name, verb in VERBS.items():
        assert vars(SimJoinAccessor)[name].__wrapped__ is verb.function


def test_stubs_are_up_to_date():
    """Editors complete what they have, and mypy checks calls by it."""
    for path, text in stubs.files().items():
        assert path.read_text() == text, "python -m tests.checks.generate"


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
        [sys.executable, "-m", checker, *options, path], cwd=ROOT, capture_output=True, text=True
    )
    first = PROGRAM.splitlines().index('dask_simjoin.self_join(frame, 1.0, metric="cosin")') + 1
    lines = range(1, PROGRAM.count("\n") + 1)
    wrong = {number for number in lines if f"program.py:{number}:" in ran.stdout}
    assert wrong == {*range(first, first + 5), *range(first + 7, first + 10), first + 11}, ran.stdout
