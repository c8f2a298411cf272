"""Verbs: one signature and one text as method and as function; results in the library
of the frame.
"""

import inspect

import dask.dataframe as dd
import pytest

import dask_simjoin
from dask_simjoin import SimJoinAccessor
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.errors import (
    OptionError,
    OptionTypeError,
)
from tests.request.test_requests import FRAME


@pytest.fixture(params=VERBS.values(), ids=lambda verb: verb.name)
def verb(request):
    """Each verb of the table."""
    return request.param


def test_methods_and_functions_have_one_signature_and_one_text(verb):
    method = getattr(SimJoinAccessor, verb.name)
    own, *options = inspect.signature(method).parameters.values()
    frame, *same = inspect.signature(verb.function).parameters.values()
    assert (own.name, frame.name) == ("self", "frame")
    assert options == same
    assert [
        one.name
        for one in inspect.signature(
            getattr(FRAME.simjoin, verb.name)
        ).parameters.values()
    ] == [one.name for one in options]
    assert method.__doc__ == verb.function.__doc__
    assert getattr(dask_simjoin, verb.name) is verb.function
    assert verb.name in dask_simjoin.__all__ and verb.name in dir(FRAME.simjoin)


def test_an_option_is_given_twice():
    for call in (
        FRAME.simjoin.self_join,
        lambda *args, **more: dask_simjoin.self_join(FRAME, *args, **more),
    ):
        with pytest.raises(
            OptionTypeError,
            match=r"^self_join\(\) got multiple values for argument 'eps'",
        ):
            call(1.0, eps=1.0)


ONE_CORE = {"with_row_id", "index", "profile", "set_profile", "edit_profile"}


def test_a_number_of_threads_is_for_frames_in_memory(verb):
    parameters = inspect.signature(verb.function).parameters
    assert ("threads" in parameters) == (verb.name not in ONE_CORE)
    if "threads" not in parameters:
        return
    lazy = dd.from_pandas(FRAME, npartitions=2)
    needed = {
        one.name: lazy if one.name == "other" else 1
        for one in list(parameters.values())[1:]
        if one.default is one.empty
    }
    message = r"^threads=2 is only for frames in memory.*num_workers=\.\.\."
    with pytest.raises(OptionError, match=message):
        verb.function(lazy, **needed, threads=2)
    if "other" in parameters:
        with pytest.raises(OptionError, match=message):
            verb.function(FRAME, **needed | {"other": lazy}, threads=2)


def test_threads_of_other_libraries():
    with pytest.raises(OptionTypeError, match=r"'n_jobs' \(did you mean 'threads'\?\)"):
        FRAME.simjoin.self_join(1.0, n_jobs=2)
