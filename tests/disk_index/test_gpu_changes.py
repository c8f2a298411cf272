"""An index opened as cuDF's gives the pairs that it gives as pandas'."""

import dask
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from tests.support.oracle import as_set

pytestmark = pytest.mark.gpu

CASES = {
    "2-D": (2, 1.0, {}),
    "20-D": (20, 6.0, {}),
    "cosine": (3, 0.01, {"metric": "cosine"}),
    "manhattan": (3, 1.5, {"metric": "manhattan"}),
}


def rows(dims, first, number):
    x = np.random.default_rng([dims, first]).integers(1, 16, (number, dims)) / 2
    return pd.DataFrame(
        {f"c{k}": x[:, k] for k in range(dims)}
        | {"key": np.arange(first, first + number)}
    )


@pytest.mark.parametrize("case", CASES)
def test_pairs_of_both_libraries_are_the_same(case, tmp_path):
    dims, eps, how = CASES[case]
    with dask.config.set(scheduler="sync"):
        rows(dims, 0, 600).simjoin.index(
            eps,
            tmp_path,
            on=[f"c{k}" for k in range(dims)],
            id="key",
            row_group=64,
            **how,
        )
        device = dask_simjoin.open_index(tmp_path, backend="cudf")
        host = dask_simjoin.open_index(tmp_path, backend="pandas")
        moved = rows(dims, 600, 50).assign(key=np.arange(100, 150))
        new = pd.concat([rows(dims, 1000, 150), moved])
        done = device.update(new, delete=[1, 2, 3], if_exists="replace")
        told = host.changes(1).compute()
        for sign, side in ((1, done.added), (-1, done.removed)):
            found = side.compute()
            assert type(found).__module__.startswith("cudf")
            assert as_set(found.to_pandas()) == as_set(told[told["diff"] == sign])
        assert as_set(device.pairs().compute().to_pandas()) == as_set(
            host.pairs().compute()
        )
        groups = (
            device.components()
            .compute()
            .to_pandas()
            .sort_values("id", ignore_index=True)
        )
        device.optimize("all")
        again = host.components().compute().sort_values("id", ignore_index=True)
        pd.testing.assert_frame_equal(groups, again)
        assert as_set(device.pairs().compute().to_pandas()) == as_set(
            host.pairs().compute()
        )
