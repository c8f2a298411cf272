"""One clustering in a process of its own: one core, one thread, and a peak of memory
that is its own.

``python -m benchmarks cpu.clusters_worker TOOL POINTS FILE LABELS`` is what
`cluster_apart` starts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import pin, run_apart

TOOLS = ("ours", "sklearn", "dbscan")

SMALL = 20_000
"""Rows of the first clustering, which compiles and loads all that the measured one
needs.
"""


def cluster_apart(
    tool: str, points: str, file: Path, labels: Path | None, patience: float
) -> dict[str, Any]:
    """Cluster the points in a file (`save`) in a new process; "failed" says why it did
    not.

    Parameters
    ----------
    tool : str
    points : str
        Name of the points, which decides how they are clustered.
    labels : Path, optional
        File of the labels.  Without it nothing is clustered: the process only loads the
        points.
    """
    command = [
        sys.executable,
        "-m",
        "benchmarks.cpu.clusters_worker",
        tool,
        points,
        str(file),
    ]
    command += [str(labels)] if labels else []
    found = run_apart(command, patience)
    if "failed" in found:
        return found
    return found | {"loadavg": [round(load, 2) for load in os.getloadavg()]}


def save(x: Any, folder: Path) -> dict[str, Path]:
    """Write points (n, 2) in each tool's own type, so that no process spends time on
    conversion.
    """
    import numpy as np

    files = {tool: folder / f"{tool}.npy" for tool in TOOLS}
    np.save(files["ours"], np.ascontiguousarray(x.T))
    for tool in TOOLS[1:]:
        np.save(files[tool], np.ascontiguousarray(x))
    return files


def resident() -> dict[str, int]:
    """Return the bytes of this process that are resident now, and the most so far."""
    import psutil

    now = psutil.Process().memory_info().rss
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return {"rss": now, "peak_rss": int(line.split()[1]) * 1024}
    except OSError:
        pass
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "rss": now,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    }


def main() -> None:
    """Run one measurement and print it as JSON."""
    pin()
    # imported late: libraries count cores and read the environment when they are
    # imported
    import numpy as np

    from benchmarks.harness.cluster_points import POINTS, told

    tool, name, file, *labels = sys.argv[1:]
    points = POINTS[name]
    if tool == "ours":
        import pandas as pd

        import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)

        def given(columns: Any) -> Any:
            return pd.DataFrame({"x": columns[0], "y": columns[1]}, copy=False)

        def cluster(frame: Any, n: int) -> Any:
            return frame.simjoin.dbscan(points.eps(n), points.min_samples)

        cluster(given(points.points(SMALL).T.copy()), SMALL)
    elif tool == "dbscan":
        import dbscan

        def given(array: Any) -> Any:
            return array

        def cluster(array: Any, n: int) -> Any:
            return dbscan.DBSCAN(array, points.eps(n), points.min_samples)[0]

        cluster(given(points.points(SMALL)), SMALL)
    else:
        from sklearn.cluster import DBSCAN

        def given(array: Any) -> Any:
            return array

        def cluster(array: Any, n: int) -> Any:
            how = {
                "min_samples": points.min_samples,
                "algorithm": "kd_tree",
                "n_jobs": 1,
            }
            return DBSCAN(eps=points.eps(n), **how).fit(array).labels_

        cluster(given(points.points(SMALL)), SMALL)
    data = given(np.load(file))
    n = len(data)
    found: dict[str, Any] = {"rows": n, "before": resident()}
    if labels:
        cpu, began = time.process_time(), time.perf_counter()
        result = cluster(data, n)
        found["seconds"], found["cpu_seconds"] = (
            time.perf_counter() - began,
            time.process_time() - cpu,
        )
        # read before anything else is done with the labels, which would take memory
        # itself
        found |= resident()
        array = np.asarray(result)
        np.save(labels[0], array)
        found |= told(array)
    else:
        found |= resident()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
