"""One clustering by HDBSCAN in a process of its own: one core, one thread, and a peak
of memory of its own.

``python -m benchmarks.cpu.hdbscan_worker TOOL DIMS ROWS LABELS`` is what
`cluster_apart` starts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.cpu.clusters_worker import resident
from benchmarks.harness.worker import pin, run_apart

TOOLS = ("ours", "hdbscan", "fast_hdbscan", "sklearn")

SMALL = 3000
"""Rows of the first clustering, which compiles and loads all that the measured one
needs.
"""

MIN_CLUSTER_SIZE, MIN_SAMPLES = 50, 10

BLOBS = 100
"""Number of Gaussian clusters."""

SCALES = 0.1, 1.0
"""Smallest and largest standard deviation of clusters in a box of 10, even on a
logarithmic scale.
"""

NOISE = 0.05
"""Share of rows that are uniform in the box."""


def cluster_apart(
    tool: str, dims: int, rows: int, labels: Path | None, patience: float
) -> dict[str, Any]:
    """Cluster points in a new process; "failed" says why it did not.

    Without a file for labels nothing is clustered: the process only makes the points.
    """
    command = [
        sys.executable,
        "-m",
        "benchmarks.cpu.hdbscan_worker",
        tool,
        str(dims),
        str(rows),
    ]
    found = run_apart(command + ([str(labels)] if labels else []), patience)
    return (
        found
        if "failed" in found
        else found | {"loadavg": [round(load, 2) for load in os.getloadavg()]}
    )


def points(rows: int, dims: int, random: Any = None) -> Any:
    """Draw points (rows, dims) from a generator, or by default the same in every
    process.
    """
    import numpy as np

    random = np.random.default_rng((dims, 1)) if random is None else random
    centres = random.uniform(0, 10, (BLOBS, dims))
    scales = np.exp(random.uniform(np.log(SCALES[0]), np.log(SCALES[1]), BLOBS))
    which = random.integers(0, BLOBS, rows)
    x = centres[which] + scales[which, None] * random.standard_normal((rows, dims))
    anywhere = random.random(rows) < NOISE
    x[anywhere] = random.uniform(0, 10, (int(anywhere.sum()), dims))
    return x


def clustering(tool: str) -> Any:
    """Return a function from points to labels."""
    if tool == "ours":
        import pandas as pd

        import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)

        def ours(x: Any) -> Any:
            frame = pd.DataFrame(x, copy=False)
            return frame.simjoin.hdbscan(MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES)[
                "label"
            ].to_numpy()

        return ours
    if tool == "hdbscan":
        import hdbscan

        def peer(x: Any) -> Any:
            # min_samples counts other rows only, and its default tree is not exact
            how = {"approx_min_span_tree": False, "core_dist_n_jobs": 1}
            model = hdbscan.HDBSCAN(
                MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES - 1, **how
            )
            labels = model.fit(x).labels_
            model.outlier_scores_  # noqa: B018  (ours has them)
            return labels

        return peer
    if tool == "fast_hdbscan":
        import fast_hdbscan

        def fast(x: Any) -> Any:
            # min_samples counts other rows only
            model = fast_hdbscan.HDBSCAN(
                min_cluster_size=MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES - 1
            )
            return model.fit(x).labels_

        return fast
    from sklearn.cluster import HDBSCAN

    def sklearn(x: Any) -> Any:
        model = HDBSCAN(
            min_cluster_size=MIN_CLUSTER_SIZE,
            min_samples=MIN_SAMPLES,
            n_jobs=1,
            copy=False,
        )
        return model.fit(x).labels_

    return sklearn


def main() -> None:
    """Run one measurement and print it as JSON."""
    pin()
    # imported late: libraries count cores and read the environment when they are
    # imported
    import numpy as np

    tool, dims, rows, *labels = sys.argv[1:]
    cluster = clustering(tool)
    cluster(points(SMALL, int(dims)))
    x = points(int(rows), int(dims))
    found: dict[str, Any] = {"rows": int(rows), "before": resident()}
    if labels:
        cpu, began = time.process_time(), time.perf_counter()
        result = np.asarray(cluster(x))
        found["seconds"], found["cpu_seconds"] = (
            time.perf_counter() - began,
            time.process_time() - cpu,
        )
        found |= resident()
        np.save(labels[0], result)
        found["clusters"] = int(result.max(initial=-1)) + 1
        found["noise"] = int((result < 0).sum())
    else:
        found |= resident()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
