"""``python -m benchmarks cpu.strings``: pairs of strings within an edit distance, here
and by RapidFuzz.

Both count pairs.  RapidFuzz compares all strings with all later ones, in blocks, by
`process.cdist` with `score_cutoff` and `workers`.  One core: a pandas DataFrame; two: a
Dask DataFrame and Dask's threads. Each run is in a process of its own, and takes rows
from memory.

``--peers TOOL ...`` joins with peers that have an index instead, on one thread, from
texts to pairs: symscan (which pyrepseq calls for some joins), pyrepseq's own symmetric
deletion, py_stringsimjoin, and EditDistanceJoiner (Pass-Join in Java; PASS_JOIN_CLASSES
names the folder of its classes). ``--python TOOL=INTERPRETER`` runs a peer with another
interpreter. Results are CPU seconds, the least of the runs of two processes.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.harness.forked import run_forked
from benchmarks.harness.ours import VERSION
from benchmarks.harness.repeats import rounded
from benchmarks.harness.report import environment, write
from benchmarks.harness.worker import run_apart
from benchmarks.peers.strings import JAVA, OURS, TOOLS

PLACES = Path("examples/data/places.parquet")
QUICK = 1000
BLOCK = 500
"""Strings that RapidFuzz compares at a time with all later ones."""

CASES = (
    ("names", 20_000, (1, 2, 3)),
    ("titles", 10_000, (2, 5)),
    ("DNA", 10_000, (2, 5)),
)
"""Kind of strings, rows for RapidFuzz, and distances."""

GROWTH = ((250_000, (1, 2)), (1_000_000, (1, 2)), (4_000_000, (1,)))
"""Rows of names with errors, and distances."""

INDEXED = (
    ("names", 20_000, (1, 2, 3)),
    ("all names", 0, (1, 2)),
    ("names with errors", 250_000, (1, 2)),
    ("peptides", 200_000, (1, 2)),
    ("titles", 10_000, (1, 2)),
    ("DNA", 10_000, (1, 2)),
)
"""Kind of strings, rows (0: all), and distances, for peers with an index."""

SHORTEST = 5
"""These strings have more letters, as Pass-Join needs more than the distance."""

PATIENCE = 900
"""A peer is given up after this many seconds by the clock."""

LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz "))


def names(path: Path) -> list[str]:
    """Return distinct names of places, in a fixed random order."""
    found = pd.read_parquet(path, columns=["name"])["name"].drop_duplicates()
    return list(found.sample(frac=1.0, random_state=0))


def with_errors(texts: list[str], rows: int, errors: int) -> list[str]:
    """Return texts, each repeated with up to `errors` random edits."""
    rng = np.random.default_rng(0)
    made = []
    for which, number in zip(
        rng.integers(len(texts), size=rows),
        rng.integers(errors + 1, size=rows),
        strict=True,
    ):
        text = texts[which]
        for _ in range(number):
            at, kind = int(rng.integers(len(text) + 1)), int(rng.integers(3))
            text = (
                text[:at]
                + ("" if kind == 0 else str(rng.choice(LETTERS)))
                + text[at + (kind != 1) :]
            )
        made.append(text)
    return made


def strings(kind: str, rows: int, path: Path) -> list[str]:
    """Return strings: names of places, titles of 40 to 100 characters, sequences of 100
    letters, or of 12 to 18 amino acids.
    """
    if kind == "names":
        return names(path)[:rows]
    if kind == "all names":
        return names(path)[: rows or None]
    if kind == "names with errors":
        return with_errors(names(path), rows, 2)
    rng = np.random.default_rng(1)
    if kind == "DNA":
        bases = ["".join(one) for one in rng.choice(list("ACGT"), (rows // 2, 100))]
        return with_errors(bases, rows, 6)
    if kind == "peptides":
        sizes = rng.integers(8, 15, rows // 2)
        acids = list("ACDEFGHIKLMNPQRSTVWY")
        bases = ["CAS" + "".join(rng.choice(acids, size)) + "F" for size in sizes]
        return with_errors(bases, rows, 2)
    words = names(path)
    bases = []
    for size in rng.integers(40, 101, rows // 2):
        text = ""
        while len(text) < size:
            text += words[int(rng.integers(len(words)))] + " "
        bases.append(text[:size])
    return with_errors(bases, rows, 6)


def ours(frame: pd.DataFrame, k: int, cores: int) -> int:
    """Return the number of pairs."""
    if cores == 1:
        return int(frame.simjoin.count_edit_pairs("text", k))
    with dask.config.set(scheduler="threads", num_workers=cores):
        return int(
            dd.from_pandas(frame, npartitions=2 * cores)
            .simjoin.count_edit_pairs("text", k)
            .compute()
        )


def rapidfuzz(texts: list[str], k: int, cores: int) -> int:
    """Return the number of pairs."""
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    found = 0
    for start in range(0, len(texts), BLOCK):
        block = texts[start : start + BLOCK]
        away = process.cdist(
            block,
            texts[start:],
            scorer=Levenshtein.distance,
            score_cutoff=k,
            workers=cores,
            dtype=np.uint8,
        )
        near = away <= k
        found += (
            int(near.sum()) - len(block) - int(np.tril(near[:, : len(block)], -1).sum())
        )
    return found


def prepare(frame: pd.DataFrame, k: int) -> None:
    """Compile and load what a join needs, without threads, before processes are forked."""
    few = frame[:QUICK]
    ours(few, k, 1)
    with dask.config.set(scheduler="synchronous"):
        dd.from_pandas(few, npartitions=2).simjoin.count_edit_pairs("text", k).compute()


def measured(call: Any, cores: int, repeat: int) -> dict[str, Any]:
    """Return the pairs, with seconds and bytes of each run."""
    runs = [run_forked(call, cores) for _ in range(repeat)]
    (pairs,) = {one.found for one in runs}
    return {
        "pairs": pairs,
        "runs": [rounded(one.wall) for one in runs],
        "cpu": [rounded(one.cpu) for one in runs],
        "median": rounded(statistics.median(one.wall for one in runs)),
        "bytes": max(one.memory for one in runs),
    }


def beside(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the cases that RapidFuzz joins too."""
    rows = []
    for kind, number, distances in CASES:
        texts = strings(kind, QUICK if options.quick else number, options.names)
        frame = pd.DataFrame({"text": texts})
        for k in distances:
            prepare(frame, k)
            for cores in options.cores:
                tools = {
                    "ours": measured(
                        functools.partial(ours, frame, k, cores), cores, options.repeat
                    )
                }
                if not options.alone:
                    call = functools.partial(rapidfuzz, texts, k, cores)
                    tools["RapidFuzz"] = measured(call, cores, options.repeat)
                    assert tools["RapidFuzz"]["pairs"] == tools["ours"]["pairs"], (
                        kind,
                        k,
                    )
                rows.append(
                    {
                        "data": kind,
                        "rows": len(texts),
                        "k": k,
                        "cores": cores,
                        "tools": tools,
                    }
                )
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


