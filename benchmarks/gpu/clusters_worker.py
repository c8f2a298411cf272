"""One tool that clusters points on one GPU, in a process of its own.

``python -m benchmarks gpu.clusters_worker TOOL POINTS FILE FOLDER OPTIONS`` is what
`cluster_apart` starts.  Memory is the driver's asynchronous pool: quick, and it grows
only when it must, so that the driver sees how much a first run needs.  RMM counts on
top of it, from the start, since libraries keep the resource that they met first.
Kernels are compiled and loaded before, by a small clustering.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OURS = "ours"
PEERS = {"cuml rbc": "rbc", "cuml brute": "brute"}
"""Algorithms of cuML."""

SMALL = 20_000
"""Rows of the first clustering, which compiles and loads all that the measured one
needs.
"""

PRIMED = 2**20
"""First bytes of the pool: almost none."""


def cluster_apart(
    tool: str,
    points: str,
    file: Path,
    folder: Path,
    options: dict[str, Any],
    patience: float,
) -> dict[str, Any]:
    """Cluster the points in a file (`numpy.save`, (n, 2), float32); "failed" says why
    it did not.

    Parameters
    ----------
    tool : str
    points : str
        Name of the points, which decides how they are clustered.
    folder : Path
        Folder of ``TOOL-labels.npy``, and for our tool of ``core.npy``: which rows are
        core rows.
    options : dict
        repeat (runs after a first one), check (whether ours are compared with the
        CPU's), mbytes (cuML's max_mbytes_per_batch, or None).
    """
    command = [sys.executable, "-m", "benchmarks.gpu.clusters_worker"]
    command += [tool, points, str(file), str(folder), json.dumps(options)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"given up after {patience:g} s"}
    found = result_of(done)
    if "failed" in found and tool != OURS and not options.get("plain"):
        # once more with RMM's own resource, whose memory only the driver sees
        again = cluster_apart(
            tool, points, file, folder, options | {"plain": True}, patience
        )
        return again | {"failed with statistics": found["failed"]}
    return found


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON that a process printed last, or how it failed."""
    if done.returncode:
        # keep the lines of the exception, without its traceback
        lines = (done.stderr or "").splitlines()
        last = [
            line
            for line in lines
            if line[:1].strip() and not line.startswith(("Traceback", "#"))
        ][-2:]
        return {"failed": f"exit status {done.returncode}: {' / '.join(last)}"[:500]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def save_labels(labels: Any, path: Path) -> dict[str, Any]:
    """Write labels of a CuPy array or a cuDF Series, and summarize them."""
    import numpy as np

    from benchmarks.harness.cluster_points import told

    array = labels.to_numpy() if hasattr(labels, "to_numpy") else labels.get()
    np.save(path, array)
    return {"dtype": str(array.dtype), **told(array)}


def main() -> None:
    """Run one measurement and print it as JSON."""
    tool, name, file, folder, given = sys.argv[1:]
    options = json.loads(given)
    if tool != OURS:
        import cuml  # noqa: F401  (before CuPy, which loads an older nvJitLink than cuML was linked to)
    import cudf
    import cupy
    import numpy as np
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    from benchmarks.harness.cluster_points import POINTS, digest
    from benchmarks.harness.gpu_memory import Sampled
    from benchmarks.harness.gpu_timing import timed

    cupy.cuda.set_allocator(rmm_cupy_allocator)
    resource = None
    if not options.get("plain"):
        pool = rmm.mr.CudaAsyncMemoryResource(initial_pool_size=PRIMED)
        resource = rmm.mr.StatisticsResourceAdaptor(pool)
        rmm.mr.set_current_device_resource(resource)
    points = POINTS[name]
    x = np.load(file)
    n, min_samples = len(x), points.min_samples

    if tool == OURS:
        import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)

        def given(array: Any) -> Any:
            return cudf.DataFrame(
                {"x": cupy.asarray(array[:, 0]), "y": cupy.asarray(array[:, 1])}
            )

        def cluster(data: Any, eps: float) -> Any:
            return data.simjoin.dbscan(eps, min_samples)

    else:
        from cuml.cluster import DBSCAN

        def given(array: Any) -> Any:
            # in the layout that the library expects
            return cupy.ascontiguousarray(cupy.asarray(array))

        def cluster(data: Any, eps: float) -> Any:
            model = DBSCAN(
                eps=eps,
                min_samples=min_samples,
                algorithm=PEERS[tool],
                calc_core_sample_indices=False,
                max_mbytes_per_batch=options["mbytes"],
                output_type="cupy",
            )
            # with int32, its default, rbc refuses a million rows and brute force more
            # than some millions
            return model.fit(data, out_dtype="int64").labels_

    cluster(given(points.points(SMALL).astype(np.float32)), points.eps(SMALL))
    data, eps = given(x), points.eps(n)
    cupy.cuda.Device().synchronize()
    found: dict[str, Any] = {"rows": n}
    if resource is not None:
        resource.push_counters()
    with Sampled([cupy.cuda.Device().pci_bus_id]) as sampled:
        began = time.perf_counter()
        labels = cluster(data, eps)
        cupy.cuda.Device().synchronize()
        found["seconds_of_first"] = time.perf_counter() - began
    found["peak_rmm"] = (
        None if resource is None else int(resource.pop_counters().peak_bytes)
    )
    found["driver"] = next(iter(sampled.found.values()), None)
    found |= save_labels(labels, Path(folder) / f"{tool}-labels.npy")
    del labels
    found["clock"] = timed(lambda: cluster(data, eps), options["repeat"])
    if tool == OURS:
        core = data.simjoin.neighbor_counts(eps).to_numpy() + 1 >= min_samples
        np.save(Path(folder) / "core.npy", core)
        found["core"] = int(core.sum())
        if options["check"]:
            of_cpu = data.to_pandas().simjoin.dbscan(eps, min_samples).to_numpy()
            found["equal_to_cpu"] = digest(of_cpu) == found["digest"]
    print(json.dumps(found | {"loadavg": [round(load, 2) for load in os.getloadavg()]}))


if __name__ == "__main__":
    main()
