"""Rows of float32 numbers, for tests of narrow points."""

import numpy as np

from dask_simjoin.engine.compat import MIN_DIMS, storage_of, widened
from dask_simjoin.engine.cpu.joiner import CpuJoiner
from dask_simjoin.planning import partition, table

KINDS = (
    "normal",
    "integers",
    "duplicates",
    "huge",
    "denormal",
    "scales",
    "zeros",
    "limits",
)
"""Kinds of rows that `float32_rows` makes."""


def float32_rows(kind, n, d, rng):
    """Draw rows (n, d), float32; in kinds such as "zeros", some are zero or have zeros
    of both signs.
    """
    x = rng.normal(size=(n, d)).astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        if kind == "integers":
            return rng.integers(-(2**24), 2**24 + 1, (n, d)).astype(np.float32)
        if kind == "duplicates":
            return x[rng.integers(0, max(1, n // 8), n)]
        if kind == "huge":
            return np.clip(x.astype(np.float64) * 2.0**126, -3e38, 3e38).astype(
                np.float32
            )
        if kind == "denormal":
            return (
                x.astype(np.float64) * 2.0 ** rng.integers(-149, -125, (n, 1))
            ).astype(np.float32)
        if kind == "scales":
            return (
                x.astype(np.float64) * 2.0 ** rng.integers(-120, 120, (n, 1))
            ).astype(np.float32)
        if kind == "limits":
            some = np.array(
                [2.0**-149, 2.0**-126, 1 - 2.0**-24, 1.0, np.finfo(np.float32).max],
                np.float32,
            )
            return some[rng.integers(0, len(some), (n, d))] * rng.choice(
                np.float32([-1, 1]), (n, d)
            )
        if kind == "zeros":
            x[rng.uniform(size=(n, d)) < 0.7] = rng.choice(np.float32([0.0, -0.0]))
            x[:: max(2, n // 3)] = 0
    return x


def narrow_on_host(monkeypatch):
    """Let plans of pandas frames have narrow points, which the index converts; return a
    list of what it got.

    So tests of planning and tasks need no GPU.
    """
    stored, build = [], CpuJoiner.build

    def noted(self, x, layout, threads=1):
        stored.append(storage_of(x))
        return build(self, widened(x), layout, threads)

    monkeypatch.setattr(CpuJoiner, "build", noted)
    for module in (partition, table):
        monkeypatch.setattr(
            module, "supports_narrow", lambda spec, dims: dims >= MIN_DIMS
        )
    return stored
