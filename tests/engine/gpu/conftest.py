"""The GPU's spanning trees, compiled for the host."""

import importlib

import pytest

from dask_simjoin.engine.index.gpu import HOST
from tests.support import host_gpu
from tests.support.host_fibers import fibers_like_cupy


@pytest.fixture(scope="module")
def spanning(tmp_path_factory):
    if not host_gpu.available():
        pytest.skip("there is no g++")
    folder = tmp_path_factory.getbasetemp() / "fibers"  # tests of trees share what is compiled
    folder.mkdir(exist_ok=True)
    with fibers_like_cupy(folder):
        module = importlib.import_module("dask_simjoin.engine.gpu.spanning")
        importlib.import_module("dask_simjoin.engine.gpu.rounds").BUILDER = HOST
        yield module
