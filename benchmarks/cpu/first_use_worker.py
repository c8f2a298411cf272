"""Calls a verb for the first time: `python -m benchmarks.cpu.first_use_worker VERB DIMS BACKEND PACKAGE`.

Verbs of sets, which have no columns, are called on texts.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from functools import partial

import numpy as np

import dask_simjoin
from dask_simjoin.api.compile_kernels import points, run
from dask_simjoin.api.compile_sets import SET_VERBS, run_on_texts, texts


def main() -> None:
    """Print the seconds of two calls as JSON."""
    verb, dims, backend, package = sys.argv[1:]
    assert str(dask_simjoin.__path__[0]) == package, "another copy of the package was loaded"
    if backend == "cudf":
        importlib.import_module("cudf")
        cupy = importlib.import_module("cupy")
        cupy.asarray(np.zeros(1)).get()  # the driver is there
    if verb in SET_VERBS:
        call = partial(run_on_texts, verb, texts(backend))
    else:
        call = partial(run, verb, *points(int(dims), backend))
    seconds = []
    for _ in range(2):
        begin = time.perf_counter(), time.process_time()
        call()
        seconds.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    (wall, cpu), (again, _) = seconds
    print(json.dumps({"wall": round(wall, 3), "cpu": round(cpu, 3), "second call": round(again, 3)}))


if __name__ == "__main__":
    main()
