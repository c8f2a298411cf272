"""The GPU's kernels give the pairs of the definition: pure functions, no Dask, no data
frames.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
pytest.importorskip("cudf")


from dask_simjoin.engine.cpu.joiner import JOINER as CPU
from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.gpu import tiles as gpu_tiles
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.gpu.sources import OPTIONS, source
from dask_simjoin.engine.index.gpu import ENGINES
from dask_simjoin.engine.index.kdtree import make_regions
from tests.support.gpu_kernels import layout_for
from tests.support.gpu_programs import USES, join_programs
from tests.support.oracle import assert_same_pairs, brute_force, squared_distances
from tests.support.points import KINDS, Case, a_distance, cases, make_points
from tests.support.products import PRODUCTS
from tests.support.profiles import chosen, examples

pytestmark = pytest.mark.gpu

DIMS = chosen([1, 2, 3, 5, 8, 9, 16, 17, 64, 129, 200], [1, 2, 5, 9, 17, 200])
"""Every number of dimensions is compiled by itself, which takes longer than these
tests: so, some.
"""


def programs():
    return join_programs(DIMS, ENGINES, USES)


def with_some_dims(case):
    """The case with the nearest number of dimensions that is compiled."""
    d = max(k for k in DIMS if k <= case.x.shape[1])
    x = np.ascontiguousarray(case.x[:, :d])
    return Case(x, case.eps, case.cuts, case.kind)


def join_chunks(x, eps, cuts, engine, parts=1):
    """Pairs with their distances, and numbers of neighbours, of points cut into chunks."""
    layout = layout_for(x, eps, engine)
    bounds = [0, *cuts, len(x)]
    indexes = [
        JOINER.build(
            cupy.asfortranarray(cupy.asarray(x[a:b].astype(np.float64))), layout
        )
        for a, b in itertools.pairwise(bounds)
    ]
    found, counts = (
        {},
        [np.zeros(b - a, np.int64) for a, b in itertools.pairwise(bounds)],
    )
    for i, j in itertools.combinations_with_replacement(range(len(indexes)), 2):
        q, d, same = indexes[i], indexes[j], i == j
        n = len(q["y"])
        cut = sorted(
            {
                min(n, n * k // parts // layout.grain * layout.grain)
                for k in range(parts)
            }
            | {n}
        )
        slices = list(itertools.pairwise(cut)) if parts > 1 else [None]
        weights = JOINER.weights(q, d, layout, is_self_join=same).get()
        for rows in slices:
            pairs = JOINER.pairs(
                q, d, layout, is_self_join=same, distance=cupy.sqrt, rows=rows
            )
            left, right = pairs.left.get(), pairs.right.get()
            assert not same or (left < right).all()
            here = slice(None) if rows is None else slice(*rows)
            assert weights[here].sum() == len(left)
            names = zip(
                (left + bounds[i]).tolist(), (right + bounds[j]).tolist(), strict=True
            )
            new = dict(zip(names, pairs.distance.get().tolist(), strict=True))
            assert len(new) == len(left) and not new.keys() & found.keys()
            found |= new
        for side, count in zip(
            (i, j), JOINER.counts(q, d, layout, is_self_join=same), strict=False
        ):
            counts[side] += count.get()
    return found, np.concatenate(counts), layout


def check(x, eps, cuts=(), engines=("auto",), parts=1):
    """Join with each of the engines; the definition, which takes longer than all of
    them, is asked once.
    """
    x = np.asarray(x)
    expected = brute_force(x, eps)
    d2 = squared_distances(x, x)
    places = np.array(sorted(expected), np.int64).reshape(-1)
    neighbours = np.bincount(places, minlength=len(x)).tolist()
    for engine in engines:
        found, counts, layout = join_chunks(x, eps, cuts, engine, parts)
        assert_same_pairs(set(found), expected)
        assert all(found[p] == math.sqrt(d2[p]) for p in expected)
        assert counts.tolist() == neighbours
    return layout


@settings(max_examples=examples(150))
@given(
    cases(max_points=400), st.sampled_from(["auto", *ENGINES]), st.sampled_from([1, 3])
)
def test_any_points(case, engine, parts):
    case = with_some_dims(case)
    check(case.x, case.eps, case.cuts, [engine], parts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [d for d in (1, 3, 8, 9, 17, 64, 200) if d in DIMS])
def test_every_kind_in_every_width(kind, dims):
    rng = np.random.default_rng(dims)
    x = make_points(kind, 1100, dims, rng)
    check(x, a_distance(x, rng, 0.01, int(rng.integers(-1, 2))), (370,), ENGINES)


@pytest.mark.parametrize("dims", [d for d in DIMS if d <= 8])
@pytest.mark.parametrize(
    "eps", [0.0, 1.0, math.sqrt(2), math.sqrt(3), 2.0, math.sqrt(5)]
)
@pytest.mark.parametrize("scale", [1.0, 3.0**-40])
def test_lattice_ties(dims, eps, scale):
    side = {1: 200, 2: 20, 3: 8, 5: 4, 8: 2}[dims]
    x = np.array(list(itertools.product(range(side), repeat=dims)), float) * scale
    check(np.random.default_rng(0).permutation(x), eps * scale, (len(x) // 3,), ENGINES)


@pytest.mark.parametrize("engine", ["float16", "float32"])
def test_the_float64_band_is_hit_and_decides_both_ways(engine):
    # of 19,426 equal distances on a lattice of 0.1 float64 takes 3,980 for an ulp or
    # two larger
    x = np.random.default_rng(5).integers(0, 4, (1500, 9)) * 0.1
    eps = 0.316227766016838
    layout = layout_for(x, eps, engine)
    index = JOINER.build(cupy.asarray(x.astype(np.float64)), layout)
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    assert found.decided >= 19_426 and found.refused == 3980
    assert found.decided - found.refused < len(found.left) == len(brute_force(x, eps))


@pytest.mark.parametrize("engine", ENGINES)
def test_more_pairs_than_a_batch_holds(engine, monkeypatch):
    """Kernels stop when the buffer is full, and go on where they stopped."""
    x = np.random.default_rng(0).uniform(size=(20_000, 9))
    eps = a_distance(x[:2000], np.random.default_rng(0), 0.2, 0)
    layout = layout_for(x, eps, engine)
    index = JOINER.build(cupy.asarray(x), layout)
    whole = JOINER.pairs(index, index, layout, is_self_join=True)
    monkeypatch.setattr(gpu_tiles, "BATCH", 1 << 20)
    batches = [
        len(f.places)
        for f in gpu_tiles.batches(index, index, layout, is_self_join=True)
    ]
    assert len(batches) > 5
    assert (
        max(batches) <= (1 << 20) + gpu_tiles._Launch(index, index, layout, True).slack
    )
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    keys = [
        cupy.sort(f.left.astype(cupy.int64) * len(x) + f.right) for f in (whole, found)
    ]
    assert len(keys[0]) == sum(batches) > 30_000_000
    assert (keys[0] == keys[1]).all()


@pytest.mark.parametrize("engine", ["float32", "float64"])
def test_many_ranges_of_tiles(engine, monkeypatch):
    """Trees of three levels, and units of several ranges, which only many millions of
    points make.
    """
    x = np.random.default_rng(0).uniform(size=(700_000, 2))
    layout = layout_for(x, 0.001, engine)
    index = JOINER.build(cupy.asfortranarray(cupy.asarray(x)), layout)
    assert len(index["levels"]) > 3
    monkeypatch.setattr(gpu_tiles, "MAX_UNITS", 1)
    assert gpu_tiles._Launch(index, index, layout, True).span > 1
    pairs = JOINER.pairs(index, index, layout, is_self_join=True)
    cells = np.floor(x / 0.001).astype(np.int64)
    order = np.lexsort((cells[:, 1], cells[:, 0]))
    # an independent count: points by columns of cells, each compared with those next to
    # it
    found, starts = 0, np.searchsorted(cells[order, 0], np.arange(1002))
    x, y = x[order], x[order][:, 1]
    for column in range(1000):
        own, near = (
            slice(*starts[column : column + 2]),
            slice(starts[column], starts[column + 2]),
        )
        close = np.abs(y[own][:, None] - y[near][None, :]) <= 0.0010001
        a, b = np.nonzero(close)
        a, b = a + starts[column], b + starts[column]
        a, b = a[b > a], b[b > a]
        d2 = (x[a, 0] - x[b, 0]) ** 2 + (x[a, 1] - x[b, 1]) ** 2
        found += int((d2 <= 0.001 * 0.001).sum())
    assert len(pairs.left) == found > 500_000
    assert (
        int(JOINER.counts(index, index, layout, is_self_join=True)[0].sum())
        == 2 * found
    )


def test_labels_name_rows():
    x = np.random.default_rng(0).uniform(size=(500, 2))
    layout = layout_for(x, 0.1)
    index = JOINER.build(cupy.asarray(x), layout)
    labels = 1000 - cupy.arange(500)[index["order"]] * 2
    plain = JOINER.pairs(index, index, layout, is_self_join=True)
    named = JOINER.pairs(
        index, index, layout, is_self_join=True, labels=(labels, labels)
    )
    want = {
        (1000 - 2 * a, 1000 - 2 * b)
        for a, b in zip(*(c.tolist() for c in plain[:2]), strict=True)
    }
    assert set(zip(named.left.tolist(), named.right.tolist(), strict=True)) == want


@pytest.mark.parametrize("dims", [24, 72, 200])
def test_tensor_cores_round_less_than_is_assumed(dims):
    """Half of the bound in dask_simjoin.engine.filters.float16, on products that cancel
    as badly as can be."""
    width = half.width(dims)
    told = {"DIMS": dims, "WIDTH": width, "EXACT": 0, "COUNTING": 0}
    module = cupy.RawModule(code=source("tensor", **told) + PRODUCTS, options=OPTIONS)
    rng, worst = np.random.default_rng(0), 0.0
    for trial in range(300):
        x, y = (
            rng.normal(size=(r, width)) * np.exp(rng.normal(0, trial % 4, (r, width)))
            for r in (16, 8)
        )
        y[:, width // 2 :] = -y[:, : width - width // 2]
        x[:, width // 2 :] = x[:, : width - width // 2] * (1 + 1e-3 * (trial % 3))
        with np.errstate(over="ignore"):
            x, y = x.astype(np.float16), y.astype(np.float16)
        if trial % 2:
            shuffle = rng.permutation(width)
            x, y = (
                np.ascontiguousarray(x[:, shuffle]),
                np.ascontiguousarray(y[:, shuffle]),
            )
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            continue
        out = cupy.empty((16, 8), cupy.float32)
        module.get_function("products")(
            (1,), (32,), (cupy.asarray(x), cupy.asarray(y), out)
        )
        x, y = x.astype(np.float64), y.astype(np.float64)
        summands = np.abs(x[:, None, :] * y[None, :, :]).sum(-1)
        error = np.abs(out.get() - x @ y.T) / np.maximum(summands, 1e-300)
        worst = max(worst, float(error.max()))
    bound = 1.5 * width * 2.0**-23
    print(f"{dims} dimensions: {worst:.2e} of {bound:.2e}")
    assert 0 < worst <= bound


def test_errors_surface():
    with pytest.raises(cupy.cuda.compiler.CompileException, match="DIMS"):
        cupy.RawModule(
            code=source("finish", EXACT=1, LABELS=0), options=OPTIONS
        ).get_function("name_pairs")


def test_regions_are_those_of_the_host():
    rng = np.random.default_rng(0)
    for kind in KINDS:
        for dims in (1, 3, 9):
            x = make_points(kind, 2000, dims, rng)
            eps = a_distance(x, rng, 0.01, 0)
            if not np.isfinite(x.max() - x.min()):
                continue
            regions = make_regions(
                x[::5], np.full(400, 5.0), x.min(0), x.max(0), eps, 100, 64
            )
            ours = JOINER.regions(cupy.asarray(x), regions, eps, eps * eps)
            theirs = CPU.regions(x, regions, eps, eps * eps)
            assert (ours[0].get() == theirs[0]).all()
            pairs = [
                set(zip(a.tolist(), b.tolist(), strict=True))
                for a, b in (ours[1:], theirs[1:])
            ]
            assert pairs[0] == pairs[1] and len(pairs[0]) == len(ours[1])
