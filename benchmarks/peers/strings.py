"""Peers that join strings by edit distance with an index, and this package, each in a
process of its own.

``python -m benchmarks.peers.strings TOOL FILE K`` measures one of them on the texts of
FILE, one in a line: distinct, in ASCII, of more than K letters, as some peers need.
Only what it measures is imported, so that an interpreter with nothing but a peer runs
it too.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Ends = tuple[np.ndarray, np.ndarray]

RUNS, ENOUGH = 3, 3.0
"""Most runs, and CPU seconds after which no other run begins."""

SECONDS = 60
"""A tool is ended after this much CPU time."""

MEMORY = 6 << 30
"""Bytes of addresses that a peer may take; a JVM gets them as its heap."""

OURS = "dask_simjoin"


def ours(texts: list[str], k: int) -> tuple[Callable[[], Any], Callable[[Any], Ends]]:
    """Return this package's join, and the two ends of each of its pairs."""
    import pandas as pd

    import dask_simjoin  # noqa: F401 (registers the accessor)

    frame = pd.DataFrame({"text": texts})
    return (
        lambda: frame.simjoin.edit_self_join("text", k),
        lambda found: (found["left"].to_numpy(), found["right"].to_numpy()),
    )


def symscan(
    texts: list[str], k: int
) -> tuple[Callable[[], Any], Callable[[Any], Ends]]:
    """Return the join by symmetric deletion that pyrepseq calls for such texts."""
    from symscan import get_neighbors_within

    return (
        lambda: get_neighbors_within(texts, max_distance=k),
        lambda found: (found[0], found[1]),
    )


def pyrepseq(
    texts: list[str], k: int
) -> tuple[Callable[[], Any], Callable[[Any], Ends]]:
    """Return pyrepseq's join by symmetric deletion in Python: pairs from both sides."""
    from pyrepseq.nn import symdel

    def ends(found: Any) -> Ends:
        both = np.array([(i, j) for i, j, _ in found], np.int64).reshape(-1, 2)
        once = both[both[:, 0] < both[:, 1]]
        return once[:, 0], once[:, 1]

    return lambda: symdel(texts, max_edits=k), ends


def py_stringsimjoin(
    texts: list[str], k: int
) -> tuple[Callable[[], Any], Callable[[Any], Ends]]:
    """Return a join of two tables by prefixes of 2-grams: each pair is found twice."""
    import pandas as pd
    from py_stringsimjoin import edit_distance_join

    frame = pd.DataFrame({"id": range(len(texts)), "text": texts})

    def join() -> Any:
        return edit_distance_join(
            frame,
            frame,
            "id",
            "id",
            "text",
            "text",
            k,
            n_jobs=1,
            show_progress=False,
            out_sim_score=False,
        )

    def ends(found: Any) -> Ends:
        left, right = found["l_id"].to_numpy(), found["r_id"].to_numpy()
        return left[left < right], right[left < right]

    return join, ends


TOOLS = {
    OURS: ours,
    "symscan": symscan,
    "pyrepseq": pyrepseq,
    "py_stringsimjoin": py_stringsimjoin,
}
"""Name of a distribution -> its join, and the ends of its pairs."""

JAVA = "EditDistanceJoiner"
"""Pass-Join in Java, whose classes the environment variable names."""


def digest(left: np.ndarray, right: np.ndarray) -> str:
    """Return a digest of pairs, whatever their order and directions."""
    low, high = np.minimum(left, right), np.maximum(left, right)
    keys = np.sort(low.astype(np.int64) << 32 | high.astype(np.int64))
    return hashlib.sha256(keys.tobytes()).hexdigest()[:16]


def measured(tool: str, texts: list[str], k: int) -> dict[str, Any]:
    """Return CPU seconds of each run, and pairs."""
    TOOLS[tool](texts[:500], k)[0]()  # compiles and loads
    join, ends = TOOLS[tool](texts, k)
    runs: list[float] = []
    while len(runs) < RUNS and sum(runs) < ENOUGH:
        gc.collect()
        began = time.process_time()
        found = join()
        runs.append(round(time.process_time() - began, 4))
    left, right = ends(found)
    return {
        "version": importlib.metadata.version(tool),
        "runs": runs,
        "pairs": len(left),
        "digest": digest(left, right),
    }


def java(path: str, k: int) -> dict[str, Any]:
    """Return CPU seconds of each run of a Java program, and the number of its pairs."""
    command = ["java", f"-Xmx{MEMORY}", "-XX:+UseSerialGC"]
    command += ["-cp", os.environ["PASS_JOIN_CLASSES"]]
    command += [str(Path(__file__).with_name("PassJoin.java")), path]
    command += [str(k), str(RUNS), str(ENOUGH)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure one tool and print its result as JSON."""
    tool, path, k = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    if tool == JAVA:
        print(json.dumps(java(path, int(k))))
        return
    if tool != OURS:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print(json.dumps(measured(tool, Path(path).read_text().splitlines(), int(k))))


if __name__ == "__main__":
    main()
