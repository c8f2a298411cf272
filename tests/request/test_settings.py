"""Dask's configuration knows this package's defaults, and what users say goes before
them.
"""

import threading

import dask
import pytest

from dask_simjoin.errors import OptionError
from dask_simjoin.request.options import DEFAULTS, current_settings, texts_as_given
from tests.support.gates import PATIENCE
from tests.support.paths import ROOT
from tests.support.threads import started


def test_dask_lists_the_defaults():
    assert dask.config.get("simjoin") == DEFAULTS
    assert dask.config.get("simjoin.result-limit") is None
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    assert all(f"| `simjoin.{name}` |" in page for name in DEFAULTS)


def test_what_users_say_goes_before():
    config = {"simjoin": {"blocksize": "1 MiB"}}
    dask.config.update_defaults({"simjoin": DEFAULTS}, config, [])
    assert config["simjoin"] == DEFAULTS | {"blocksize": "1 MiB"}


def test_settings_are_those_of_the_configuration():
    with dask.config.set({"simjoin.output-size": "2 MB"}):
        assert (current_settings().output, current_settings().result) == (
            2_000_000,
            None,
        )
    with dask.config.set({"simjoin": {}}):
        assert current_settings().result is None
    for value, size in ((None, None), ("1 TiB", 2**40)):
        with dask.config.set({"simjoin.result-limit": value}):
            assert current_settings().result == size
    with (
        dask.config.set({"simjoin.result-limit": "much"}),
        pytest.raises(OptionError, match="result-limit"),
    ):
        current_settings()


def test_threads_leave_the_configuration_as_it_was():
    """What one puts back when it is done must not be what another had set meanwhile."""
    before, entered = dask.config.get("dataframe.convert-string"), threading.Event()

    def other():
        with texts_as_given():
            entered.set()
            done.wait(PATIENCE)

    done = threading.Event()
    with texts_as_given():
        assert dask.config.get("dataframe.convert-string") is False
        thread = started(other)
        entered.wait(0.2)  # it may have to wait for this one
    done.set()
    thread.result(PATIENCE)
    assert entered.is_set() and dask.config.get("dataframe.convert-string") == before
