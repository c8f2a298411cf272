"""Blocks of sets, and the joiner of GPUs without a GPU."""

import numpy as np
import pytest

from tests.support.host_fibers import fibers_like_cupy
from tests.support.sets_joins import random_sets
from tests.support.sets_oracle import block_of


@pytest.fixture(scope="module")
def many():
    """Blocks of thousands of sets, of up to 300 tokens."""
    rng = np.random.default_rng(3)
    return [
        block_of(random_sets(rng, n, universe, most))[0]
        for n, universe, most in ((3000, 400, 40), (2500, 400, 60), (1500, 900, 300))
    ]


@pytest.fixture(scope="module")
def device(kernel_folder):
    """The joiner of GPUs, compiled for the host, and the module it takes for CuPy."""
    with fibers_like_cupy(kernel_folder) as cupy:
        from dask_simjoin.sets.gpu.joiner import JOINER

        yield cupy, JOINER
