"""Trace one call of each verb: how many modules and functions of the package it passes
through.

``python -m tools.walk`` prints a table; ``--verb self_join`` every function of one
verb, in the order of first calls.  Frames have four partitions, tasks run in this
thread, and kernels are warm.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401

PARTITIONS = 4

ROWS = 2000

PACKAGE = "dask_simjoin"

MADE_BY_HAND = "<"
"""Names of comprehensions, lambdas and modules begin with it."""


class Walk(NamedTuple):
    """What one call passed through: each function with its module, in the order of
    first calls.
    """

    calls: int
    functions: list[tuple[str, str, int]]

    @property
    def modules(self) -> list[str]:
        """Distinct modules, in the order in which they were entered."""
        return list(dict.fromkeys(module for module, _, _ in self.functions))

    @property
    def named(self) -> list[tuple[str, str, int]]:
        """Distinct functions that have a name."""
        return [
            some
            for some in self.functions
            if not some[1].split(".")[-1].startswith(MADE_BY_HAND)
        ]


def trace(call: Callable[[], Any]) -> Walk:
    """Call a function, and record each call of a function of the package."""
    seen: Counter[CodeType] = Counter()
    modules: dict[CodeType, str] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            generated = frame.f_code.co_filename == "<string>"  # by dataclasses
            if not generated and (
                module == PACKAGE or module.startswith(PACKAGE + ".")
            ):
                seen[frame.f_code] += 1
                modules[frame.f_code] = module

    gc.disable()  # callbacks of the collector are no part of the call
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    found = [(modules[code], code.co_qualname, code.co_firstlineno) for code in seen]
    return Walk(seen.total(), found)


def points(rows: int = ROWS) -> dd.DataFrame:
    """Return a lazy frame of random points in the plane."""
    random = np.random.default_rng(rows)
    frame = pd.DataFrame(random.random((rows, 2)), columns=["x", "y"])
    return dd.from_pandas(frame, npartitions=PARTITIONS)


def texts(rows: int = ROWS) -> dd.DataFrame:
    """Return a lazy frame of random lists of words."""
    random = np.random.default_rng(rows)
    words = [" ".join(f"w{n}" for n in random.integers(0, 200, 8)) for _ in range(rows)]
    return dd.from_pandas(pd.DataFrame({"text": words}), npartitions=PARTITIONS)


VERBS: dict[
    str, tuple[Callable[[int], dd.DataFrame], Callable[[dd.DataFrame], Any]]
] = {
    "self_join": (points, lambda frame: frame.simjoin.self_join(0.02)),
    "count_pairs": (points, lambda frame: frame.simjoin.count_pairs(0.02)),
    "neighbor_counts": (points, lambda frame: frame.simjoin.neighbor_counts(0.02)),
    "join": (points, lambda frame: frame.simjoin.join(points(900), 0.02)),
    "knn_join": (points, lambda frame: frame.simjoin.knn_join(k=3)),
    "dbscan": (points, lambda frame: frame.simjoin.dbscan(0.02)),
    "hdbscan": (points, lambda frame: frame.simjoin.hdbscan(min_cluster_size=5)),
    "set_self_join": (
        texts,
        lambda frame: frame.simjoin.set_self_join("text", 0.8, tokenizer="words"),
    ),
}
"""Each verb's rows, and its call."""


def walk(verb: str) -> Walk:
    """Trace one call of a verb whose kernels are loaded, on rows that are new."""
    make, call = VERBS[verb]

    def once(frame: dd.DataFrame) -> Any:
        found = call(frame)
        return found.compute() if hasattr(found, "compute") else found

    with dask.config.set(scheduler="synchronous"):
        once(make(ROWS))
        once(make(ROWS - 1))
        frame = make(ROWS - 2)
        return trace(lambda: once(frame))


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or the walk of one verb."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--verb", choices=sorted(VERBS))
    chosen = parser.parse_args(arguments).verb
    if chosen is not None:
        for module, name, line in walk(chosen).functions:
            print(f"{module.removeprefix(PACKAGE + '.')}:{line} {name}")
        return
    print("| verb | calls | functions | named functions | modules |")
    print("|---|---|---|---|---|")
    for verb in VERBS:
        found = walk(verb)
        print(
            f"| {verb} | {found.calls:,} | {len(found.functions)} | {len(found.named)} "
            f"| {len(found.modules)} |"
        )


if __name__ == "__main__":
    main()
