"""Verbs: one signature and one text as method and as function."""

import inspect

import pytest

import dask_simjoin
from dask_simjoin import SimJoinAccessor
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.errors import OptionTypeError
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
    assert [one.name for one in inspect.signature(getattr(FRAME.simjoin, verb.name)).parameters.values()] == [
        one.name for one in options
    ]
    assert method.__doc__ == verb.function.__doc__
    assert getattr(dask_simjoin, verb.name) is verb.function
    assert verb.name in dask_simjoin.__all__ and verb.name in dir(FRAME.simjoin)


def test_an_option_is_given_twice():
    for call in (FRAME.simjoin.self_join, lambda *args, **more: dask_simjoin.self_join(FRAME, *args, **more)):
        with pytest.raises(OptionTypeError, match=r"^self_join\(\) got multiple values for argument 'eps'"):
            call(1.0, eps=1.0)
