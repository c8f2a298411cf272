"""Calls a verb for the first time: `python -m benchmarks.cpu.first_use_worker VERB DIMS BACKEND PACKAGE`."""

from __future__ import annotations

import importlib
import json
import sys
import time

import numpy as np

import dask_simjoin
from dask_simjoin.api.compile_kernels import points, run


def main() -> None:
    """Print the seconds of two calls as JSON."""
    verb, dims, backend, package = sys.argv[1:]
    assert str(dask_simjoin.__path__[0]) == package, "another copy of the package was loaded"
    if backend == "cudf":
        importlib.import_module("cudf")
        cupy = importlib.import_module("cupy")
        cupy.asarray(np.zeros(1)).get()  # the driver is there
    frame, eps = points(int(dims), backend)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter(), time.process_time()
        run(verb, frame, eps)
        seconds.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    (wall, cpu), (again, _) = seconds
    print(json.dumps({"wall": round(wall, 3), "cpu": round(cpu, 3), "second call": round(again, 3)}))


if __name__ == "__main__":
    main()
