"""Numbers of pairs of two million points that were counted before, by other programs
too.
"""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ROWS = 2_000_000

KNOWN = [
    ("exponential", 2, 0.05, 618_096_324),
    ("uniform", 6, 8.0, 2_348_059),
    ("exponential", 16, 0.03, 3_597_104),
    ("exponential", 16, 0.05, 1_227_853_926),
]


def drawn(kind, dims):
    if kind == "uniform":
        return (np.random.default_rng(1).random((ROWS, dims)) * 100).astype(np.float32)
    return (
        np.random.default_rng(0)
        .exponential(2.5 if dims == 2 else 1 / 40, (ROWS, dims))
        .astype(np.float32)
    )


@pytest.mark.parametrize(("kind", "dims", "eps", "count"), KNOWN)
@pytest.mark.parametrize("method", ["auto", "grid"])
def test_counts(kind, dims, eps, count, method):
    frame = cudf.DataFrame(
        {f"x{k}": column for k, column in enumerate(drawn(kind, dims).T)}
    )
    assert frame.simjoin.count_pairs(eps, method=method) == count
