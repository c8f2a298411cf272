"""The tables of RE-JOIN (Korkmaz 2012, section 5.2.4): rows that come in batches, and
when to cluster anew.

First data of 50,000 rows in 8 dimensions, ten clusters, eps .5. Table 5.3: batches
until 50,000 more rows are there, and after each all pairs are known. Table 5.4: four
batches of 1,000 rows, and many queries at several distances up to .5 between them.

An index on disk takes batches in, with all that is written and synced for it, and a
consumer adds the pairs that came to those it has. Beside it ("anew") all rows are
joined once after each batch, at the largest distance. Both keep the pairs' distances,
and answer queries from them. In table 5.4 all rows are also joined once for each query
("each query"), as in the thesis. CPU seconds of this process; those of the first rows'
index and pairs are part of them.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd

from benchmarks.harness.repeats import summary
from benchmarks.papers.lists_rows import points

PAPER = "rejoin"

FIRST, MORE, DIMS, EPS = 50_000, 50_000, 8, 0.5

POLICIES = ("always", "never", "auto", 1.5, 2.0)
"""The first two are the thesis's AR and NR; numbers stand for its thresholds, of the
scan ratio.
"""

ANEW, EACH = "anew", "each query"

PUBLISHED = {
    ("T5.3", 500): {
        "qm50": 143.6,
        "qm100": 144.7,
        "always": 143.8,
        "never": 155.5,
        ANEW: 151.1,
    },
    ("T5.3", 1000): {
        "qm50": 71.7,
        "qm100": 72.5,
        "always": 71.5,
        "never": 78.1,
        ANEW: 77.2,
    },
    ("T5.3", 2000): {
        "qm50": 39.1,
        "qm100": 39.2,
        "always": 39.07,
        "never": 41.6,
        ANEW: 39.03,
    },
    ("T5.3", 4000): {
        "qm50": 24.1,
        "qm100": 23.2,
        "always": 24.1,
        "never": 25.1,
        ANEW: 19.2,
    },
    ("T5.3", 6000): {
        "qm50": 18.8,
        "qm100": 17.7,
        "always": 18.6,
        "never": 18.8,
        ANEW: 13.4,
    },
    ("T5.4", 5): {
        "qm50": 107.3,
        "qm100": 105.27,
        "always": 107.5,
        "never": 118.3,
        ANEW: 115.4,
    },
    ("T5.4", 15): {
        "qm50": 272.8,
        "qm100": 270.3,
        "always": 272.5,
        "never": 302.7,
        ANEW: 307.3,
    },
    ("T5.4", 25): {
        "qm50": 442.0,
        "qm100": 441.0,
        "always": 442.9,
        "never": 490.9,
        ANEW: 494.7,
    },
    ("T5.4", 35): {
        "qm50": 606.6,
        "qm100": 601.9,
        "always": 608.8,
        "never": 678.9,
        ANEW: 690.6,
    },
}
"""Published seconds of a GTX 560, by the number of rows or queries of a batch."""

UPDATES, BATCH = 4, 1000
"""Number of updates and rows of a batch in table 5.4."""


def frames(first: int, batches: list[int]) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Return the first rows, and the rows of each batch."""
    x = points("clusters", first + sum(batches), DIMS, EPS).astype(np.float64)
    every = pd.DataFrame(x, columns=[f"c{k}" for k in range(DIMS)])
    ends = np.cumsum([first, *batches])
    return every.iloc[:first], [
        every.iloc[a:b]
        for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]


def distances(number: int) -> list[float]:
    """Return the distances of some queries, which cover the whole range."""
    return np.linspace(0.2, EPS, max(number, 1)).round(3).tolist()


def within(known: list[np.ndarray], distances: list[float]) -> list[int]:
    """Count the pairs within each of some distances."""
    return [sum(int((some <= eps).sum()) for some in known) for eps in distances]


