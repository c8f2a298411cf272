"""``python -m benchmarks cpu.sets_peers FOLDER``: joins of sets by peers and us, each
in a process.

FOLDER has kosarak36k.parquet and retail.parquet (columns of lists, "tokens") and
places.parquet (a column of texts, "name").  The first 20,000 names are split into
2-grams.  This package's accessor counts and writes each join from lists of numbers, and
from texts (numbers with spaces between them, or names).  Peers are SetSimilaritySearch,
py_stringsimjoin, datasketch (MinHash LSH) and DuckDB.  Results are CPU seconds, medians
of up to three runs, and a peer's number of pairs with the exact number.  A peer is
ended after `--patience` CPU seconds, and its ratio is a lower bound.

``--python TOOL=INTERPRETER`` runs a peer with another interpreter, such as one that it
still installs with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cpu.sets import SETS, THRESHOLDS
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write
from benchmarks.harness.worker import THREADS
from benchmarks.peers.sets import OURS, TOOLS, split

NAMES = ("kosarak36k", "retail", "places")
GOALS = {"tokens": 20.0, "texts": 10.0}
"""Times as fast as SetSimilaritySearch and py_stringsimjoin.

The former takes sets, so its time does not include splitting texts, and ours from texts
does.
"""

QUICK = 3000
SLOWEST = 1800
"""A tool is given up after this many seconds by the clock, even if it had little of a
core.
"""


def given(name: str, folder: Path, rows: int | None) -> dict[str, Any]:
    """Return texts, and tokens as numbers, of the rows that have any."""
    read, how = SETS[name]
    column, grams = read(folder)[:rows], bool(how)
    if grams:
        texts = [text for text in column if len(text) > 1]
        words = [sorted(split(text, True)) for text in texts]
        numbers, _ = pd.factorize(
            np.array([word for one in words for word in one], dtype=object)
        )
        ends = np.cumsum([len(one) for one in words])[:-1]
        return {
            "texts": texts,
            "tokens": [one.tolist() for one in np.split(numbers, ends)],
            "grams": True,
        }
    tokens = [np.unique(one).tolist() for one in column if len(one)]
    return {
        "texts": [" ".join(map(str, one)) for one in tokens],
        "tokens": tokens,
        "grams": False,
    }


def run(
    tool: str, python: str, path: Path, threshold: float, patience: float
) -> dict[str, Any]:
    """Measure one tool: the seconds of each way, or why it failed."""
    command = [
        python,
        "-m",
        "benchmarks.peers.sets",
        tool,
        str(path),
        str(threshold),
        str(patience),
    ]
    try:
        done = subprocess.run(
            command,
            env=os.environ | dict.fromkeys(THREADS, "1"),
            capture_output=True,
            text=True,
            timeout=SLOWEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"given up after {SLOWEST} s by the clock"}
    lines = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
    ]
    found: dict[str, Any] = {}
    for line in lines:
        if "begun" in line:
            found[line["begun"]] = {"more_than": patience}
        elif "name" in line:
            found[line["name"]] = {
                key: line[key] for key in ("seconds", "runs", "pairs")
            }
        else:
            found |= line
    ended = done.returncode and done.returncode not in (-24, -9)
    if ended or not lines:
        last = " ".join(done.stderr.strip().splitlines()[-1:])
        found = {"failed": last or f"exit status {done.returncode}"}
    return found


def compared(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Compare each way of each peer with ours: times as fast, counting and writing
    pairs, and pairs lost.
    """
    own = found[OURS]
    exact = own["tokens, count"]["pairs"]
    ratios: dict[str, Any] = {}
    for tool in TOOLS:
        for way, one in found.get(tool, {}).items():
            if tool == OURS or not isinstance(one, dict):
                continue
            took = one.get("seconds", one.get("more_than"))
            inputs = ("texts",) if way == "texts" else ("tokens", "lists", "texts")
            asked = [
                f"{kind}, {what}" for kind in inputs for what in ("count", "pairs")
            ]
            told: dict[str, Any] = {
                name: round(took / own[name]["seconds"], 1) for name in asked
            }
            told["at least"] = "more_than" in one
            if "pairs" in one:
                told["lost"] = exact - one["pairs"]
            ratios[f"{tool}, {way}"] = told
    return {
        "pairs": exact,
        "agree": len(
            {
                one["pairs"]
                for way, one in own.items()
                if way.endswith(("count", "pairs"))
            }
        )
        == 1,
        "encode/count of texts": round(
            own["texts, encode"]["seconds"] / own["texts, count"]["seconds"], 3
        ),
        "encode/pairs of texts": round(
            own["texts, encode"]["seconds"] / own["texts, pairs"]["seconds"], 3
        ),
        "times as fast": ratios,
    }


def main() -> int:
    """Run the benchmark; return 1 if our own ways disagree."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.sets_peers", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--thresholds", nargs="+", type=float, default=THRESHOLDS)
    parser.add_argument(
        "--tools",
        nargs="*",
        choices=[name for name in TOOLS if name != OURS],
        default=[name for name in TOOLS if name != OURS],
        help="peers",
    )
    parser.add_argument(
        "--patience", type=float, default=60, help="CPU seconds of one join of a peer"
    )
    parser.add_argument("--python", nargs="+", default=[], metavar="TOOL=INTERPRETER")
    parser.add_argument(
        "--quick", action="store_true", help=f"the first {QUICK:,} rows"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="JSON, written after each row (default: shown at the end)",
    )
    asked = parser.parse_args()
    pythons = dict(one.split("=", 1) for one in asked.python)
    results: dict[str, Any] = {}
    report: dict[str, Any] = {
        "environment": environment([], VERSION),
        "unit": "CPU seconds of one core, medians of several; ratios: a peer's to ours of the same input",
        "goals": GOALS,
        "patience": asked.patience,
        "quick": asked.quick,
        "sets": results,
    }
    wrong = False
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "given.json"
        for threshold in asked.thresholds:
            for name in asked.sets:
                made = given(name, asked.folder, QUICK if asked.quick else None)
                path.write_text(json.dumps(made))
                found: dict[str, dict[str, Any]] = {}
                for tool in (OURS, *asked.tools):
                    python = pythons.get(tool, sys.executable)
                    found[tool] = run(tool, python, path, threshold, asked.patience)
                    print(
                        name, threshold, tool, found[tool], file=sys.stderr, flush=True
                    )
                one = {"rows": len(made["tokens"]), "tools": found}
                if "failed" not in found[OURS]:
                    one |= compared(found)
                wrong |= not one.get("agree", False)
                results.setdefault(name, {})[str(threshold)] = one
                if asked.output:
                    write(report, asked.output)
    if not asked.output:
        write(report, None)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
