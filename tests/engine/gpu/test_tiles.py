"""Kernels of slices: for more dimensions than registers hold, and of warpgroups. No
Dask, no data frames.
"""

import itertools
import math

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")


from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu import tiles as gpu_tiles
from dask_simjoin.engine.gpu.sources import OPTIONS, source
from tests.support.gpu_kernels import layout_for
from tests.support.gpu_programs import SINKS, USES
from tests.support.oracle import assert_same_pairs, brute_force, squared_distances
from tests.support.points import KINDS, make_points
from tests.support.products import PRODUCTS, PRODUCTS_OF_WARPGROUP

pytestmark = pytest.mark.gpu

DIMS = [33, 64, 201, 256, 384, 1000]


def programs():
    shared = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    told = {dims: half.program(dims, shared) for dims in DIMS}
    wanted = [
        *itertools.product(DIMS, USES),
        *((384, sink) for sink in SINKS if not sink["NODES_64"]),
    ]
    return [
        (
            told[d][0],
            f"join_{told[d][0]}",
            {"DIMS": d, "EXACT": False} | told[d][1] | use,
        )
        for d, use in wanted
    ]


@pytest.fixture(autouse=True, params=["warpgroups", "warps"])
def kernel(request, monkeypatch):
    """Both kernels of a GPU that has warpgroups."""
    if request.param == "warps":
        monkeypatch.setattr(half, "TENSOR_DIMS", 10**9)
    elif not load.has_warpgroups():
        pytest.skip("warpgroups need compute capability 9.0")


def squares(x, y):
    """All d2 by the definition: CuPy rounds every operation."""
    x, y = cupy.asarray(x, np.float64), cupy.asarray(y, np.float64)
    total = cupy.zeros((len(x), len(y)))
    for k in range(x.shape[1]):
        t = x[:, k, None] - y[None, :, k]
        t *= t
        total += t
    return total.get()


def index_of(x, layout):
    return gpu_tiles.build(cupy.asfortranarray(cupy.asarray(x, np.float64)), layout)


def pairs_of(q, d, layout, same, rows=None):
    """Pairs of positions, sorted, and how many float64 decided and refused."""
    found, told = [np.empty((0, 2), np.int64)], (0, 0)
    for batch in gpu_tiles.batches(q, d, layout, is_self_join=same, rows=rows):
        places = batch.places.get()
        both = np.stack(
            [q["order"].get()[places[:, 0]], d["order"].get()[places[:, 1]]], axis=1
        )
        found.append((np.sort(both, axis=1) if same else both).astype(np.int64))
        told = batch.decided, batch.refused
    return ordered(np.concatenate(found)), told


def ordered(pairs):
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def assert_pairs(found, near):
    """That pairs are those of a matrix, each once."""
    expected = np.argwhere(near)
    if not np.array_equal(found, expected):
        assert_same_pairs(
            set(map(tuple, found.tolist())), set(map(tuple, expected.tolist()))
        )
        raise AssertionError("some pairs were found twice")


def counts_of(sides, layout, same, both=True):
    """Numbers of pairs by position."""
    found = gpu_tiles.count(sides[0], sides[-1], layout, is_self_join=same, both=both)
    by_position = [np.empty(len(c), np.int64) for c in found]
    for out, side, count in zip(by_position, sides, found, strict=False):
        out[side["order"].get()] = count.get()
    return by_position


def check(x, eps, d2, cut, engine="float16"):
    """A chunk with itself, whole and in slices, and with another, against d2."""
    layout = layout_for(x, eps, engine)
    if layout.engine != engine:
        return None
    near = d2 <= eps * eps
    one, two = x[:cut], x[cut:]
    whole, parts = index_of(x, layout), [index_of(one, layout), index_of(two, layout)]
    found, told = pairs_of(whole, whole, layout, True)
    assert_pairs(found, np.triu(near, 1))
    assert told[0] >= told[1]
    places = [*range(0, len(x), 3 * layout.grain), len(x)]
    sliced = [
        pairs_of(whole, whole, layout, True, rows)[0]
        for rows in itertools.pairwise(places)
    ]
    assert np.array_equal(ordered(np.concatenate(sliced)), found)
    across, _ = pairs_of(*parts, layout, False)
    assert_pairs(across, near[:cut, cut:])
    assert (counts_of([whole], layout, True)[0] == near.sum(1) - 1).all()
    assert counts_of([whole], layout, True, both=False)[0].sum() == len(found)
    counts = counts_of(parts, layout, False)
    assert (counts[0] == near[:cut, cut:].sum(1)).all() and (
        counts[1] == near[:cut, cut:].sum(0)
    ).all()
    return told


