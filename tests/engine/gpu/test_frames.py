"""Coordinates of cuDF frames are the values of their columns, column by column."""

import numpy as np
import pandas as pd
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")

from dask_simjoin.engine.gpu.frames import FRAMES

pytestmark = pytest.mark.gpu

N = 5000


def frames():
    """Frames whose columns lie in memory in all ways that cuDF has."""
    rng = np.random.default_rng(0)
    plain = cudf.DataFrame({f"x{k}": rng.random(N) for k in range(3)})
    yield "float64", plain
    yield "float32", plain.astype("float32")
    dtypes = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    mixed = {
        name: rng.integers(0, 100, N).astype(name)
        for name in [*dtypes, "float32", "float64", "bool"]
    }
    mixed = cudf.DataFrame(mixed)
    yield "mixed", mixed
    yield "slice", mixed.iloc[37:-5]
    yield "every third row", mixed.iloc[::3]
    missing = mixed.copy()
    for name in mixed.columns[::2]:
        missing[name] = missing[name].where(cudf.Series(rng.random(N) < 0.9), None)
    yield "missing", missing
    yield "slice of missing", missing.iloc[33:]
    nullable = pd.DataFrame(
        {
            "a": pd.array([1, None, 3], "Int64"),
            "b": pd.array([0.5, 2.5, None], "Float32"),
            "c": pd.array([True, None, False], "boolean"),
        }
    )
    yield "nullable", cudf.from_pandas(nullable)
    own = cudf.Series(rng.random(N))
    yield "views", cudf.DataFrame({"a": own.values[5:], "b": own.values[:-5]})
    yield "no rows", mixed.iloc[:0]
    yield "one column", mixed[["int16"]]
    yield (
        "decimals",
        cudf.DataFrame({"a": [1.5, 2.25]}).astype(cudf.Decimal64Dtype(9, 2)),
    )


@pytest.mark.parametrize(("name", "frame"), list(frames()))
def test_coordinates(name, frame):  # the name tells which case fails
    columns = tuple(frame.columns)
    found = FRAMES.coordinates(frame, columns)
    assert found.dtype == np.float64 and found.flags.f_contiguous
    assert found.shape == (len(frame), len(columns))
    for k, column in enumerate(columns):
        want = frame[column].astype("float64").to_numpy(na_value=np.nan)
        np.testing.assert_array_equal(cupy.asnumpy(found[:, k]), want)
    turned = FRAMES.coordinates(frame, columns[::-1])
    np.testing.assert_array_equal(
        cupy.asnumpy(turned[:, ::-1]), cupy.asnumpy(found), strict=True
    )
