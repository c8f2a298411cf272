"""``python -m benchmarks cpu.sets FOLDER``: joins of sets counted, by every method, on
one core.

FOLDER has kosarak36k.parquet and retail.parquet (columns of lists, "tokens") and
places.parquet (a column of texts, "name").  The first 20,000 names are split into
2-grams.  A fourth set has as many pieces of Python's own library, as 2-grams with about
130 tokens each.  Results are least CPU seconds, of encoding a frame's column and of
finding the pairs of its distinct sets.  Methods and the reference take turns, so that a
disturbance affects all alike.

``--reference PROGRAM`` is another tool, called with a file, 1 and a threshold.  It
prints lines with a name, the threshold, CPU seconds of indexing and joining, and the
number of pairs with that Jaccard similarity.  The file has int32 numbers: the numbers
of sets and tokens, the start of each set and the end of the last, and the tokens.
Tokens are numbered from 1 on as they first appear.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.repeats import rounded
from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    # set before the imports below, because libraries count cores and read the
    # environment when imported
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
import pandas as pd

from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write
from dask_simjoin.sets.chunks import SetChunk
from dask_simjoin.sets.cpu.joiner import JOINER, SetSearch
from dask_simjoin.sets.local import LocalSets
from dask_simjoin.sets.methods import METHODS
from dask_simjoin.sets.pairs import count_block_pairs
from dask_simjoin.sets.requests import CountSetPairsRequest
from dask_simjoin.sets.tokens import QGrams

TEXTS, CHARACTERS = 20_000, 270
THRESHOLDS = (0.9, 0.8, 0.7, 0.5)
GRAMS = {"tokenizer": QGrams(2, padding=False)}


def texts() -> pd.Series:
    """Take pieces of Python's library, spaces and line ends made one space."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts and "test" not in path.parts:
            text = " ".join(path.read_text(errors="ignore").split())
            found += [
                text[i : i + CHARACTERS]
                for i in range(0, len(text) - CHARACTERS, CHARACTERS)
            ]
    return pd.Series(found[:TEXTS], dtype="str")


SETS: dict[str, tuple[Callable[[Path], pd.Series], dict[str, Any]]] = {
    "kosarak36k": (
        lambda folder: pd.read_parquet(folder / "kosarak36k.parquet")["tokens"],
        {},
    ),
    "retail": (lambda folder: pd.read_parquet(folder / "retail.parquet")["tokens"], {}),
    "places": (
        lambda folder: pd.read_parquet(folder / "places.parquet")["name"][:TEXTS],
        GRAMS,
    ),
    "texts": (lambda _: texts(), GRAMS),
}


def _seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = function()
    return time.process_time() - began, found


def _dump(chunk: SetChunk, path: Path) -> None:
    """Write the rows' sets in a random order, in the reference's format."""
    rows = np.repeat(np.arange(len(chunk["weights"])), chunk["weights"])
    np.random.default_rng(0).shuffle(rows)
    offsets, tokens = chunk["offsets"], chunk["tokens"]
    flat = np.concatenate([tokens[offsets[row] : offsets[row + 1]] for row in rows])
    ends = np.cumsum([0, *np.diff(offsets)[rows]])
    _, first, number = np.unique(flat, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), np.int64)
    ranks[np.argsort(first)] = np.arange(1, len(first) + 1)
    np.concatenate([[len(rows), len(flat)], ends, ranks[number]]).astype(
        np.int32
    ).tofile(path)


