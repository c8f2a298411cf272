"""Mistakes that newcomers make are told of, in the package's words."""

import dask
import pytest

from dask_simjoin.errors import SimJoinError
from tests.checks.mistakes import JOBS, MISTAKES, outcome

RIGHT = {"right ascensions from 0 to 360"}
"""What was a mistake once."""

OF_OTHERS = {"cuDF where there is none", "a verb of another library"}
"""Where Dask refuses first, or Python's own error is the right one."""


def names_of(kind):
    """Names of a class and of all below it."""
    return {kind.__name__} | {
        name for sub in kind.__subclasses__() for name in names_of(sub)
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_something_is_said(name):
    with dask.config.set(scheduler="sync"):
        lines, said = outcome(MISTAKES[name])
    if name in RIGHT:
        assert not said and len(lines) == 1
    elif name not in OF_OTHERS:
        kind = lines[0].partition(":")[0]
        assert said and kind in names_of(SimJoinError) | {
            "UnitsWarning",
            "ColumnsWarning",
        }, lines
        # more than what is wrong: what is allowed, or what helps
        assert len(lines[0]) > 55


@pytest.mark.parametrize("name", JOBS)
def test_message_names_value_and_remedy(name):
    if name.startswith("stops"):
        pytest.importorskip("geopandas")
    mistake = JOBS[name]
    text = "\n".join(outcome(mistake.call)[0])
    assert not [part for part in mistake.says if part not in text], text
    assert "Traceback" not in text
