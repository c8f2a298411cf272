"""The GPU's spanning trees, compiled for the host."""

import importlib

import pytest

from dask_simjoin.engine.index.gpu import HOST
from tests.support.host_fibers import fibers_like_cupy


@pytest.fixture(scope="module")
def spanning(kernel_folder):
    with fibers_like_cupy(kernel_folder):
        module = importlib.import_module("dask_simjoin.engine.gpu.spanning")
        for room in ("rounds", "sides"):
            importlib.import_module(f"dask_simjoin.engine.gpu.{room}").BUILDER = HOST
        yield module