def by_index(
    first: pd.DataFrame,
    batches: list[pd.DataFrame],
    queries: list[list[float]],
    policy: Any,
) -> tuple[float, list[int], dict[str, Any]]:
    """Return CPU seconds, the pairs of each query, and the final layout of the index."""
    folder, found = Path(tempfile.mkdtemp()), []
    try:
        began, written = time.process_time(), 0
        index = first.simjoin.index(
            EPS, folder / "index", return_distance=True, recluster=policy
        )
        known = [index.pairs().compute()["distance"].to_numpy()]
        built = time.process_time() - began
        for batch, asked in zip(batches, queries, strict=True):
            changes = index.update(batch)
            known.append(changes.added.compute()["distance"].to_numpy())
            written += changes.upkeep.bytes_written
            found += within(known, asked)
        spent = time.process_time() - began
        quality = index.quality().numbers
        told = {"first_seconds": round(built, 4), "upkeep_bytes": written}
        return spent, found, told | {k: quality[k] for k in ("scan_ratio", "files")}
    finally:
        shutil.rmtree(folder)


def joined_anew(
    first: pd.DataFrame,
    batches: list[pd.DataFrame],
    queries: list[list[float]],
    each: bool = False,
) -> tuple[float, list[int], dict[str, Any]]:
    """Measure joins of all rows once after each batch, or (`each`) once for each query."""
    began, found, parts = time.process_time(), [], [first]
    first.simjoin.self_join(EPS, return_distance=True)
    built = time.process_time() - began
    for batch, asked in zip(batches, queries, strict=True):
        parts.append(batch)
        every = pd.concat(parts)
        if each:
            found += [
                len(every.simjoin.self_join(eps, return_distance=True)) for eps in asked
            ]
        else:
            pairs = every.simjoin.self_join(EPS, return_distance=True)
            found += within([pairs["distance"].to_numpy()], asked)
    return time.process_time() - began, found, {"first_seconds": round(built, 4)}


def runs(
    figures: list[str] | None, rows: int | None, repeat: int
) -> Iterator[dict[str, Any]]:
    """Run both tables; `rows` is the first number of rows, and batches are in
    proportion to it.
    """
    scale = 1.0 if rows is None else rows / FIRST
    first = rows or FIRST
    _warm_up()
    for figure, setting in PUBLISHED:
        if figures and figure not in figures:
            continue
        if figure == "T5.3":
            size = max(1, round(setting * scale))
            sizes = [size] * max(1, round(MORE * scale) // size)
            queries = [[EPS]] * len(sizes)
        else:
            sizes = [max(1, round(BATCH * scale))] * UPDATES
            asked = distances(setting)
            queries = [part.tolist() for part in np.array_split(asked, UPDATES)]
        yield from _rows(figure, setting, frames(first, sizes), queries, repeat)


def _warm_up() -> None:
    """Run everything once, so that it is compiled and loaded."""
    data = frames(1000, [50, 50])
    joined_anew(*data, [[EPS]] * 2)
    joined_anew(*data, [[EPS]] * 2, each=True)
    for policy in POLICIES:
        by_index(*data, [[EPS]] * 2, policy)


def _rows(
    figure: str,
    setting: int,
    data: tuple[pd.DataFrame, list[pd.DataFrame]],
    queries: list[list[float]],
    repeat: int,
) -> Iterator[dict[str, Any]]:
    ways: dict[Any, Callable[[], tuple[float, list[int], dict[str, Any]]]] = {
        ANEW: lambda: joined_anew(*data, queries)
    }
    if figure == "T5.4":
        ways[EACH] = lambda: joined_anew(*data, queries, each=True)
    ways |= {
        policy: lambda policy=policy: by_index(*data, queries, policy)
        for policy in POLICIES
    }  # type: ignore[misc]
    published = PUBLISHED[figure, setting]
    base, expected = 0.0, None
    with dask.config.set(scheduler="sync"):
        for name, way in ways.items():
            done = [way() for _ in range(repeat)]
            spent, (_, pairs, more) = summary([run[0] for run in done]), done[-1]
            expected = pairs if expected is None else expected
            if pairs != expected:
                raise AssertionError(
                    f"{figure} {setting} {name}: {pairs} pairs, and joined anew "
                    f"{expected}"
                )
            base = base or spent["seconds"]
            told = published.get(ANEW if name == EACH else str(name))
            yield {
                "paper": PAPER,
                "figure": figure,
                "setting": setting,
                "policy": name,
                **spent,
                "times": round(base / max(spent["seconds"], 1e-9), 3),
                "published": None if told is None else round(published[ANEW] / told, 3),
                "published threshold": round(
                    published[ANEW] / min(published["qm50"], published["qm100"]), 3
                ),
                "updates": len(data[1]),
                "queries": sum(map(len, queries)),
                "pairs": pairs[-1],
            } | more
