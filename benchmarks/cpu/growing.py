"""``python -m benchmarks cpu.growing``: an update of an index on disk, or a join of all
rows anew.

Rows are uniform in some dimensions, or directions around centers (`--data embeddings`,
lists of numbers). An update takes new rows in, as one version with all that is written
and synced for it, and computes the pairs that came; deletions give those that went;
both by an index on disk, and by one that is held in memory (`persist`, which is not in
the time of an update). Joining anew reads all rows from parquet, old and new, and
computes all pairs: through Dask, as an index does, and in memory, with pandas or cuDF
(`--backend`). New rows are scattered, or lie together in a thousandth of the area (and
in as much more as they are more). The last part takes many small updates, and compares
the index with one that is built anew of the same rows.

One core and one thread, unless `--threads` says more; CPU seconds and seconds, the
least of some runs. The speedup of an update compares CPU seconds, or seconds with cuDF.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.repeats import summaries
from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__" and "--threads" not in sys.argv:
    # set before the imports below, because libraries count cores and read the
    # environment when imported
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin
from benchmarks.harness.growing import copied, directions, eps_for, rows, size_of
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write

WITHIN = 0.5
"""Directions around one center lie within this distance."""

SHARES = (0.0001, 0.001, 0.01, 0.1)
"""Shares of all rows that are new, by default."""

TOGETHER = 1000
"""Rows that lie together fill one part in this many of the area, or more if their share
is larger.
"""

SHOWN = (
    "change",
    "share",
    "where",
    "added",
    "removed",
    "commit",
    "update",
    "held",
    "times",
    "times_held",
    "row_groups_read",
    "bytes_read",
)
"""Format a row for people."""

ANEW = ("dask", "pandas")
"""Ways to join all rows anew: through Dask, and in memory, with cuDF too."""

PART_ROWS = 1_000_000
"""Rows of a Parquet file, for joins of all rows anew."""


def timed(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Return CPU seconds with the kernel's, seconds of one run, and its result."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = work()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}, found


class Bench:
    """The rows, their index, and the same rows in Parquet files."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked, self.folder, self.random = (
            asked,
            folder,
            np.random.default_rng(12345),
        )
        self.plain = asked.data == "uniform"
        self.eps = (
            eps_for(asked.rows, asked.dims, asked.neighbours) if self.plain else WITHIN
        )
        self.on = [f"x{k}" for k in range(asked.dims)] if self.plain else ["v"]
        self.known = self.rows(asked.rows, 0)
        self.copies = 0
        self.parts = folder / "all"
        self.parts.mkdir()
        self.write_parts(self.known, "old")
        took, _ = timed(lambda: self.index(self.known, folder / "index"))
        self.build = took

    def rows(self, number: int, first: int, part: float = 1.0) -> pd.DataFrame:
        """Draw rows numbered from `first`, in a part of the volume."""
        asked = self.asked
        if self.plain:
            return rows(self.random, number, first, asked.dims, part)
        centres = max(1, round(asked.rows / (asked.neighbours + 1)))
        return directions(self.random, number, first, asked.dims, part, centres)

    def write_parts(self, frame: pd.DataFrame, name: str) -> None:
        """Write rows as Parquet files that are joined anew."""
        for n, start in enumerate(range(0, max(1, len(frame)), PART_ROWS)):
            frame.iloc[start : start + PART_ROWS].to_parquet(
                self.parts / f"{name}-{n:05}.parquet"
            )

    def index(self, frame: pd.DataFrame, to: Path) -> Any:
        """Make an index of rows, from files of as many rows as the Parquet files have."""
        lazy = dd.from_pandas(
            frame, npartitions=max(1, len(frame) // PART_ROWS), sort=False
        )
        return lazy.simjoin.index(self.eps, to, on=self.on, id="key")

    def own(self) -> Any:
        """Open a copy of the first rows' index, which may change."""
        self.copies += 1
        folder = copied(self.folder / "index", self.folder / f"copy{self.copies}")
        return dask_simjoin.open_index(folder, backend=self.asked.backend)

    def anew(self) -> dict[str, Any]:
        """Join all rows of the Parquet files, both ways."""
        how = {"on": self.on, "id": "key"}
        found: dict[str, Any] = {}
        lazily, in_memory = [], []
        for _ in range(self.asked.repeat):
            took, pairs = timed(
                lambda: (
                    dd.read_parquet(self.parts)
                    .to_backend(self.asked.backend)
                    .simjoin.self_join(self.eps, **how)
                    .compute()
                )
            )
            lazily.append(took)
            found["pairs"] = len(pairs)
            del pairs
            took, pairs = timed(lambda: self.read().simjoin.self_join(self.eps, **how))
            in_memory.append(took)
            if len(pairs) != found["pairs"]:
                raise AssertionError(
                    f"{len(pairs)} pairs in memory, {found['pairs']} through Dask"
                )
            del pairs
        return found | {
            "dask": summaries(lazily),
            "pandas": summaries(in_memory),
            "bytes": size_of(self.parts),
        }

    def read(self) -> Any:
        """Return all rows for a join in memory."""
        if self.asked.backend == "pandas":
            return pd.read_parquet(self.parts)
        return importlib.import_module("cudf").read_parquet(
            sorted(self.parts.iterdir())
        )

    def update(
        self, new: pd.DataFrame | None, gone: np.ndarray | None
    ) -> dict[str, Any]:
        """Update a new copy of the index each time, and compute the changed pairs."""
        if new is not None and self.asked.backend == "cudf":
            new = importlib.import_module("cudf").from_pandas(new)
        found: dict[str, Any] = {"commit": [], "update": [], "held": [], "persist": []}
        numbers: set[tuple[int, ...]] = set()
        for held in (False, True):
            for _ in range(self.asked.repeat):
                index = self.own()
                if held:
                    found["persist"].append(timed(index.persist)[0])
                took, changes = timed(
                    lambda index=index: index.update(new, delete=gone)
                )  # type: ignore[misc]
                more, pairs = timed(
                    lambda changes=changes: dask.compute(changes.added, changes.removed)
                )  # type: ignore[misc]
                numbers.add(tuple(map(len, pairs)))
                if not held:
                    found["commit"].append(took)
                    work = changes.work.numbers
                found["held" if held else "update"].append(
                    {name: took[name] + more[name] for name in took}
                )
                memory, report = index.memory.bytes_held, changes.report
                del pairs, changes
                shutil.rmtree(index.path)
        if len(numbers) > 1:
            raise AssertionError(
                f"pairs that came and went from disk and from memory: {numbers}"
            )
        added, removed = numbers.pop()
        return {name: summaries(times) for name, times in found.items()} | {
            "added": added,
            "removed": removed,
            "bytes_held": memory,
            "row_groups_read": work["row_groups_read"],
            "row_groups": work["row_groups"],
            "bytes_read": work["bytes_read"],
            "bytes_written": report.bytes_written,
            "bytes": size_of(self.folder / "index"),
        }

    def batches(self) -> Iterator[dict[str, Any]]:
        """Measure updates by new rows, scattered and together, and by deletions."""
        n = self.asked.rows
        for share in self.asked.shares:
            number = max(1, round(n * share))
            for where, part in (
                ("together", max(1 / TOGETHER, share)),
                ("scattered", 1.0),
            ):
                new = self.rows(number, n, part)
                row = {
                    "change": "insert",
                    "share": share,
                    "where": where,
                    "rows": number,
                }
                yield row | self._row(new, None)
        number = max(1, n // 100)
        for where in ("together", "scattered"):
            first = self.known[self.on[0]]
            first = first if self.plain else first.str[0]
            ordered = self.known["key"].to_numpy()[
                np.argsort(first.to_numpy(), kind="stable")
            ]
            gone = (
                ordered[:number]
                if where == "together"
                else self.random.permutation(n)[:number]
            )
            row = {"change": "delete", "share": 0.01, "where": where, "rows": number}
            yield row | self._row(None, gone)

    def _row(self, new: pd.DataFrame | None, gone: np.ndarray | None) -> dict[str, Any]:
        if new is not None:
            self.write_parts(new, "new")
        found = self.update(new, gone) | {"anew": self.anew()}
        for path in self.parts.glob("new-*"):
            path.unlink()
        clock, anew = (
            ("cpu" if self.asked.backend == "pandas" else "wall"),
            found["anew"],
        )
        found["times"] = {
            how: round(anew[how][clock] / found["update"][clock], 2) for how in ANEW
        }
        found["times_held"] = {
            how: round(anew[how][clock] / found["held"][clock], 2) for how in ANEW
        }
        return found

    def worn(self) -> dict[str, Any]:
        """Compare an index after many updates with one that is built of the same rows."""
        asked, index, known = self.asked, self.own(), [self.known]
        spent = {"cpu": 0.0, "wall": 0.0}
        upkeep = 0
        for number in range(asked.updates):
            size = max(1, asked.rows // 1000)
            new = self.rows(size, asked.rows + number * size)
            took, changes = timed(lambda new=new: index.update(new))  # type: ignore[misc]
            spent = {name: spent[name] + took[name] for name in spent}
            upkeep += changes.upkeep.bytes_written
            known.append(new)
        every = pd.concat(known, ignore_index=True)
        anew = self.index(every, self.folder / "anew")
        last = self.rows(max(1, asked.rows // 1000), 2 * len(every))
        index.vacuum(keep=1)
        found: dict[str, Any] = {
            "updates": asked.updates,
            "spent": spent,
            "upkeep_bytes": upkeep,
            "quality": index.quality().numbers,
        }
        for name, one in (("worn", index), ("anew", anew)):
            found[name] = {"bytes": size_of(one.path), "files": one.quality().files}
            updates, pairs = [], []
            for _ in range(asked.repeat):
                self.copies += 1
                copy = dask_simjoin.open_index(
                    copied(one.path, self.folder / f"copy{self.copies}")
                )
                updates.append(
                    timed(lambda copy=copy: len(copy.update(last).added.compute()))[0]
                )  # type: ignore[misc]
                pairs.append(timed(lambda one=one: len(one.pairs().compute()))[0])  # type: ignore[misc]
                shutil.rmtree(copy.path)
            found[name] |= {"update": summaries(updates), "pairs": summaries(pairs)}
        found["ratios"] = {
            "bytes": round(found["worn"]["bytes"] / found["anew"]["bytes"], 3),
            "update": round(
                found["worn"]["update"]["cpu"] / found["anew"]["update"]["cpu"], 3
            ),
            "pairs": round(
                found["worn"]["pairs"]["cpu"] / found["anew"]["pairs"]["cpu"], 3
            ),
        }
        return found


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.growing", description=__doc__
    )
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="known rows (default 10 million)"
    )
    parser.add_argument("--data", default="uniform", choices=["uniform", "embeddings"])
    parser.add_argument("--backend", default="pandas", choices=["pandas", "cudf"])
    parser.add_argument("--dims", type=int, default=2)
    parser.add_argument(
        "--neighbours", type=float, default=6.0, help="pairs that a row is in, about"
    )
    parser.add_argument(
        "--shares", type=float, nargs="+", default=SHARES, help="of new rows, of all"
    )
    parser.add_argument(
        "--updates", type=int, default=200, help="of the last part; 0: leave it out"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="20,000 rows, once")
    parser.add_argument(
        "--folder", type=Path, help="where files are written (default: a temporary one)"
    )
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    asked = parser.parse_args()
    if asked.quick:
        asked.rows, asked.repeat, asked.updates = 20_000, 1, min(asked.updates, 10)
    folder = Path(tempfile.mkdtemp(dir=asked.folder))
    how = (
        {"scheduler": "sync"}
        if asked.threads == 1
        else {"scheduler": "threads", "num_workers": asked.threads}
    )
    machine = environment([], VERSION)
    if asked.backend == "cudf":
        machine |= importlib.import_module(
            "benchmarks.harness.gpu_report"
        ).environment()
    report: dict[str, Any] = {
        "environment": machine,
        "unit": "CPU seconds and seconds",
        "threads": asked.threads,
        "rows": asked.rows,
        "dims": asked.dims,
        "neighbours": asked.neighbours,
        "data": asked.data,
        "backend": asked.backend,
    }
    try:
        with dask.config.set({"dataframe.convert-string": False} | how):
            bench = Bench(asked, folder)
            # compiled, loaded
            bench.update(bench.rows(10, 10 * asked.rows), np.arange(5))
            bench.anew()
            report |= {"eps": bench.eps, "build": bench.build, "batches": []}
            for row in bench.batches():
                report["batches"].append(row)
                print(
                    *(f"{name}={row[name]}" for name in SHOWN),
                    file=sys.stderr,
                    flush=True,
                )
                # written after each row, because a later row may take too long
                if asked.output is not None:
                    write(report, asked.output)
            if asked.updates:
                report["worn"] = bench.worn()
                print(report["worn"], file=sys.stderr)
            write(report, asked.output)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
