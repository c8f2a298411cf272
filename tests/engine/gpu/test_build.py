"""A GPU builds the index that the host's definition of it says."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.engine.filters.float16 import (
    make_nearest_vectors,
    make_vectors,
    width,
)
from dask_simjoin.engine.gpu.arrays import bounds, spread
from dask_simjoin.engine.gpu.build import BUILDER
from dask_simjoin.engine.index.gpu import (
    ENGINES,
    boxed,
    build,
    build_nearest,
    make_nearest_device_layout,
)
from tests.support.gpu_kernels import layout_for
from tests.support.points import KINDS, make_points

pytestmark = pytest.mark.gpu


def on_host(index, dims=1):
    """The arrays of an index; slices of vectors are put together."""
    found = {name: cupy.asnumpy(array) for name, array in index.items()}
    if "slices" in found:
        found["vectors"] = together(found.pop("slices"), width(dims))
    return found


def together(slices, width):
    """Vectors (n, width) of tiles of 128, whose slices of 64 numbers have swizzled
    pieces of 8.
    """
    vectors = np.empty((len(slices), width), np.float16)
    for tile in range(0, len(slices), 128):
        numbers, start = slices[tile : tile + 128].ravel(), 0
        for k in range(0, width, 64):
            own = width - k if width - k <= 32 else 64
            part = numbers[start : start + 128 * own].reshape(128, own // 8, 8)
            start += 128 * own
            row, piece = np.ogrid[:128, : own // 8]
            part = part[row, piece ^ row // (64 // own) % (own // 8)].reshape(128, own)
            vectors[tile : tile + 128, k : k + own] = part[:, : width - k]
    return vectors


def check_vectors(found, want, n, dims):
    """Vectors are equal; what sums decide is equal but for the order of summing."""
    assert found.keys() >= want.keys()
    used = want["vectors"].shape[1]
    np.testing.assert_array_equal(
        found["vectors"][:, : used - 8], want["vectors"][:, : used - 8]
    )
    np.testing.assert_array_equal(found["vectors"][n:], want["vectors"][n:])
    np.testing.assert_array_equal(found["vectors"][:, -5:], want["vectors"][:, -5:])
    for array in (found["vectors"], want["vectors"]):
        assert array[:, -8:-5].dtype == np.float16
    parts = (
        array[:, -8:-5].astype(np.float64).sum(axis=1)
        for array in (found["vectors"], want["vectors"])
    )
    np.testing.assert_allclose(*parts, rtol=1e-9, atol=1e-7)
    for name in want.keys() - {"vectors"}:
        np.testing.assert_allclose(
            found[name], want[name], rtol=1e-6 if name == "vectors_sure" else 1e-12
        )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("n", "dims"),
    [
        (1, 1),
        (65, 2),
        (130, 17),
        (5000, 9),
        (600, 200),
        (600, 88),
        (600, 110),
        (300_000, 3),
    ],
)
def test_the_index_of_joins_is_that_of_the_host(engine, n, dims):
    for kind in KINDS if n <= 130 else ("scales", "offset"):
        x = make_points(kind, n, dims, np.random.default_rng(n))
        layout = layout_for(x, 0.1, engine)
        found = on_host(build(cupy.asarray(x), layout, BUILDER), dims)
        assert sorted(found["order"].tolist()) == list(range(n))
        np.testing.assert_array_equal(found["y"], x[found["order"]])
        tensor = ENGINES[layout.engine].tensor
        for name, want in boxed(
            found["y"], layout.bounds, layout.tile, not tensor
        ).items():
            np.testing.assert_array_equal(
                found[name], want, err_msg=f"{name} of {kind}", strict=True
            )
        if tensor:
            check_vectors(found, make_vectors(found["y"], layout.bounds), n, dims)


@pytest.mark.parametrize(("n", "dims"), [(1, 7), (300, 16), (5000, 64)])
def test_the_index_of_searches_is_that_of_the_host(n, dims):
    x = np.random.default_rng(n).normal(size=(n, dims)) + 100
    layout = make_nearest_device_layout(
        x.min(0), x.max(0), x.mean(0), x.var(0), x[:100], engine="float16"
    )
    found = on_host(build_nearest(cupy.asarray(x), layout, BUILDER))
    assert ("vectors" in found) == ENGINES[layout.engine].tensor
    if layout.bounds is not None and "vectors" in found:
        check_vectors(found, make_nearest_vectors(found["y"], layout.bounds), n, dims)


@pytest.mark.parametrize(("n", "dims"), [(1, 1), (255, 3), (100_000, 2), (3000, 300)])
def test_spread_is_that_of_columns(n, dims):
    x = (
        np.random.default_rng(n).normal(size=(n, dims)) * np.geomspace(1e-9, 1e9, dims)
        + 1e6
    )
    given = cupy.asfortranarray(cupy.asarray(x))
    lower, upper, mean, squares = spread(given)
    np.testing.assert_array_equal([lower, upper], [x.min(axis=0), x.max(axis=0)])
    np.testing.assert_array_equal(bounds(given), [lower, upper])
    np.testing.assert_allclose(mean, x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(squares, ((x - mean) ** 2).sum(axis=0), rtol=1e-9)


def test_no_spread_of_what_is_not_finite():
    for value in (np.nan, np.inf, -np.inf):
        x = cupy.zeros((1000, 2), order="F")
        x[700, 1] = value
        assert spread(x) is None and bounds(x) is None
    assert spread(cupy.full((2, 1), 1.7e308, order="F")) is None
    assert spread(cupy.zeros((5, 3))) is None