def test_the_definition_is_that_of_the_host():
    x = np.random.default_rng(0).normal(size=(200, 384))
    assert (squares(x[:90], x) == squared_distances(x[:90], x)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", DIMS)
def test_every_kind_in_every_width(dims, kind):
    rng = np.random.default_rng(dims)
    x = make_points(kind, 1100, dims, rng)
    d2 = squares(x, x)
    some = np.sort(d2[np.triu_indices(len(x), 1)])
    # distances that points have, and their neighbours
    used = 0
    for rank, off in ((0.01, int(rng.integers(-1, 2))), (float(rng.uniform()), 0)):
        eps = math.sqrt(min(some[int(rank * (len(some) - 1))], 1e300))
        eps = math.nextafter(eps, math.inf * off) if off else eps
        used += check(x, eps, d2, 370) is not None
    assert used or kind in ("duplicates", "huge", "tiny", "constant")


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("n", [1, 2, 127, 128, 129, 256, 257])
def test_few_points(dims, n):
    x = np.random.default_rng(n).normal(size=(n, dims))
    check(x, math.sqrt(2 * dims), squares(x, x), n // 2)


def test_pairs_are_those_of_the_host():
    x = (
        make_points("clusters", 700, 384, np.random.default_rng(0))
        .astype(np.float32)
        .astype(np.float64)
    )
    eps = 1.4
    layout = layout_for(x, eps, "auto")
    assert layout.engine == "float16"
    index = index_of(x, layout)
    expected = brute_force(x, eps)
    assert 1000 < len(expected) < 700 * 699 // 2
    found = pairs_of(index, index, layout, True)[0]
    assert_same_pairs(set(map(tuple, found.tolist())), expected)


def test_the_float64_band_is_hit_and_decides_both_ways():
    # the lattice of test_gpu_tiles, spread over 384 columns: 3,980 of 19,426 equal
    # distances are refused
    x = np.tile(np.arange(384) % 4 * 0.1, (1500, 1))
    x[:, 5:380:45] = np.random.default_rng(5).integers(0, 4, (1500, 9)) * 0.1
    eps = 0.316227766016838
    decided, refused = check(x, eps, squares(x, x), 700)
    assert decided >= 19_426 and refused >= 3980
    assert decided > refused


def test_near_duplicates_are_told_apart_in_float64():
    """Distances so small against the norms that what tensor cores round decides
    nothing.
    """
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 384))
    x = np.concatenate(
        [x, x + rng.normal(size=x.shape) * rng.choice([1e-5, 1e-3, 1e-2], (600, 1))]
    )
    d2 = squares(x, x)
    for eps in (1e-3, math.sqrt(d2[5, 605]), math.sqrt(d2[7, 607]) * (1 - 2**-52), 0.2):
        decided, refused = check(x, eps, d2, 500)
        assert decided > refused > 0


@pytest.mark.parametrize("dims", [256, 1000])
def test_more_pairs_than_a_batch_holds(monkeypatch, dims):
    """The kernel stops when the buffer is full, and goes on there; also if clusters
    share queries.
    """
    x = np.random.default_rng(0).normal(size=(12_000, dims))
    eps = math.sqrt(2 * dims)
    layout = layout_for(x, eps, "float16")
    index = index_of(x, layout)

    def keys():
        places = [
            f.places.astype(cupy.int64)
            for f in gpu_tiles.batches(index, index, layout, is_self_join=True)
        ]
        return [len(some) for some in places], cupy.sort(
            cupy.concatenate([(p[:, 0] << 32) + p[:, 1] for p in places])
        )

    _, whole = keys()
    monkeypatch.setattr(gpu_tiles, "BATCH", 1 << 20)
    sizes, found = keys()
    assert len(sizes) > 3 and sum(sizes) == len(whole) > 20_000_000
    assert max(sizes) <= (1 << 20) + gpu_tiles._Launch(index, index, layout, True).slack
    assert (found == whole).all()
    assert int(
        gpu_tiles.count(index, index, layout, is_self_join=True)[0].sum()
    ) == 2 * len(whole)


