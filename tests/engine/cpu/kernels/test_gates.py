"""The kernel decides gates as their definition does, and keeps the nearest rows."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.gated import rules_of
from dask_simjoin.engine.cpu.kernels import gates as kernels
from dask_simjoin.engine.cpu.kernels.totals import SQUARES
from dask_simjoin.metrics.formulas import DIFFERENCES
from dask_simjoin.metrics.gates import (
    NUMBERS,
    RELATIVE,
    TIMES,
    UNLIKE,
    Gate,
    Gates,
    allows,
)
from tests.support.oracle import squared_distances

RULES = (
    Gate(TIMES, -(2**60), 2**59),
    Gate(NUMBERS, -0.5, 0.25),
    Gate(RELATIVE, high=0.5),
    Gate(UNLIKE),
)


def values(rng, rows):
    """Return values of each rule with ties, and times that are far apart."""
    times = rng.choice([-(2**63), 2**63 - 1, 2**60, 0, 2**59, 2**60 + 1], rows)
    numbers = rng.integers(-4, 5, (2, rows)) * 0.25
    bits = np.ascontiguousarray(numbers).view(np.int64)
    return np.stack([times, *bits, rng.integers(0, 3, rows)], axis=1)


@pytest.mark.parametrize("some", [(0,), (1,), (2,), (3,), (0, 1, 2, 3), ()])
def test_candidates_are_decided_by_their_definition(some):
    rng = np.random.default_rng(len(some))
    x = [rng.integers(0, 5, (40, 2)) * 1.0 for _ in range(2)]
    own = [np.ascontiguousarray(values(rng, 40)[:, list(some)]) for _ in range(2)]
    sides = (
        kernels.Values(y, bits, bits.view(np.float64))
        for y, bits in zip(x, own, strict=True)
    )
    i, j = (each.ravel().astype(np.int32) for each in np.indices((40, 40)))
    near, totals = np.empty(1600, np.int32), np.empty(1600)
    rules = [RULES[k] for k in some]
    terms = kernels.Terms(DIFFERENCES, 0, np.zeros(2))
    how = rules_of(Gates(rules=tuple(rules))), terms, 4.0, SQUARES
    number = kernels.decide(*sides, *how, i, j, near, totals)
    want = squared_distances(*x)[i, j] <= 4.0
    for g, rule in enumerate(rules):
        want &= allows(rule, own[0][i, g], own[1][j, g])
    assert near[:number].tolist() == np.flatnonzero(want).tolist()
    assert (totals[:number] == squared_distances(*x)[i, j][want]).all()
