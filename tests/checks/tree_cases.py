"""Random minimum spanning trees, plain and lazy, against Kruskal's algorithm.

``python -m tests.checks.tree_cases --cases 5000 --seed 0`` compares the edges and
distances of `spanning_tree` with its definition. Each tree is made on one thread and on
three, of a Dask DataFrame, and where there is a GPU of a cuDF DataFrame. ``--start 500``
begins at another case, and ``--case 17`` runs a single one.
"""

from __future__ import annotations

import collections
import importlib
import importlib.util
from typing import Any

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (registers the accessor)
from tests.checks.neighbor_cases import Case, partitions, run_all
from tests.support.hierarchy import tree_by_definition
from tests.support.points import KINDS, frame_of, make_points, without_overflow
from tests.support.threads import LITTLE

METRICS = ("euclidean", "euclidean", "euclidean", "manhattan", "chebyshev", "cosine")
DIMS = (1, 2, 2, 3, 3, 5, 8, 16)
ON_GPU = importlib.util.find_spec("cudf") is not None


def some_points(rng: np.random.Generator) -> tuple[str, np.ndarray]:
    """Return points of any kind, some of them more than once."""
    kind = str(rng.choice(KINDS))
    rows, dims = int(rng.choice([2, 3, 20, 70, 150, 300])), int(rng.choice(DIMS))
    x = without_overflow(make_points(kind, rows, dims, rng))
    if rng.random() < 0.3:
        x[rng.integers(0, rows, rows // 3)] = x[rng.integers(rows)]
    return kind, x.astype(np.float32).astype(float) if rng.random() < 0.2 else x


def run_case(rng: np.random.Generator) -> Case:
    """Compare one random tree with its definition; return what the case covers."""
    kind, x = some_points(rng)
    metric = str(rng.choice(METRICS))
    if metric == "cosine":
        x = x[(x != 0).any(axis=1)]
    frame = frame_of(x)
    samples = min(int(rng.choice([1, 1, 2, 5, 20])), len(x)) or 1
    how: dict[str, Any] = {"min_samples": samples, "metric": metric}
    how["on"] = frame.columns.tolist()
    if len(x) < 2:
        return collections.Counter(["fewer than two rows"])
    edges, far = tree_by_definition(x, samples, metric)
    number = int(rng.integers(1, 5))
    lazy = partitions(frame, number, rng).simjoin.spanning_tree(
        **how, partitioning=str(rng.choice(["auto", "entity", "spatial"]))
    )
    trees = {
        "one thread": frame.simjoin.spanning_tree(threads=1, **how),
        "three threads": frame.simjoin.spanning_tree(threads=3, **how),
        "Dask": lazy.compute(),
    }
    if ON_GPU:
        there = importlib.import_module("cudf").from_pandas(frame)
        trees["cuDF"] = there.simjoin.spanning_tree(**how).to_pandas()
    for tree in trees.values():
        _compare(tree, edges, far)
    covered = [f"metric={metric}", f"points={kind}", f"min_samples={samples}", *trees]
    return collections.Counter(covered)


def _compare(tree: pd.DataFrame, edges: list[tuple[int, int]], far: np.ndarray) -> None:
    assert list(zip(tree["left"], tree["right"], strict=True)) == edges
    np.testing.assert_allclose(tree["distance"], far, rtol=1e-15, atol=0)


def main() -> int:
    """Run the cases with so little work per thread that small tables have several."""
    for (module, name), value in LITTLE.items():
        setattr(module, name, value)
    return run_all(__doc__, run_case)


if __name__ == "__main__":
    raise SystemExit(main())