@pytest.mark.parametrize("same", [True, False])
def test_sinks(same):
    rng = np.random.default_rng(3)
    x = make_points("clusters", 900, 384, rng)
    d2 = squares(x, x)
    eps = 1.5
    layout = layout_for(x, eps, "float16")
    cut = 900 if same else 400
    sides = [x] if same else [x[:cut], x[cut:]]
    q, d = (index_of(side, layout) for side in (sides[0], sides[-1]))
    near = d2 <= eps * eps
    near = np.triu(near, 1) if same else np.pad(near[:cut, cut:], ((0, 500), (400, 0)))
    near |= near.T
    parent = cupy.arange(900, dtype=np.uint32)
    taking = [cupy.ones(len(side), bool) for side in (sides[0], sides[-1])]
    gpu_tiles.pass_to(
        gpu_tiles.Sink.LINK,
        q,
        d,
        layout,
        [*taking, parent, 0 if same else cut],
        is_self_join=same,
    )
    root = parent.get().astype(np.int64)
    while (root != root[root]).any():
        root = root[root]
    label = np.arange(900)  # the smallest of those that are tied, by passing it on
    while True:
        new = np.minimum(label, np.where(near, label[None, :], 900).min(1))
        if (new == label).all():
            break
        label = new
    assert (root == label).all() and 10 < len(set(root.tolist())) < 900
    labels = [rng.integers(-1, 50, len(side)) for side in sides]
    labels = [labels[0], labels[-1]]
    low = [cupy.full(len(some), 1000) for some in labels]
    low = [low[0], low[0] if same else low[1]]
    given = [cupy.asarray(some) for some in labels]
    gpu_tiles.pass_to(
        gpu_tiles.Sink.LOWEST, q, d, layout, [*given, *low], is_self_join=same
    )
    told = labels[0] if same else np.concatenate(labels)
    found = low[0].get() if same else np.concatenate([some.get() for some in low])
    lowest = np.where(near & (told >= 0)[None, :], told[None, :], 1000).min(1)
    assert (found == np.where(told < 0, lowest, 1000)).all()


def products_of_warps(dims):
    """A function that multiplies 16 rows by 8 on tensor cores, and the width of these
    rows.
    """
    _, told, _ = half.program(dims, 2**20)
    module = cupy.RawModule(
        code=source("tensor_wide", DIMS=dims, EXACT=0, COUNTING=0, **told) + PRODUCTS,
        options=OPTIONS,
    )

    def multiply(x, y):
        out = cupy.empty((16, 8), cupy.float32)
        module.get_function("products")(
            (1,), (32,), (cupy.asarray(x), cupy.asarray(y), out)
        )
        return out.get()

    return multiply, 16, 8, told["WIDTH"]


def products_of_warpgroups(dims):
    """The same for 64 rows by 128."""
    _, told, _ = half.hopper_program(dims, 227 * 1024)
    code = (
        source("tensor_hopper", DIMS=dims, EXACT=0, COUNTING=0, **told)
        + PRODUCTS_OF_WARPGROUP
    )
    multiply_all = load._compiled_for(
        "90a", code, "products_of_warpgroup"
    ).get_function("products_of_warpgroup")

    def multiply(x, y):
        out = cupy.empty((64, 128), cupy.float32)
        multiply_all((1,), (128,), (cupy.asarray(x), cupy.asarray(y), out))
        return out.get()

    return multiply, 64, 128, told["WIDTH"]


@pytest.mark.parametrize("dims", [384, 1024, 2048])
def test_tensor_cores_round_less_than_is_assumed(dims, kernel, request):
    """Half of the bound in dask_simjoin.engine.filters.float16, also where all products
    are of one sign, then cancel."""
    by_group = "warpgroups" in request.node.callspec.id
    multiply, rows, points, width = (
        products_of_warpgroups if by_group else products_of_warps
    )(dims)
    rng, worst = np.random.default_rng(0), 0.0
    for trial in range(120):
        x, y = (
            np.exp(rng.normal(0, trial % 3, (number, width)))
            for number in (rows, points)
        )
        if trial % 2:
            y[:, width // 2 :] = -y[:, : width // 2]
            x[:, width // 2 :] = x[:, : width // 2] * (1 + 1e-3 * (trial % 3))
        if trial % 4 == 3:
            shuffle = rng.permutation(width)
            x, y = (
                np.ascontiguousarray(x[:, shuffle]),
                np.ascontiguousarray(y[:, shuffle]),
            )
        x, y = x.astype(np.float16), y.astype(np.float16)
        found = multiply(x, y)
        x, y = x.astype(np.float64), y.astype(np.float64)
        error = np.abs(found - x @ y.T) / (np.abs(x) @ np.abs(y).T)
        worst = max(worst, float(error.max()))
    bound = 1.5 * width * 2.0**-23
    print(f"{dims} dimensions: {worst:.2e} of {bound:.2e}")
    assert 0 < worst <= bound
