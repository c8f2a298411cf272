"""The table of methods: each entry's modules do what joiners ask for, and options and
messages follow it.
"""

import ast

import numpy as np
import pytest

from dask_simjoin.catalog import (
    CHOICES,
    LIBRARIES,
    LOSSY,
    LOSSY_NEAREST,
    METHODS,
    NEAREST,
    Method,
    Tiles,
    choices_for,
    choices_of,
    choose,
    is_method,
    name_of,
)
from dask_simjoin.engine.base import method_module
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.sinks import CpuMethod
from dask_simjoin.errors import OptionError
from dask_simjoin.planning.sample import moments
from tests.support.modules import functions, names_made_elsewhere, text_of
from tests.support.points import frame_of


def test_the_best_method_serves():
    for library in LIBRARIES:
        for dims in range(1, 70):
            name = choose("auto", dims, library)
            assert name in choices_for(library)
            assert name in choices_of(dims)
    assert [choose("auto", dims, "pandas") for dims in (3, 4)] == ["sweep", "tiles"]
    assert choose("sweep", 4, "pandas") == "sweep"


def test_a_method_is_one_entry(monkeypatch):
    """What a new entry needs is its module: options, messages, plans and tasks take it
    from the table.
    """

    class Squares(Tiles):
        max_dims = 2

    monkeypatch.setitem(METHODS.entries, "squares", Squares())
    method_module.cache_clear()
    assert choices_for("pandas") == (*CHOICES, "squares")
    assert choices_of(3) == (*CHOICES[1:], "auto")  # and not in 3 dimensions
    x = np.random.default_rng(0).uniform(size=(500, 2))
    m = moments(x)
    layout = JOINER.layout("squares", m.lower, m.upper, m.mean, m.variance, 0.01)
    index = JOINER.build(x, layout)
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    assert len(found.left) == len(frame_of(x).simjoin.self_join(0.1, method="tiles"))
    method_module.cache_clear()


def test_messages_name_the_methods_of_the_table():
    frame = frame_of(np.random.default_rng(0).uniform(size=(10, 5)))
    with pytest.raises(
        OptionError, match=r"use one of 'auto', 'sweep', 'tiles', 'grid', .*'kmeans'"
    ):
        frame.simjoin.self_join(0.1, method="cells")
    with pytest.raises(
        OptionError,
        match=r"at most 4 columns.*use method='tiles' or 'grid' .*or 'auto'",
    ):
        frame.simjoin.self_join(0.1, method="sweep")


def test_methods_of_papers_are_known_by_name_alone():
    """What the table says of them without loading them is so."""
    published = {
        name: entry for name, entry in METHODS.entries.items() if isinstance(entry, str)
    }
    assert len(published) == 4
    for name, path in published.items():
        method = METHODS[name]
        assert path == f"{type(method).__module__}:{type(method).__qualname__}"
        assert method.modules.keys() == set(LIBRARIES) and method.max_dims is None
        assert name_of(method) == name and is_method(method) and not method.is_best(2)
    assert not is_method(next(iter(published.values()))) and not is_method(Method())
    assert all(name in METHODS for name in CHOICES[1:]) and "auto" not in METHODS


def test_methods_that_search_offer_what_the_protocol_says():
    protocol = text_of("dask_simjoin.engine.protocols")
    (wanted,) = (
        functions(node)
        for node in protocol.body
        if isinstance(node, ast.ClassDef) and node.name == "SearchMethod"
    )
    searching = [method for method in METHODS.values() if method.has_search]
    assert [name_of(method) for method in searching] == [
        name for name in NEAREST if name not in ("auto", "tiles")
    ]
    for module in (
        module for method in searching for module in method.modules.values()
    ):
        tree = text_of(module)
        offered = functions(tree)
        assert wanted.keys() <= offered.keys() | names_made_elsewhere(tree)
        for function, arguments in wanted.items():
            assert offered.get(function, arguments[1:]) == arguments[1:]


def test_methods_that_may_lose_pairs_estimate_their_recall():
    lossy = {
        name for name, method in METHODS.items() if method.recall_module is not None
    }
    assert lossy == {*LOSSY, *LOSSY_NEAREST}


def test_methods_say_what_they_do():
    for method in METHODS.values():
        assert type(method).__doc__.partition("\n")[0].endswith(".")
    assert CpuMethod.__doc__
