"""One tool that finds HDBSCAN's clusters on one GPU, in a process of its own.

``python -m benchmarks.gpu.hdbscan_worker TOOL FILE LABELS OPTIONS`` is what
`cluster_apart` starts. Libraries are loaded, and kernels compiled, by a small
clustering before the clock starts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cpu.hdbscan_worker import MIN_CLUSTER_SIZE, MIN_SAMPLES
from benchmarks.gpu.clusters_worker import result_of

TOOLS = ("ours", "cuml")

SMALL = 20_000
"""Rows of the first clustering, which compiles and loads all that the measured one
needs.
"""

SCATTERED = 7
"""One row in this many is compared with the CPU; rows are in no order."""


def cluster_apart(
    tool: str, file: Path, labels: Path, options: dict[str, Any], patience: float
) -> dict[str, Any]:
    """Cluster the points in a file (`numpy.save`, (n, d), float32); "failed" says why
    it did not.

    `labels`: the file for the labels; `options`: repeat (runs after a first one), and
    check (number of rows to compare with the CPU's results).
    """
    command = [sys.executable, "-m", "benchmarks.gpu.hdbscan_worker"]
    command += [tool, str(file), str(labels), json.dumps(options)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"given up after {patience:g} s"}
    return result_of(done)


def _clock() -> float:
    import cupy

    cupy.cuda.Device().synchronize()
    return time.perf_counter()


def stages(frame: Any) -> dict[str, Any]:
    """Return seconds of our steps (distances and labels are made on the host), and the
    tree's weight.
    """
    from dask_simjoin.cluster.algorithms.condensed_tree import condense, label_tree
    from dask_simjoin.cluster.algorithms.spanning import (
        distances_of,
        neighbors_needed,
        search_core_distances,
        tree_of_chunk,
    )
    from dask_simjoin.planning.outputs import tree_output
    from dask_simjoin.request.clusters import HdbscanRequest
    from dask_simjoin.tasks.chunks import whole_chunks

    asked = HdbscanRequest(MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES)
    spec, seconds, began = asked.spec(frame.iloc[:0]), {}, _clock()

    def note(name: str) -> None:
        nonlocal began
        now = _clock()
        seconds[name] = round(now - began, 4)
        began = now

    output = tree_output(neighbors_needed(MIN_SAMPLES))
    (chunk,), plan = whole_chunks([frame], spec, output)
    note("index")
    known = search_core_distances(chunk, plan.layout, MIN_SAMPLES)
    note("core distances")
    weight, start, end = tree_of_chunk(chunk, 0, plan.layout, known)
    note("tree")
    away = distances_of(weight, spec.measure)
    note("distances")
    condensed = condense(start, end, away, MIN_CLUSTER_SIZE, frame)
    note("condensed tree")
    label_tree(condensed, asked.choice())
    note("labels")
    return {"stages": seconds, "engine": plan.layout.engine, "tree": float(away.sum())}


def as_on_cpu(x: Any, frame: Callable[[Any], Any]) -> bool:
    """Return whether our results for some rows equal the CPU's: the tree edge by edge,
    and all outputs.
    """
    import pandas as pd

    host = pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])])
    there = frame(x)
    for verb, how in (
        ("spanning_tree", {"min_samples": MIN_SAMPLES}),
        ("hdbscan", {"min_cluster_size": MIN_CLUSTER_SIZE, "min_samples": MIN_SAMPLES}),
    ):
        want, found = (getattr(some.simjoin, verb)(**how) for some in (host, there))
        if not found.to_pandas().equals(want):
            return False
    return True


def main() -> None:
    """Run one measurement and print it as JSON."""
    tool, file, labels, given = sys.argv[1:]
    options = json.loads(given)
    if tool != "ours":
        import cuml  # noqa: F401  (before CuPy, which loads an older nvJitLink than cuML was linked to)
    import cudf
    import cupy
    import numpy as np
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    from benchmarks.harness.gpu_timing import SLOW

    pool = rmm.mr.CudaAsyncMemoryResource()
    resource = rmm.mr.StatisticsResourceAdaptor(pool)
    rmm.mr.set_current_device_resource(resource)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    x = np.load(file)
    found: dict[str, Any] = {"rows": len(x)}

    if tool == "ours":
        import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)

        def frame(array: Any) -> Any:
            device = cupy.asarray(np.ascontiguousarray(array.T))
            return cudf.DataFrame({f"x{k}": device[k] for k in range(len(device))})

        def cluster(data: Any) -> Any:
            return data.simjoin.hdbscan(MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES)[
                "label"
            ]

    else:
        from cuml.cluster import HDBSCAN

        def frame(array: Any) -> Any:
            # in the layout that the library expects
            return cupy.ascontiguousarray(cupy.asarray(array))

        def cluster(data: Any) -> Any:
            # min_samples counts other rows only
            model = HDBSCAN(
                min_cluster_size=MIN_CLUSTER_SIZE,
                min_samples=MIN_SAMPLES - 1,
                output_type="cupy",
            )
            found["model"] = model.fit(data)
            return model.labels_

    cluster(frame(x[:SMALL]))
    found.pop("model", None)
    data = frame(x)
    cupy.cuda.Device().synchronize()
    seconds: list[float] = []
    while len(seconds) <= options["repeat"] and not (seconds and seconds[0] > SLOW):
        resource.push_counters()
        began = _clock()
        result = cluster(data)
        seconds.append(round(_clock() - began, 4))
        found["peak_rmm"] = int(resource.pop_counters().peak_bytes)
        model = found.pop("model", None)
        if len(seconds) == 1:
            array = result.to_numpy() if hasattr(result, "to_numpy") else result.get()
            np.save(labels, array)
            found |= {
                "clusters": int(array.max(initial=-1)) + 1,
                "noise": int((array < 0).sum()),
            }
            # each edge of the tree says which clusters it joins, and their distance
            linkage = getattr(model, "_single_linkage_tree", None)
            found["tree"] = (
                None
                if linkage is None
                else float(np.asarray(linkage)[:, 2].sum(dtype=float))
            )
        del result, model
    found["clock"] = {
        "median": statistics.median(seconds[1:] or seconds),
        "seconds": seconds,
    }
    if tool == "ours":
        found |= stages(data)
        step = max(1, min(SCATTERED, len(x) // max(1, options["check"])))
        some = np.ascontiguousarray(x[: options["check"] * step : step])
        found |= {"checked": len(some), "equal_to_cpu": as_on_cpu(some, frame)}
    print(json.dumps(found | {"loadavg": [round(load, 2) for load in os.getloadavg()]}))


if __name__ == "__main__":
    main()
