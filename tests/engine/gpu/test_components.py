"""Disjoint-set forests of the GPU, compiled for the host."""

import importlib

import numpy as np
import pytest

from tests.support.host_fibers import fibers_like_cupy


@pytest.fixture(scope="module")
def components(kernel_folder):
    with fibers_like_cupy(kernel_folder):
        yield importlib.import_module("dask_simjoin.engine.gpu.components")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_links_unite_the_sets_of_both_ends(components, dtype):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, edges = int(rng.integers(1, 40)), int(rng.integers(0, 40))
        left, right = rng.integers(0, n, (2, edges)).astype(dtype)
        parent, label = np.arange(n, dtype=dtype), np.arange(n)
        components.link(parent, left, right)
        components.run(parent, "tie_to_roots", n, parent, np.int64(n))
        for a, b in zip(left, right, strict=True):
            label[label == max(label[a], label[b])] = min(label[a], label[b])
        assert (
            np.unique(parent, return_inverse=True)[1]
            == np.unique(label, return_inverse=True)[1]
        ).all()
