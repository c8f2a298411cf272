"""Result columns on a GPU that grow batch by batch."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.engine.gpu.pairs import GrowingGpuColumns

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("told", [0, 3, 50, 10_000])
def test_columns_grow_whatever_was_expected(told):
    random = np.random.default_rng(told)
    columns, parts = GrowingGpuColumns([np.int32, np.float64]), []
    for more in (5, 0, 7, 200, 1, 63):
        parts.append(
            [random.integers(0, 9, more).astype(np.int32), random.random(more)]
        )
        for place, part in zip(columns.add(more, told), parts[-1], strict=True):
            place[:] = cupy.asarray(part)
    for k, column in enumerate(columns.columns()):
        np.testing.assert_array_equal(
            cupy.asnumpy(column), np.concatenate([part[k] for part in parts])
        )
