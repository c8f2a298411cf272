"""The GPU's searches by lists in Z-order without a GPU: driver, and CUDA C++ compiled
for the host.
"""

import importlib
import itertools
import math

import numpy as np
import pytest

from dask_simjoin.engine.cpu.nearest import SEARCHER as CPU
from dask_simjoin.engine.cpu.nearest import fresh
from dask_simjoin.engine.index.gpu import relabelled
from dask_simjoin.metrics.norms import add
from dask_simjoin.papers.cpu.zorder import build_nearest as cpu_build
from dask_simjoin.papers.lists import ZOrder
from tests.papers.cpu.test_zorder_nearest import layout_of
from tests.support import host_gpu
from tests.support.host_fibers import fibers_like_cupy
from tests.support.nearest import oracle
from tests.support.points import KINDS, make_points
from tests.support.profiles import chosen


@pytest.fixture(scope="module")
def gpu(kernel_folder):
    with fibers_like_cupy(kernel_folder):
        yield importlib.import_module("dask_simjoin.papers.gpu.zorder")


def search(
    gpu, q, d, q_names, d_names, k, same, layout, bound2=math.inf, cuts=(), order=None
):
    """By chunks: both sides cut at `cuts`; each query chunk meets data chunks in
    `order`.
    """
    results = []

    def chunks(x, names):
        bounds = [0, *sorted(min(c, len(x)) for c in cuts), len(x)]
        for a, b in itertools.pairwise(bounds):
            index = gpu.build_nearest(x[a:b].view(host_gpu.Array))
            yield relabelled(index, names[a:b])

    data = list(chunks(d, d_names))
    for chunk in data if q is d else chunks(q, q_names):
        state = fresh(len(chunk["names"]), k)
        for n in order if order is not None else range(len(data)):
            gpu.nearest(
                chunk, data[n], layout, *state, is_self_join=same, bound2=bound2
            )
        results.append(state)
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


def by_cpu(x, names, k, layout):
    state = fresh(len(x), k)
    index = CPU.renamed(cpu_build(x), names)
    CPU.nearest(index, index, layout, *state, is_self_join=True)
    return state


EVERY = list(itertools.product([1, 2, 8, 70], [1, 2]))
FEW = [(70, 2)]


@pytest.mark.parametrize(("dims", "words"), chosen(EVERY, FEW))
def test_neighbours_are_those_of_the_definition_and_near_ones_the_cpus(
    gpu, dims, words
):
    for n, kind in enumerate(KINDS):
        rng = np.random.default_rng(n)
        rows, k = (1, 2, 33, 64, 100)[n % 5], (1, 5, 33, 70)[n % 4]
        x, names = make_points(kind, rows, dims, rng), rng.permutation(rows)
        options = ZOrder(
            lists=(1, 3, 5)[n % 3], words=words, shifts=("even", "random")[n % 2]
        )
        with np.errstate(over="ignore", invalid="ignore"):
            found = search(
                gpu,
                x,
                x,
                names,
                names,
                k,
                True,
                layout_of(x, options),
                cuts=(rows // 3,),
            )
            expected = oracle(x, x, names, names, k, True)
            near = search(gpu, x, x, names, names, k, True, layout_of(x, options, True))
            same = by_cpu(x, names, k, layout_of(x, options, True))
        for one, other in zip((*found, *near), (*expected, *same), strict=True):
            np.testing.assert_array_equal(one, other, kind)


@pytest.mark.slow
def test_two_tables_bounds_and_order_of_chunks(gpu):
    rng = np.random.default_rng(7)
    x = make_points("clusters", 260, 2, rng)
    q, d = x[:90], x[90:]
    q_names, d_names = np.arange(90), rng.permutation(170)
    layout = layout_of(x, ZOrder(lists=3))
    for k, bound2, order in (
        (3, 0.01, (1, 0, 2)),
        (40, math.inf, (2, 1, 0)),
        (5, 0.0, None),
    ):
        found = search(
            gpu, q, d, q_names, d_names, k, False, layout, bound2, (50, 70), order
        )
        expected = oracle(q, d, q_names, d_names, k, False, bound2)
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.slow
def test_many_rows_of_one_place(gpu):
    """The smaller names win, in lists longer than a warp, too; of one key those are
    near that are on CPUs.
    """
    x, names = np.full((90, 2), 0.1), np.random.default_rng(1).permutation(90)
    x[:20] += np.random.default_rng(2).uniform(size=(20, 2))
    for k in (1, 64):
        found = search(gpu, x, x, names, names, k, True, layout_of(x))
        np.testing.assert_array_equal(found[1], oracle(x, x, names, names, k, True)[1])
        near = search(gpu, x, x, names, names, k, True, layout_of(x, None, True))
        np.testing.assert_array_equal(
            near[1], by_cpu(x, names, k, layout_of(x, None, True))[1]
        )


@pytest.mark.parametrize("norm", chosen([1, 3, math.inf], [math.inf]))
def test_other_norms(gpu, norm):
    x = make_points("lattice", 120, 2, np.random.default_rng(1))
    names = np.arange(120)
    found = search(
        gpu, x, x, names, names, 5, True, layout_of(x, norm=norm), cuts=(40,)
    )
    total = np.zeros((120, 120))
    for c in range(2):
        total = add(total, np.abs(x[:, None, c] - x[None, :, c]), norm)
    np.fill_diagonal(total, np.inf)
    order = np.lexsort((np.broadcast_to(names, total.shape), total), axis=1)[:, :5]
    np.testing.assert_array_equal(found[1], order)
    np.testing.assert_array_equal(found[0], np.take_along_axis(total, order, axis=1))
