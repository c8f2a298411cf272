"""``python -m benchmarks papers.semantic``: embeddings by k-means and pairs within
clusters, or exactly.

Theirs is the semantic de-duplication of NVIDIA's NeMo Curator (after SemDeDup, Abbas et
al. 2023), as its source has it: unit vectors in float32, k-means of all rows (1,000
clusters, up to 300 iterations, tolerance 1e-4, one start), and in each cluster products
of 1,024 rows at a time with all, of which each row keeps the largest with a row before
it; a row is a duplicate if that is at least 1 - eps (eps 0.01 by default).  K-means is
scikit-learn's, or on a GPU cuML's, which is theirs.  There are also as many clusters as
have 1,000 rows.

Ours is `self_join` by cosine distance, exact, and with ``method=KMeans(...),
approximate=True``.  Seconds are of the CPU, on one core, or with ``--backend gpu`` of
the clock; medians of ``--repeat`` runs.  Pairs that only theirs has must be within
rounding of eps, or this program fails.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.repeats import summary
from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__" and "gpu" not in sys.argv:
    # set before the imports below, because libraries count cores and read the
    # environment when imported
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
import pandas as pd

from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write
from dask_simjoin.errors import ApproximateWarning
from dask_simjoin.methods import KMeans

CLUSTERS, ITERATIONS, TOLERANCE, SEED, BATCH = 1000, 300, 1e-4, 42, 1024
"""The defaults of NeMo Curator, and the least number of clusters that it recommends."""

DISTANCES = (0.01, 0.05, 0.1, 0.2)
ROWS, DIMS = {"cpu": 12_000, "gpu": 1_000_000}, 384

ROUNDING = 1e-5
"""Float32 products may decide a pair wrongly within this difference from eps."""


def made(kind: str, rows: int) -> np.ndarray:
    """Draw embeddings (n, d), float32: even directions with changed copies, or topics
    of 100 rows.
    """
    rng = np.random.default_rng(0)
    if kind == "topics":
        centres = rng.standard_normal((rows // 100, DIMS), np.float32)
        width = 0.05 + 0.45 * rng.random((rows // 100, 1), np.float32)
        which = rng.integers(0, rows // 100, rows)
        return centres[which] + width[which] * rng.standard_normal(
            (rows, DIMS), np.float32
        )
    x, some = rng.standard_normal((rows, DIMS), np.float32), rows // 10
    noise = np.sqrt(2 * rng.random((some, 1), np.float32) * np.float32(0.3))
    x[-some:] = x[:some] + noise * rng.standard_normal((some, DIMS), np.float32)
    return x


def read(folder: Path) -> np.ndarray:
    """Read the embeddings of a table."""
    return np.stack(
        pd.read_parquet(folder / "package_embeddings.parquet")["embedding"].to_numpy()
    )


class Theirs:
    """K-means, and products within clusters; `xp` is NumPy or CuPy."""

    def __init__(self, xp: Any, x: np.ndarray, clusters: int) -> None:
        self.xp, self.clusters = xp, clusters
        self.x = xp.asarray(x, xp.float32)
        self.x /= xp.linalg.norm(self.x, axis=1, keepdims=True)

    def fit(self) -> None:
        """Label the rows."""
        told = {
            "n_clusters": self.clusters,
            "max_iter": ITERATIONS,
            "tol": TOLERANCE,
            "random_state": SEED,
        }
        if self.xp is np:
            from sklearn.cluster import KMeans as Lloyd  # only where it is measured

            found = Lloyd(init="k-means++", n_init=1, **told).fit(self.x)
        else:
            from cuml.cluster import KMeans as Lloyd  # only where it is

            found = Lloyd(
                init="k-means||",
                n_init=1,
                oversampling_factor=2.0,
                max_samples_per_batch=1 << 15,
                **told,
            )
            found = found.fit(self.x)
        self.labels = self.xp.asarray(found.predict(self.x))

    def _products(self) -> Iterator[tuple[Any, int, Any]]:
        """Products of some rows of a cluster with all before them: the cluster, their
        first, products.
        """
        order = self.xp.argsort(self.labels)
        bounds = self.xp.searchsorted(
            self.labels[order], self.xp.arange(self.clusters + 1)
        ).tolist()
        for start, stop in itertools.pairwise(bounds):
            rows = self.xp.sort(order[start:stop])
            own = self.x[rows]
            for first in range(0, len(rows), BATCH):
                yield (
                    rows,
                    first,
                    self.xp.triu(own @ own[first : first + BATCH].T, 1 - first),
                )

    def within(self) -> Any:
        """Return the largest product of each row with one before it in its cluster:
        what theirs keeps.
        """
        best = self.xp.zeros(len(self.x), self.xp.float32)
        for rows, first, products in self._products():
            best[rows[first : first + BATCH]] = products.max(axis=0)
        return best

    def pairs(self, eps: float) -> np.ndarray:
        """Return all pairs of those products, as numbers left * n + right, ascending."""
        found = []
        for rows, first, products in self._products():
            left, right = self.xp.nonzero(products >= self.xp.float32(1 - eps))
            found.append(
                rows[left].astype(np.int64) * len(self.x) + rows[first + right]
            )
        keys = self.xp.sort(self.xp.concatenate(found))
        return keys if self.xp is np else keys.get()


def measured(
    run: Callable[[], Any], repeat: int, backend: str
) -> tuple[dict[str, Any], Any]:
    """Return the seconds of some runs, and the result of the last one."""
    clock, seconds = time.process_time if backend == "cpu" else time.perf_counter, []
    for _ in range(repeat):
        began = clock()
        found = run()
        if backend == "gpu":
            # imported late, because it is installed only where there is a GPU
            import cupy

            cupy.cuda.Device().synchronize()
        seconds.append(clock() - began)
    return summary(seconds), found


def keys_of(pairs: Any, rows: int) -> np.ndarray:
    """Return the pairs of a result as sorted numbers, one per pair."""
    left, right = (pairs[side].to_numpy() for side in ("left", "right"))
    return np.sort(
        np.minimum(left, right).astype(np.int64) * rows + np.maximum(left, right)
    )


def measure(
    x: np.ndarray,
    clusters: list[int],
    distances: list[float],
    repeat: int,
    backend: str,
) -> Iterator[dict[str, Any]]:
    """Measure one table."""
    xp: Any = np
    frame: Any = pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])])
    if backend == "gpu":
        import cudf
        import cupy as xp

        frame = cudf.DataFrame(frame)
    n = len(x)
    fitted = []
    for number in clusters:
        theirs = Theirs(xp, x, number)
        fit, _ = measured(theirs.fit, 1, backend)
        fitted.append((number, theirs, fit, *measured(theirs.within, repeat, backend)))
    # the first call compiles everything, which must not be timed
    frame.iloc[:2000].simjoin.self_join(0.01, metric="cosine")
    for eps in distances:
        exact, pairs = measured(
            lambda eps=eps: frame.simjoin.self_join(eps, metric="cosine"),
            repeat,
            backend,
        )
        true = keys_of(pairs, n)
        for number, theirs, fit, within, best in fitted:
            found = theirs.pairs(eps)
            more = np.setdiff1d(found, true)
            unit = np.asarray(x[more // n], float), np.asarray(x[more % n], float)
            cosine = (unit[0] * unit[1]).sum(1) / np.sqrt(
                (unit[0] ** 2).sum(1) * (unit[1] ** 2).sum(1)
            )
            if (np.abs(1 - cosine - eps) > ROUNDING).any():
                raise AssertionError(f"theirs has pairs that are none: {more[:5]}")
            method = {
                "metric": "cosine",
                "method": KMeans(clusters=min(number, n // 4)),
                "approximate": True,
            }
            ours, some = measured(
                lambda eps=eps, how=method: frame.simjoin.self_join(eps, **how),
                repeat,
                backend,
            )
            plan = frame.simjoin.plan(eps, **method)
            expected = (
                1 - share for share in (plan.recall, plan.recall_high, plan.recall_low)
            )
            yield {
                "clusters": number,
                "eps": eps,
                "pairs": len(true),
                "duplicates": len(np.unique(true % n)),
                "exact": exact["seconds"],
                "exact runs": exact["runs"],
                "theirs": {
                    "k-means": fit["seconds"],
                    "products": within["seconds"],
                    "product runs": within["runs"],
                    "pairs": len(found),
                    "duplicates": int((best >= np.float32(1 - eps)).sum()),
                    "lost": round(
                        1 - len(np.intersect1d(found, true)) / max(1, len(true)), 5
                    ),
                },
                "approximate": {
                    **ours,
                    "lost": round(1 - len(some) / max(1, len(true)), 5),
                    "expected": [
                        None if math.isnan(share) else round(share, 5)
                        for share in expected
                    ],
                },
            }


def main() -> None:
    """Measure, and print and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks papers.semantic", description=__doc__
    )
    parser.add_argument("--backend", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument(
        "--rows",
        type=int,
        help=f"of what is made (default: {ROWS['cpu']:,}, GPU {ROWS['gpu']:,})",
    )
    parser.add_argument(
        "--data", type=Path, help="folder of package_embeddings.parquet, measured too"
    )
    parser.add_argument("--eps", type=float, nargs="+", default=list(DISTANCES))
    parser.add_argument(
        "--clusters",
        type=int,
        nargs="+",
        help=f"default: {CLUSTERS}, and n / {CLUSTERS}",
    )
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ApproximateWarning)
    rows = asked.rows or ROWS[asked.backend]
    makers: dict[str, Callable[[], np.ndarray]] = {
        kind: lambda kind=kind: made(kind, rows)
        for kind in ("topics", "copies")  # type: ignore[misc]
    }
    if asked.data is not None:
        makers = {"packages": lambda: read(asked.data), **makers}
    machine = environment([], VERSION)
    if asked.backend == "gpu":
        # imported late, because it is installed only where there is a GPU
        from benchmarks.harness.gpu_report import environment as of_gpu

        machine = of_gpu()
    report: dict[str, Any] = {
        "environment": machine,
        "unit": "CPU seconds, one core" if asked.backend == "cpu" else "seconds",
        "rows": [],
    }
    for name, make in makers.items():
        x = make()
        numbers = asked.clusters or sorted({max(2, len(x) // CLUSTERS), CLUSTERS})
        for found in measure(x, numbers, asked.eps, asked.repeat, asked.backend):
            report["rows"].append(
                {"data": name, "rows": len(x), "dims": x.shape[1], **found}
            )
            print(report["rows"][-1], file=sys.stderr, flush=True)
            # written after each row, because a later row may take too long
            if asked.output is not None:
                write(report, asked.output)
    write(report, asked.output)


if __name__ == "__main__":
    main()
