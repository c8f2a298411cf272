"""Unknown settings are refused at the call, and messages say where a value came from."""

import copy
import os
import subprocess
import sys
import timeit

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
import yaml

from dask_simjoin.errors import BudgetError, OptionError
from dask_simjoin.request.config_source import check_names, origin
from dask_simjoin.request.options import DEFAULTS, current_settings, size_origin

FRAME = pd.DataFrame({"x": [0.0, 1.0], "t": ["a b", "a c"]})


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Read Dask's configuration from a YAML file and environment variables."""
    before = dask.config.config.copy()

    def read(content=None, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "some settings.yaml"
        if content is not None:
            path.write_text(yaml.safe_dump(content))
        monkeypatch.setattr(dask.config, "paths", [str(tmp_path)])
        dask.config.refresh(paths=dask.config.paths)
        return path

    yield read
    dask.config.config.clear()
    dask.config.config.update(before)


CALLS = (
    lambda: FRAME.simjoin.self_join(1.0, on="x"),
    lambda: FRAME.simjoin.plan(1.0, on="x"),
    lambda: FRAME.simjoin.knn_join(FRAME, 1, on="x"),
    lambda: FRAME.simjoin.dbscan(1.0, on="x"),
    lambda: FRAME.simjoin.set_self_join("t", 0.5, tokenizer="words"),
    lambda: FRAME.simjoin.edit_self_join("t", 1),
)


@pytest.mark.parametrize("call", CALLS)
def test_unknown_settings_are_refused(call):
    with (
        dask.config.set({"simjoin.blocksiz": "1 MiB"}),
        pytest.raises(
            OptionError,
            match=r"'simjoin\.blocksiz' of dask\.config\.set is not a setting of "
            r"dask_simjoin \(did you mean 'simjoin\.blocksize'\?\)\. The settings are "
            r"'simjoin\.blocksize', 'simjoin\.output-size', .*dask\.config\.refresh\(\)",
        ),
    ):
        call()
    call()


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("DASK_SIMJOIN__BLOCKSIZ", "DASK_SIMJOIN__BLOCKSIZE"),
        ("DASK_SIMJOIN__RESULT_LIMT", "DASK_SIMJOIN__RESULT_LIMIT"),
        ("DASK_SIMJOIN_BLOCKSIZE", "DASK_SIMJOIN__BLOCKSIZE"),
        ("DASK_DASK_SIMJOIN__BLOCKSIZE", ""),
        ("DASK_SIMJOIN__BLOCK__SIZE", "DASK_SIMJOIN__BLOCKSIZE"),
        ("DASK_SIMJOIN__COLOR", ""),
    ],
)
def test_unknown_variables_are_refused_by_their_names(name, better, configured):
    configured(**{name: "1 MiB"})
    hint = f" (did you mean '{better}'?)" if better else ""
    with pytest.raises(OptionError) as caught:
        current_settings()
    assert str(caught.value) == (
        f"The environment variable {name} is not a setting of dask_simjoin{hint}. The "
        "settings are DASK_SIMJOIN__BLOCKSIZE, DASK_SIMJOIN__OUTPUT_SIZE, "
        "DASK_SIMJOIN__RESULT_LIMIT, DASK_SIMJOIN__THREADS. Correct it, or remove it "
        f"with: unset {name}. Then start the program again."
    )


def test_values_set_in_python_can_be_dropped():
    before = copy.deepcopy(dask.config.config)
    try:
        dask.config.set({"simjoin.blocksiz": "1 MiB"})
        with pytest.raises(
            OptionError, match=r"in Python: dask\.config\.refresh\(\)\.$"
        ):
            current_settings()
        dask.config.refresh()
        current_settings()
    finally:
        dask.config.config.clear()
        dask.config.config.update(before)


