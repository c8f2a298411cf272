"""Joins on the GPU with conditions, in boxes and by formulas, without a GPU: NumPy in
place of CuPy, and kernels of nested loops compiled for the host.
"""

import importlib

import numpy as np
import pytest

from dask_simjoin.engine.gated import GatedLayout
from dask_simjoin.engine.gpu.sources import Sink
from dask_simjoin.metrics import gates
from dask_simjoin.metrics.distances import Periodic, make_metric
from dask_simjoin.metrics.gates import (
    NUMBERS,
    RELATIVE,
    TIMES,
    UNLIKE,
    Compared,
    Gate,
    Gates,
)
from dask_simjoin.papers.lists import NestedLoop
from dask_simjoin.planning.sample import moments
from tests.support import host_gpu

LIMIT = 1.0
RULES = (Gate(TIMES, -3, 3), Gate(NUMBERS, -1.0, 2.0), Gate(RELATIVE, 0, 0.25))
GATES = Gates(("t", "v", "w"), ("s",), (*RULES, Gate(UNLIKE)), (1.0, 1.0, 1.0), 2)
SIZES = 150, 90


@pytest.fixture(scope="module")
def device(kernel_folder):
    with host_gpu.like_cupy(kernel_folder) as (fake, _):
        nested = importlib.import_module("dask_simjoin.papers.gpu.nested")
        gated = importlib.import_module("dask_simjoin.engine.gpu.gated")

        def layout_of(*moments_and_threshold):
            options = NestedLoop(block=32, precision="float64")
            return nested.layout(options, *moments_and_threshold, 2)

        yield fake.asarray, gated.GatedMethod(nested), layout_of


def rows_of(rng, n):
    """Return coordinates, and values of the four gates."""
    x = rng.integers(0, 12, (n, 2)) / 4
    values = (
        rng.integers(0, 9, n),
        rng.integers(0, 9, n) / 2,
        rng.integers(1, 9, n) * 1.0,
        rng.integers(0, 3, n),
    )
    return x, [np.asarray(some) for some in values]


def laid_out(asarray, layout_of, sides, box):
    """Return the layout of a join, and the points of each side. `layout_of`: returns
    the layout of candidates for their moments and largest total.
    """
    made = []
    for x, (t, v, w, s) in sides:
        logs = gates.logarithms(w) / gates.log_tolerance(0.25)
        near = [t / 3.0, v / 2.0, logs]
        words = [gates.words_of(some.copy()) for some in (t, v, w, s)]
        made.append(np.column_stack([x, *near, *words]))
    compared = Compared()
    if box:
        metric = Periodic(make_metric("euclidean", 2), box, ("a", "b"))
        made = [metric.embed(np.asfortranarray(some), np) for some in made]
        compared = Compared(2, 3, box)
    numbers = 5 + bool(box)
    m = moments(np.ascontiguousarray(np.concatenate(made)[:, :numbers]))
    threshold = gates.widened(2, LIMIT * (1 + 1e-9), GATES.widths, GATES.words)
    inner = layout_of(m.lower, m.upper, m.mean, m.variance, threshold)
    return GatedLayout(inner, GATES, LIMIT, compared), [*map(asarray, made)]


def allowed(one, other, box):
    """Return which rows are pairs, by the definition."""
    apart = np.abs(one[0][:, None] - other[0][None])
    if box:
        apart[..., 0] = np.minimum(apart[..., 0], box[0] - apart[..., 0])
    near = (apart**2).sum(axis=2) <= LIMIT
    (t, v, w, s), (t2, v2, w2, s2) = one[1], other[1]
    near &= np.abs(t2[None] - t[:, None]) <= 3
    near &= (v2[None] - v[:, None] >= -1) & (v2[None] - v[:, None] <= 2)
    near &= np.abs(w2[None] - w[:, None]) <= 0.25 * np.maximum(w2[None], w[:, None])
    return near & (s2[None] != s[:, None])


@pytest.mark.parametrize("box", [(), (3.0, 0.0)])
def test_two_chunks(device, box):
    asarray, method, layout_of = device
    rng = np.random.default_rng(len(box))
    sides = [rows_of(rng, n) for n in SIZES]
    layout, points = laid_out(asarray, layout_of, sides, box)
    want = allowed(*sides, box)
    assert want.sum() > 20
    q, d = (method.build(some, layout) for some in points)
    found = np.zeros(SIZES, int)
    for some in method.batches(q, d, layout, is_self_join=False):
        left, right = q["order"][some.places[:, 0]], d["order"][some.places[:, 1]]
        np.add.at(found, (left, right), 1)
    assert (found == want).all()
    for count, side, axis in zip(
        method.count(q, d, layout, is_self_join=False), (q, d), (1, 0), strict=True
    ):
        assert count.tolist() == want.sum(axis)[side["order"]].tolist()
    labels = [
        np.arange(n) * (np.arange(n) % 3 == 0) - (np.arange(n) % 3 > 0) for n in SIZES
    ]
    low = [np.full(n, 999) for n in SIZES]
    how = {"is_self_join": False}
    method.pass_to(Sink.LOWEST, q, d, layout, [*labels, *low], **how)
    for near, own, other, lowest in (
        (want, *labels, low[0]),
        (want.T, *labels[::-1], low[1]),
    ):
        every = np.where(near & (other >= 0), other, 999).min(axis=1)
        assert lowest.tolist() == np.where(own < 0, every, 999).tolist()


def test_rows_of_an_index_make_the_same_index(device):
    asarray, method, layout_of = device
    sides = [rows_of(np.random.default_rng(3), 64)]
    layout, (points,) = laid_out(asarray, layout_of, sides, (3.0, 0.0))
    joiner = importlib.import_module("dask_simjoin.engine.gpu.joiner").JOINER
    index = method.build(points, layout)
    again = method.build(joiner.points(index, layout), layout)
    assert (again["values"] == index["values"][again["order"]]).all()
    assert (again["numbers"] == index["numbers"][again["order"]]).all()


def test_components(device):
    asarray, method, layout_of = device
    components = importlib.import_module("dask_simjoin.engine.gpu.components")
    sides = [rows_of(np.random.default_rng(4), SIZES[0])]
    layout, (points,) = laid_out(asarray, layout_of, sides, ())
    # a pair of a table is found once, so the range must be the same in both directions
    layout = GatedLayout(layout.inner, GATES.two_sided, LIMIT, Compared())
    index = method.build(points, layout)
    edges = []
    taking = asarray(np.arange(SIZES[0]) % 5 > 0)
    linked = components.link
    module = importlib.import_module("dask_simjoin.engine.gpu.gated")
    module.link = lambda parent, left, right: edges.extend(
        zip(left.tolist(), right.tolist(), strict=True)
    )
    how = {"is_self_join": True}
    method.pass_to(Sink.LINK, index, index, layout, [taking, taking, None, 7], **how)
    module.link = linked
    one = sides[0]
    want = allowed(one, one, ()) | allowed(one, one, ()).T
    low, high = np.nonzero(np.triu(want & taking[:, None] & taking[None], 1))
    found = {(min(i, j - 7), max(i, j - 7)) for i, j in edges}
    assert found == set(zip(low.tolist(), high.tolist(), strict=True))
