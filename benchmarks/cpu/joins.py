"""``python -m benchmarks``: all rows, this package and every peer that is installed."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

from benchmarks.harness.ours import OURS, VERSION
from benchmarks.harness.points import ROWS, Row
from benchmarks.harness.report import (
    Results,
    best_peer,
    disagreements,
    environment,
    tables,
)
from benchmarks.harness.source import source_digest
from benchmarks.harness.timing import Tool
from benchmarks.harness.worker import measure_apart
from benchmarks.peers.joins import PEERS, installed


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.joins", description=__doc__
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        choices=ROWS,
        default=list(ROWS),
        metavar="ROW",
        help=f"of {', '.join(ROWS)}",
    )
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=PEERS,
        default=list(PEERS),
        metavar="PEER",
        help=f"of {', '.join(PEERS)}; none: only this package",
    )
    parser.add_argument(
        "--repeat", type=int, default=5, help="runs of each, at most (default 5)"
    )
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: benchmarks/results/DATE.json)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tenth of the points: seconds, not minutes",
    )
    return parser.parse_args()


def measure_all(
    rows: dict[str, Row], tools: list[Tool], repeat: int, quick: bool
) -> Results:
    """Run one process after the other, with a line on standard error for each."""
    results: Results = {row: {} for row in rows}
    for row in rows:
        for tool in tools:
            if row in tool.skip:
                one = {"skipped": tool.skip[row]}
            else:
                one = measure_apart(tool.name, row, repeat, quick)
            results[row][tool.name] = one
            text = f"{row:8} {tool.name:8}"
            if "median" in one:
                runs, variant = len(one["seconds"]), one["variant"]
                counts = ", ".join(f"{count:,}" for count in one["pairs"])
                text += (
                    f"{one['median']:9.3f} s  runs: {runs}  pairs: {counts}  {variant}"
                )
            else:
                text += "; ".join(f"  {key}: {reason}" for key, reason in one.items())
            print(text.rstrip(), file=sys.stderr, flush=True)
    return results


def _output(quick: bool) -> Path:
    now = f"{datetime.datetime.now():%Y-%m-%d-%H%M}"
    return (
        Path(__file__).parents[1]
        / "results"
        / "joins"
        / f"{now}{'-quick' if quick else ''}.json"
    )


def main() -> int:
    """Run the benchmark; return 1 if counts disagree."""
    options = arguments()
    rows = {
        name: ROWS[name].quick() if options.quick else ROWS[name]
        for name in options.rows
    }
    tools = [*OURS.values(), *installed(options.peers)]
    known = environment(tools, VERSION)
    results = measure_all(rows, tools, options.repeat, options.quick)
    changed = source_digest() != known["source"]
    if changed:
        print(
            "The source of dask_simjoin changed during this run: repeat it.",
            file=sys.stderr,
        )
    wrong = disagreements(results, rows, {tool.name: tool for tool in tools})
    report = {
        "environment": known,
        "unit": "CPU seconds of one core",
        "quick": options.quick,
        "source_changed": changed,
        "disagreements": wrong,
        "rows": {
            name: {
                "n": row.n,
                "dims": row.dims,
                "eps": row.eps,
                "goal": row.goal,
                "pairs": row.pairs,
                "best_peer": best_peer(results[name], OURS),
                "tools": results[name],
            }
            for name, row in rows.items()
        },
    }
    print(tables(results, rows, OURS))
    path = options.output or _output(options.quick)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nWritten: {path}")
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