@pytest.mark.parametrize(
    "content",
    [
        {"simjoin": {"blocksiz": 5}},
        {"simjoin": {"BlockSize": 5}},
        {"simjoin-blocksize": 5},
        {"Simjoin": {"blocksize": 5}},
    ],
)
def test_unknown_names_in_a_file_are_refused_by_its_path(content, configured):
    path = configured(content)
    text = f" of the file '{path}' is not a setting .* Correct the file, then call dask"
    with pytest.raises(OptionError, match=text):
        current_settings()


def test_settings_that_are_no_mapping(configured):
    path = configured({"simjoin": 5})
    with pytest.raises(
        OptionError, match=rf"simjoin of the file '{path}' has the value 5, but"
    ):
        current_settings()


def test_both_spellings_are_known(configured):
    configured({"simjoin": {"result_limit": "1 MiB"}}, DASK_SIMJOIN__OUTPUT_SIZE="8 B")
    found = current_settings()
    assert (found.result, found.output) == (2**20, 8)
    assert size_origin("output-size", 8).endswith("variable DASK_SIMJOIN__OUTPUT_SIZE")
    configured({"simjoin": None})
    assert current_settings().result is None


def test_the_source_of_a_limit_is_named(configured):
    """In the order of precedence: set in Python, variable, file."""
    path = configured({"simjoin": {"result-limit": "8 B", "blocksize": "much"}})
    many = dd.from_pandas(pd.DataFrame({"x": [0.0] * 9}), npartitions=2)

    def told(**options):
        with pytest.raises((BudgetError, OptionError)) as caught:
            many.simjoin.self_join(1.0, on="x", **options).compute()
        return str(caught.value)

    assert f"It comes from the file '{path}'." in told()
    with dask.config.set({"simjoin.blocksize": "1 MiB"}):
        assert f"simjoin.result-limit of the file '{path}'" in told()
        with dask.config.set({"simjoin.result-limit": "9 B"}):
            assert "simjoin.result-limit of dask.config.set" in told()
    configured(DASK_SIMJOIN__RESULT_LIMIT="10 B", DASK_SIMJOIN__BLOCKSIZE="2 MiB")
    assert "the environment variable DASK_SIMJOIN__RESULT_LIMIT" in told()
    with dask.config.set({"simjoin.result-limit": "1 MB"}):
        plan = repr(many.simjoin.plan(1.0, on="x"))
    assert "the environment variable DASK_SIMJOIN__BLOCKSIZE" in plan
    with dask.config.set({"simjoin.result-limit": "9 B"}):
        assert "simjoin.result-limit of dask.config.set" in told()
        assert "DASK_SIMJOIN__RESULT_LIMIT" not in told()
    configured(DASK_DATAFRAME__SHUFFLE__METHOD="carrier pigeon")
    assert "comes from the environment variable DASK_DATAFRAME__SHUFFLE__" in told()
    with dask.config.set({"dataframe.shuffle.method": None}):
        assert "comes from" not in told(blocksize="much")


def test_a_file_that_cannot_be_read_names_no_source(configured):
    path = configured({"simjoin": {"result-limit": "7 B"}})
    path.write_text("{")
    assert origin("simjoin.result-limit", "7 B") == (
        "simjoin.result-limit of dask.config.set"
    )


@pytest.mark.slow
def test_the_program_refuses_unknown_variables(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    command = [sys.executable, "-m", "dask_simjoin", "self-join", "a.csv"]
    ran = subprocess.run(
        [*command, "--eps", "1", "--on", "x", "-o", "b.csv"],
        cwd=tmp_path,
        env=os.environ | {"DASK_SIMJOIN__BLOCKSIZ": "1 MiB"},
        capture_output=True,
        text=True,
    )
    told = " ".join(ran.stderr.split())
    assert ran.returncode == 2
    assert "The environment variable DASK_SIMJOIN__BLOCKSIZ is not a setting" in told
    assert "(did you mean 'DASK_SIMJOIN__BLOCKSIZE'?)" in told


def test_checking_names_takes_microseconds():
    took = min(timeit.repeat(lambda: check_names(DEFAULTS), number=1000, repeat=5))
    assert took / 1000 < 50e-6
