"""Modules of methods and of libraries offer what the protocols say."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from dask_simjoin.catalog import LIBRARIES, METHODS, choices_for
from dask_simjoin.engine.base import MODULES
from tests.support.modules import functions, names_made_elsewhere, text_of

PROTOCOLS = {"pandas": "engine/cpu/sinks.py", "cudf": "engine/gpu/pairs.py"}


@pytest.mark.parametrize(
    ("library", "name"),
    [(library, name) for name, m in METHODS.items() for library in m.modules],
)
def test_modules_of_methods_offer_what_the_protocol_says(library, name):
    """By their texts: those of GPUs cannot be imported everywhere."""
    protocol = text_of(
        "dask_simjoin." + PROTOCOLS[library].removesuffix(".py").replace("/", ".")
    )
    wanted = {
        function: arguments[1:]
        for node in protocol.body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Method")
        for function, arguments in functions(node).items()
    }
    tree = text_of(METHODS[name].modules[library])
    offered = functions(tree)
    assert wanted
    assert wanted.keys() <= offered.keys() | names_made_elsewhere(tree)
    assert {
        function: offered.get(function, wanted[function]) for function in wanted
    } == wanted


HOST_JOBS = ("encoding", "segments", "splitting", "strings")
"""Jobs that only the host does."""


def test_every_library_has_all_jobs_and_a_method():
    jobs = ("density", "frames", "join", "search", "span", "profile", "sets")
    assert {job for _, job in MODULES} == {*jobs, *HOST_JOBS, "memory"}
    assert is_a_file(MODULES["cudf", "memory"])
    for library in LIBRARIES:
        assert all(is_a_file(MODULES[library, job]) for job in jobs)
        assert len(choices_for(library)) > 1


def is_a_file(module):
    """The file of a module, whether or not it can be imported."""
    return (
        Path(find_spec("dask_simjoin").origin).parent.parent
        / (module.replace(".", "/") + ".py")
    ).exists()