def _reference(
    program: Path, path: Path, threshold: float
) -> dict[str, tuple[float, int]]:
    lines = subprocess.run(
        [program, path, "1", str(threshold)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {
        name: (float(seconds), int(pairs))
        for name, _, seconds, pairs in map(str.split, lines)
    }


def measure(
    frame: pd.DataFrame,
    how: dict[str, Any],
    threshold: float,
    methods: list[str],
    repeat: int,
    programs: list[Path],
    path: Path,
) -> dict[str, Any]:
    """Measure one set of sets at one threshold."""
    asked = {
        name: CountSetPairsRequest("sets", threshold, method=name, **how)
        for name in methods
    }
    specs = {name: one.spec(frame.iloc[:0]) for name, one in asked.items()}
    runs: dict[str, list[float]] = {}
    pairs: dict[str, int] = {}
    for turn in range(repeat + 1):  # the first turn compiles, so it is not timed
        for program in programs:
            for name, (seconds, found) in _reference(program, path, threshold).items():
                runs.setdefault(f"reference {name}", []).append(rounded(seconds))
                pairs[f"reference {name}"] = found
        for name, spec in specs.items():
            encoding, chunks = _seconds(
                lambda spec=spec: LocalSets([frame], spec).chunks()
            )
            block_pair = LocalSets([frame], spec).pair(chunks)
            finding, pairs[name] = _seconds(
                lambda block_pair=block_pair: count_block_pairs(block_pair)
            )
            if turn:
                runs.setdefault(name, []).append(rounded(finding))
                runs.setdefault("encode", []).append(rounded(encoding))
    chunk, spec = chunks[0], specs["auto"]
    medians = {name: statistics.median(some) for name, some in runs.items()}
    found = {"seconds": medians, "runs": runs, "pairs": pairs}
    found["chosen"] = SetSearch(chunk, None, spec.rule, "auto").choice._asdict()
    found["counters"] = {
        name: JOINER.counters(chunk, None, spec.rule, name)._asdict()
        for name in methods
    }
    peers = [
        seconds for name, seconds in medians.items() if name.startswith("reference")
    ]
    if peers:
        found["ratio"] = round(medians["auto"] / min(peers), 3)
    return found


def threads(
    frame: pd.DataFrame, how: dict[str, Any], threshold: float
) -> dict[str, float]:
    """Measure, by the clock, two counts one after the other and side by side."""
    spec = CountSetPairsRequest("sets", threshold, **how).spec(frame.iloc[:0])
    (chunk,) = LocalSets([frame], spec).chunks()

    def count() -> None:
        for _ in range(5):
            JOINER.count(chunk, None, spec.rule, "auto")

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    began = time.perf_counter()
    count()
    count()
    after = time.perf_counter() - began
    both = [threading.Thread(target=count) for _ in range(2)]
    began = time.perf_counter()
    for one in both:
        one.start()
    for one in both:
        one.join()
    beside = time.perf_counter() - began
    pin()
    return {
        "one after the other": round(after, 4),
        "two threads": round(beside, 4),
        "ratio": round(after / beside, 2),
    }


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.sets", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--thresholds", nargs="+", type=float, default=THRESHOLDS)
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=list(METHODS),
        help="besides auto",
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--reference", type=Path, nargs="+", default=[], metavar="PROGRAM"
    )
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.sets:
            read, how = SETS[name]
            frame = pd.DataFrame({"sets": read(options.folder)}).reset_index(drop=True)
            spec = CountSetPairsRequest("sets", 0.9, **how).spec(frame.iloc[:0])
            (chunk,) = LocalSets([frame], spec).chunks()
            path = Path(scratch) / name
            _dump(chunk, path)
            sizes = np.diff(chunk["offsets"])
            found[name] = {
                "rows": len(frame),
                "distinct": len(sizes),
                "universe": chunk["universe"],
                "mean_size": round(float(np.repeat(sizes, chunk["weights"]).mean()), 1),
                "thresholds": {},
            }
            for threshold in options.thresholds:
                one = measure(
                    frame,
                    how,
                    threshold,
                    ["auto", *options.methods],
                    options.repeat,
                    options.reference,
                    path,
                )
                found[name]["thresholds"][str(threshold)] = one
                print(
                    name,
                    threshold,
                    one["seconds"],
                    one.get("ratio"),
                    file=sys.stderr,
                    flush=True,
                )
            found[name]["threads"] = threads(frame, how, min(options.thresholds))
    ratios = [
        one["ratio"]
        for some in found.values()
        for one in some["thresholds"].values()
        if "ratio" in one
    ]
    report: dict[str, Any] = {
        "environment": environment([], VERSION),
        "unit": "CPU seconds of one core, the least of several; `threads`: seconds by the clock",
        "sets": found,
    }
    if ratios:
        report["geometric_mean_ratio"] = round(
            math.exp(sum(map(math.log, ratios)) / len(ratios)), 3
        )
    write(report, options.output)


if __name__ == "__main__":
    main()
