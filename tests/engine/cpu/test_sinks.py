"""Pairs that kernels write in one pass, in segments."""

import numpy as np

from dask_simjoin.engine.cpu import joiner as cpu
from dask_simjoin.engine.cpu import sinks as cpu_buffers
from tests.engine.cpu.test_joiner import check


def test_results_longer_than_the_first_segment(method, monkeypatch):
    monkeypatch.setattr(cpu, "MAX_CAPACITY", 64)
    monkeypatch.setattr(cpu, "CAPACITY_PER_POINT", 1)
    monkeypatch.setattr(cpu_buffers, "MIN_PART", 5000)
    rng = np.random.default_rng(2)
    check(rng.uniform(size=(400, 3)), 0.4, (150,), method=method)
