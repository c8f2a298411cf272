"""What serves a frame is chosen by its library."""

import sys

import numpy as np
import pandas as pd
import pytest

from dask_simjoin import catalog
from dask_simjoin.engine import base
from dask_simjoin.engine.cpu.frames import FRAMES
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.errors import UnsupportedFrameError


class Derived(pd.DataFrame):
    """As GeoPandas derives its frames."""


def test_frames_are_of_the_library_that_their_class_is_derived_from():
    for frame in (
        pd.DataFrame({"x": [1.0]}),
        Derived({"x": [1.0]}),
        pd.Series([1.0]),
        pd.Index([1]),
    ):
        assert (
            catalog.library(frame) == catalog.HOME and base.frames_for(frame) is FRAMES
        )
    assert catalog.library(np.zeros(2)) == "numpy"
    assert base.joiner_for(Derived()) is base.host_joiner() is JOINER


def test_other_libraries_are_refused_by_name():
    with pytest.raises(
        UnsupportedFrameError,
        match=r"Frames of 'polars' cannot be joined, only .* use ddf.to_backend\('pandas'\)",
    ):
        base.frames_of_library("polars")


def test_modules_are_loaded_once_and_awaited_while_another_thread_loads_them(
    monkeypatch,
):
    loaded, imported = FRAMES.__class__.__module__, []
    monkeypatch.setattr(base.importlib, "import_module", imported.append)
    assert base._load(loaded) is sys.modules[loaded] and not imported
    monkeypatch.setattr(sys.modules[loaded].__spec__, "_initializing", True)
    base._load(loaded)
    assert imported == [loaded]


def test_every_library_has_modules_of_the_same_jobs():
    jobs = {
        name: {job for library, job in base.MODULES if library == name}
        for name in catalog.LIBRARIES
    }
    assert jobs["cudf"] - {"memory"} == jobs[catalog.HOME] - {
        "encoding",
        "segments",
        "splitting",
        "strings",
    }


@pytest.mark.parametrize(
    ("numbers", "share"),
    [
        ({"comparisons": 3.0, "candidates": 6.0}, 0.5),
        ({"candidates": 6.0}, 1.0),
        ({}, None),
    ],
)
def test_the_share_of_pairs_that_was_compared(numbers, share):
    assert base.compared_ratio(numbers, 4) == (
        {} if share is None else {"compared_ratio": share}
    )
    assert base.compared_ratio(numbers, 1) == {}


def test_every_number_has_a_description():
    assert "compared_ratio" in base.ABOUT and all(text for text in base.ABOUT.values())
