"""What a GPU builds indexes with: the kernels that do what `dask_simjoin.engine.index.gpu.HOST` does."""

from __future__ import annotations

import cupy

from dask_simjoin.engine.gpu.boxes import boxed
from dask_simjoin.engine.gpu.kdorder import kd_order, rows_at
from dask_simjoin.engine.gpu.vectors import make_nearest_vectors, make_vectors
from dask_simjoin.engine.index.gpu import Builder

BUILDER = Builder(cupy, kd_order, rows_at, boxed, make_vectors, make_nearest_vectors)
