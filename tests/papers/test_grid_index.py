"""The index of the grid joins: its cells, and how many dimensions it takes."""

import itertools
import math

import numpy as np
import pytest

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.papers import grid as index
from dask_simjoin.papers.grid import Grid, costs
from dask_simjoin.planning.sample import moments
from tests.papers.cpu.test_grid import COMPARISONS, counted, laid_out
from tests.support.points import frame_of


def test_cells_are_widened_only_where_numbers_would_not_fit():
    x = np.concatenate([np.zeros((1, 10)), np.full((1, 10), 2.0**29)])
    assert len(laid_out(x, 1.0, Grid(indexed=10)).cells.widened) == 10
    assert laid_out(x, 1.0, Grid(indexed=2)).cells.widened == ()


def skew(rows, dims=18):
    """Clusters whose columns vary more and more."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(20, dims))
    x = centers[rng.integers(20, size=rows)] + rng.normal(0, 0.1, (rows, dims))
    return x * 2.0 ** (np.arange(dims) / 2)


@pytest.mark.slow
def test_the_cost_model_takes_about_the_best_number_of_dimensions():
    x, eps = skew(6000), 30.0
    m = moments(x)
    sample = x[np.random.default_rng(1).choice(len(x), 1500, replace=False)]
    chosen = (
        Grid(indexed="auto", pattern="full")
        .fitted(sample, len(x), m.variance, eps**2)
        .indexed
    )
    spent = {}
    for k in range(1, 9):
        told, _, built = counted(x, eps, Grid(indexed=k, pattern="full"))
        spent[k] = 18 * told[COMPARISONS] + len(x) * 3**k * math.log2(
            len(built["keys"])
        )
    assert spent[chosen] <= 1.5 * min(spent.values()) < max(spent.values())
    every = list(costs(Grid(sort=False), sample, len(x), m.variance, eps**2))
    assert [cost.indexed for cost in every] == list(range(1, 13))
    assert all(
        a.compare >= b.compare and a.search < b.search
        for a, b in itertools.pairwise(every)
    )
    assert (
        frame_of(x[:500])
        .simjoin.plan(eps, method=Grid(indexed="auto"))
        .plan.layout.options.indexed
        != "auto"
    )


def test_more_cells_than_a_join_has_are_no_cells_of_its_parts():
    """A part keeps the mask of the whole."""
    x = np.random.default_rng(2).uniform(size=(400, 3))
    layout = laid_out(x, 0.2)
    built = JOINER.build(x, layout)
    some = index.part(built, 100, 250, 64)
    assert (
        len(some["y"]) == 150 and some["starts"][-1] == 150 and some["starts"][0] == 0
    )
    assert (
        len(some["keys"])
        == len(some["coords"])
        == len(some["starts"]) - 1
        < len(built["keys"])
    )
