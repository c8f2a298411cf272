"""Verbs are listed once, by the names of their functions, which the package has."""

from dataclasses import fields, is_dataclass

import pytest

import dask_simjoin
from dask_simjoin.api.verbs import VERBS


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_is_a_function_of_the_package_with_a_described_request(name):
    verb = VERBS[name]
    assert verb.name == name == verb.function.__name__
    assert getattr(dask_simjoin, name) is verb.function
    assert is_dataclass(verb.request) and verb.function.__doc__
    options = [one for one in fields(verb.request) if one.init]
    assert options and all(one.metadata.get("help") for one in options)