def growth(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return larger cases, which only this package joins."""
    rows, words = [], names(options.names)
    cases = [(len(words), (1, 2, 3))] if not options.quick else []
    for number, distances in [
        *cases,
        *(GROWTH if not options.quick else [(QUICK, (1,))]),
    ]:
        texts = words if number == len(words) else with_errors(words, number, 2)
        frame = pd.DataFrame({"text": texts})
        for k in distances:
            kind = "all names" if texts is words else "names with errors"
            for cores in options.cores:
                own = measured(
                    functools.partial(ours, frame, k, cores), cores, options.repeat
                )
                one = {"data": kind, "rows": len(texts), "k": k, "cores": cores}
                rows.append(one | {"tools": {"ours": own}})
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


def indexed(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return cases that peers with an index join, from texts to pairs."""
    pythons = dict(one.split("=", 1) for one in options.python)
    rows = []
    for kind, number, distances in INDEXED:
        if options.kinds and kind not in options.kinds:
            continue
        made = strings(kind, QUICK if options.quick else number, options.names)
        texts = [t for t in dict.fromkeys(made) if t.isascii() and len(t) > SHORTEST]
        failed: set[str] = set()
        for k in distances:
            tools: dict[str, Any] = {}
            with tempfile.TemporaryDirectory() as scratch:
                path = Path(scratch) / "texts"
                path.write_text("\n".join(texts))
                # each tool in turn, twice
                for tool in (OURS, *options.peers) * 2:
                    if tool in failed:
                        continue
                    module = ["-m", "benchmarks.peers.strings", tool, str(path), str(k)]
                    found = run_apart(
                        [pythons.get(tool, sys.executable), *module], PATIENCE
                    )
                    if "failed" in found:
                        failed.add(tool)
                    else:
                        found["runs"] += tools.get(tool, {}).get("runs", [])
                        found["least"] = min(found["runs"])
                    tools[tool] = found
            for found in tools.values():
                if "pairs" in found:
                    found["pairs wrong"] = found["pairs"] - tools[OURS]["pairs"]
                    found["same"] = found.get("digest") in (
                        None,
                        tools[OURS]["digest"],
                    )
            rows.append({"data": kind, "rows": len(texts), "k": k, "tools": tools})
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.strings", description=__doc__
    )
    parser.add_argument(
        "--names", type=Path, default=PLACES, help="Parquet with a column name"
    )
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without RapidFuzz")
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=[*list(TOOLS)[1:], JAVA],
        help="compare with these instead",
    )
    parser.add_argument("--kinds", nargs="+", help="of strings, with --peers")
    parser.add_argument("--python", nargs="+", default=[], metavar="TOOL=INTERPRETER")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows")
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    options = parser.parse_args()
    where = environment([], VERSION)
    if options.peers:
        report = {
            "environment": where,
            "unit": "CPU seconds of one thread, the least of several; pairs wrong: more or less than ours",
            "rows": indexed(options),
        }
        write(report, options.output)
        return
    if not options.alone:
        import rapidfuzz as peer

        where["versions"]["rapidfuzz"] = peer.__version__
    report = {
        "environment": where,
        "unit": "seconds by the clock, and bytes beside the rows",
        "rows": beside(options) + growth(options),
    }
    write(report, options.output)


if __name__ == "__main__":
    main()
