"""Fixtures of tests of warnings."""

import dask.dataframe as dd
import pytest


@pytest.fixture(params=["pandas", "dask"])
def lay(request):
    """Makes a frame plain or lazy."""
    if request.param == "pandas":
        return lambda frame: frame
    return lambda frame: dd.from_pandas(frame, npartitions=3)
