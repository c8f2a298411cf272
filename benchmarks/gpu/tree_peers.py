"""Time other programs that search trees of points on a GPU: ArborX and jz-tree.

Each run is of one process, which reads the points from a file and prints one line, such
as ``RUN seconds 0.1 found 30``.  The seconds are from points in GPU memory to the result
there.

ArborX is a C++ library.  Its program is `arborx.cpp`, compiled with Kokkos for the GPU.
The user names its folder.  jz-tree is a Python package, whose process is this module::

    python -m benchmarks.gpu.tree_peers JOB FILE EPS K REPEAT
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu.rival_programs import started

LIMIT = 60.0
"""A process is stopped after this many seconds."""


class Peer(NamedTuple):
    """A job of another program.

    Attributes
    ----------
    name : str
    job : str
        The program's name of it.
    k : int
        Numbers of neighbors, or of rows that make a row core, as the program counts.
    eps : float
        The distance, 0 if there is none.
    """

    name: str
    job: str
    k: int
    eps: float = 0.0


def peers_of(verb: str, eps: float) -> list[Peer]:
    """Return the ways to do a job of `benchmarks gpu.trees`."""
    return {
        "spanning_tree": [Peer("ArborX", "mst", 1)],
        "spanning_tree, min_samples 5": [Peer("ArborX", "mst", 5)],
        "hdbscan": [Peer("ArborX, without clusters", "hdbscan", 20)],
        "dbscan": [
            Peer("ArborX, boxes", "dbscan-boxes", 2, eps),
            Peer("ArborX", "dbscan", 2, eps),
            Peer("jz-tree", "fof", 2, eps),
        ],
        "knn_join": [Peer("ArborX", "knn", 30), Peer("jz-tree", "knn", 30)],
    }[verb]


def measured(
    peer: Peer, points: np.ndarray, folder: Path | None, repeat: int
) -> dict[str, Any]:
    """Time a peer; "failed" says why it did not run.

    `points`: rows (n, 3), float32. `folder`: where the program of ArborX is.
    """
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "points")
        points.tofile(file)
        rest = f"{file} {peer.eps:.9g} {peer.k} {repeat + 1}"
        try:
            if peer.name == "jz-tree":
                text = _jz_tree(f"{peer.job} {rest}")
            elif folder is None:
                return {"failed": "no program"}
            else:
                program = folder / f"arborx-{points.shape[1]}"
                text = started(program, f"{peer.job} {rest}", LIMIT)
        except (subprocess.SubprocessError, RuntimeError, OSError) as error:
            return _failed(str(error))
    runs = re.findall(r"RUN seconds (\S+) found (\S+)", text)
    seconds = [float(one) for one, _ in runs]
    if not seconds:
        return _failed(text)
    kept = seconds[1:] or seconds
    return {
        "median": statistics.median(kept),
        "seconds": kept,
        "first": seconds[0],
        "found": float(runs[-1][1]),
    }


def _failed(text: str) -> dict[str, Any]:
    """Return the end of what a program printed, without folders of this machine."""
    return {"failed": re.sub(r"(?<![\w.])/(?:[^\s/\"']+/)+", "", text)[-300:]}


def _jz_tree(arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.gpu.tree_peers", *arguments.split()]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    return done.stdout if done.returncode == 0 else done.stderr


def _work(
    job: str, eps: float, k: int
) -> tuple[Callable[[Any], Any], Callable[..., float]]:
    """Return a job of jz-tree, and what describes its result."""
    import jax.numpy as jnp
    from jztree import fof, knn

    if job == "knn":

        def summed(found: Any) -> float:
            # the first neighbor of a row is the row itself
            return float(np.asarray(found[0], np.float64).sum())

        return lambda x: knn.knn.jit(x, k=k + 1), summed

    def groups(found: Any) -> float:
        sizes = jnp.bincount(found[1], length=len(found[1]))
        return float((sizes >= k).sum())

    return lambda x: fof.fof_labels.jit(x, rlink=eps, output_order="input"), groups


def main() -> None:
    """Run a job of jz-tree, and print its times."""
    import jax

    job, file, eps, k, repeat = sys.argv[1:]
    points = jax.device_put(np.fromfile(file, np.float32).reshape(-1, 3))
    work, told = _work(job, float(eps), int(k))
    jax.block_until_ready(points)
    for _ in range(int(repeat)):
        began = time.perf_counter()
        found = jax.block_until_ready(work(points))
        seconds = time.perf_counter() - began
        print(f"RUN seconds {seconds:.6f} found {told(found):.9g}", flush=True)
        del found


if __name__ == "__main__":
    main()
