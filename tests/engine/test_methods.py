"""The table of methods: each entry's modules do what joiners ask for, and options and messages follow it."""

import numpy as np
import pytest

from dask_simjoin.engine.base import LIBRARIES, method_module
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.sinks import CpuMethod
from dask_simjoin.engine.methods import CHOICES, METHODS, Tiles, choices_for, choices_of, choose
from dask_simjoin.errors import OptionError
from dask_simjoin.planning.statistics.sample import moments
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
    """What a new entry needs is its module: options, messages, plans and tasks take it from the table."""

    class Squares(Tiles):
        max_dims = 2

    monkeypatch.setitem(METHODS, "squares", Squares())
    method_module.cache_clear()
    assert choices_for("pandas") == (*CHOICES, "squares")
    assert choices_of(3) == (*CHOICES[1:], "auto")  # and not in 3 dimensions
    x = np.random.default_rng(0).uniform(size=(500, 2))
    m = moments(x)
    layout = JOINER.layout("squares", m.lower, m.upper, m.mean, m.variance, 0.01)
    index = JOINER.build(x, layout)
    found = JOINER.pairs(index, index, layout, same=True)
    assert len(found.left) == len(frame_of(x).simjoin.self_join(0.1, method="tiles"))
    method_module.cache_clear()


def test_messages_name_the_methods_of_the_table():
    frame = frame_of(np.random.default_rng(0).uniform(size=(10, 5)))
    with pytest.raises(OptionError, match=r"use one of 'auto', 'sweep', 'tiles', 'grid', .*'kmeans'"):
        frame.simjoin.self_join(0.1, method="cells")
    with pytest.raises(OptionError, match=r"at most 4 columns.*use method='tiles' or 'grid' .*or 'auto'"):
        frame.simjoin.self_join(0.1, method="sweep")


def test_methods_say_what_they_do():
    for method in METHODS.values():
        assert type(method).__doc__.partition("\n")[0].endswith(".")
    assert CpuMethod.__doc__
