"""Options of the grid joins."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.papers.cpu import grid as method
from dask_simjoin.papers.grid import ORDERS, Grid
from tests.papers.cpu.test_grid import laid_out
from tests.support.points import frame_of


def test_workloads_never_rise_and_orders_are_permutations():
    x = np.random.default_rng(1).exponential(1.0, (3000, 2))
    for order in ORDERS:
        layout = laid_out(x, 0.2, Grid(order=order, batches=5))
        built = JOINER.build(x, layout)
        places = method.sequence(built, built, layout, True)
        assert sorted(places.tolist()) == list(range(len(x)))
        work = method.workload(built, built, layout, True)
        cell = np.searchsorted(built["starts"], places, side="right") - 1
        if order == "given":
            assert built["order"][places].tolist() == [
                n for first in range(5) for n in range(first, 3000, 5)
            ]
        elif order == "queue":
            assert (np.diff(work[cell]) <= 0).all()
        else:
            batches = np.split(
                work[cell],
                np.cumsum([len(range(first, 3000, 5)) for first in range(5)])[:-1],
            )
            assert all((np.diff(batch) <= 0).all() for batch in batches)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("indexed", 0),
        ("indexed", 13),
        ("indexed", "all"),
        ("indexed", True),
        ("indexed", 2.0),
        ("indexed", np.arange(2)),
        ("reorder", 1),
        ("sort", "yes"),
        ("pattern", "half"),
        ("order", 3),
        ("batches", 0),
        ("short_circuit", None),
    ],
)
def test_options_are_checked(name, value):
    with pytest.raises(OptionError, match=rf"Grid\({name}="):
        Grid(**{name: value})


def test_a_class_is_no_method():
    frame = frame_of(np.zeros((3, 2)))
    with pytest.raises(OptionTypeError, match=r"use method=Grid\(\)"):
        frame.simjoin.self_join(1.0, method=Grid)
    with pytest.raises(
        OptionError, match="use one of 'auto', 'sweep', 'tiles', 'grid', 'nested_loop'"
    ):
        frame.simjoin.self_join(1.0, method=3)
