"""``python -m benchmarks cpu.ablation``: switch the parts of a join on one core off,
one after the other, and take the answer of its filter as final.

Seconds are CPU time of the index and of writing all pairs, the least of the runs, which
take turns.  All parts are switched off by the layout or the index, so kernels are those
of the package.

- "sweep": tiles instead, for few columns.
- "order of tiles": rows stay in the order in which they were drawn.
- "boxes": no tile is skipped, because all boxes have the size of the whole space.
- "VNNI", "8-bit filter", "all filters": sums in 16 bits, only the float32 filter, only
  float64.
- "8-bit filter, float64": sums in float32 decide, without a margin for their errors.
  Pairs are compared with the exact ones.
- "8-bit filter, float64 and margins": all candidates of float32 are pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.gpu.rival_programs import codes, without
from benchmarks.harness.report import environment, write
from benchmarks.papers.data import points
from dask_simjoin import __version__
from dask_simjoin.engine.cpu import tiles
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.filters.bounds import U
from dask_simjoin.planning.sample import moments

EVERYWHERE = np.float32(1e15)
"""Half of the side of a box that excludes nothing."""

SURE = np.float32(-1e30)
"""With this bound, each candidate is surely a pair."""


class Variant(NamedTuple):
    """A way to join.

    Attributes
    ----------
    name : str
        What is switched off.
    method : str
    ordered, boxes, vnni, quantized, filters : bool
        Whether these parts are there.
    final : str
        "": float64 decides; "sums": sums in float32 decide; "candidates": all
        candidates are pairs.
    """

    name: str
    method: str = "tiles"
    ordered: bool = True
    boxes: bool = True
    vnni: bool = True
    quantized: bool = True
    filters: bool = True
    final: str = ""


SWEPT = (Variant("nothing", "auto"), Variant("sweep"))
ALL = (
    Variant("nothing"),
    Variant("order of tiles", ordered=False),
    Variant("boxes", boxes=False),
    Variant("VNNI", vnni=False),
    Variant("8-bit filter", quantized=False),
    Variant("all filters", quantized=False, filters=False),
    Variant("8-bit filter, float64", quantized=False, final="sums"),
    Variant("8-bit filter, float64 and margins", quantized=False, final="candidates"),
)


class Case(NamedTuple):
    """Rows to join, of `benchmarks.papers.data` or "clustered"."""

    data: str
    rows: int
    dims: int
    eps: float
    variants: tuple[Variant, ...]

    def points(self, scale: float) -> np.ndarray:
        """Return the rows (n, dims), float64."""
        n = int(self.rows * scale)
        return (
            clustered(n, self.dims)
            if self.data == "clustered"
            else points(self.data, n)
        )


CASES = (
    Case("Expo2D", 200_000, 2, 0.02, SWEPT),
    Case("Expo6D", 100_000, 6, 0.75, ALL),
    Case("Syn16D", 100_000, 16, 0.05, ALL),
    Case("clustered", 20_000, 384, 25.3, ALL),
)


def clustered(n: int, dims: int) -> np.ndarray:
    """Draw a hundred points around each of n / 100 directions: see
    benchmarks/gpu/wide.py.
    """
    rng = np.random.default_rng(1)
    number = n // 100
    centres = rng.standard_normal((number, dims))
    width = 0.05 + 0.45 * rng.random((number, 1))
    which = rng.integers(0, number, n)
    return centres[which] + width[which] * rng.standard_normal((n, dims))


@contextlib.contextmanager
def switched(variant: Variant) -> Iterator[None]:
    """Switch off the parts of the index that have no switch in the layout."""
    with contextlib.ExitStack() as stack:
        if not variant.ordered:
            stack.enter_context(
                mock.patch.object(tiles, "kd_order", lambda x, *_: np.arange(len(x)))
            )
        if not variant.vnni:
            stack.enter_context(mock.patch.object(tiles, "WAYS", tiles.WAYS[1:]))
        yield


def joined(x: np.ndarray, eps: float, variant: Variant) -> tuple[Any, dict[str, Any]]:
    """Join by a variant; return the pairs, and the seconds of its steps."""
    found = moments(x)
    began = time.process_time()
    layout = JOINER.layout(
        variant.method, found.lower, found.upper, found.mean, found.variance, eps * eps
    )
    if variant.method == "tiles":
        if not variant.quantized:
            layout = replace(layout, quantized=None)
        if not variant.filters:
            layout = replace(layout, filter=None)
        with switched(variant):
            index = JOINER.build(x, layout)
    else:
        index = JOINER.build(x, layout)
    built = time.process_time()
    changed(index, variant, layout)
    joining = time.process_time()
    pairs = JOINER.pairs(index, index, layout, is_self_join=True)
    ended = time.process_time()
    return pairs, {
        "method": layout.method,
        "filters": filters(index, layout),
        "index": built - began,
        "join": ended - joining,
    }


def changed(index: dict[str, Any], variant: Variant, layout: Any) -> None:
    """Change the boxes and the terms of the float32 filter in an index.

    The terms without margins follow from those of `dask_simjoin.engine.filters.quantization`.
    """
    own = getattr(layout, "filter", None)
    if not variant.boxes:
        for name in ("lower", "low"):
            index[name][...] = -EVERYWHERE
        for name in ("upper", "high"):
            index[name][...] = EVERYWHERE
    if variant.final == "sums":
        index["limit"] += (index["sure"] - own.sure) / 4 + 4 * U * own.eps2
        index["start"] /= 1 - own.kappa
    if variant.final:
        index["sure"][...] = index["tile_sure"][...] = SURE


def filters(index: dict[str, Any], layout: Any) -> str:
    """Name the filters that an index is made for."""
    if layout.method != "tiles" or layout.filter is None:
        return "none"
    if "take" not in index:
        return "float32"
    return "8 bits, VNNI" if index["take"].dtype == np.int32 else "8 bits"


def measured(case: Case, scale: float, repeat: int, seconds: float) -> dict[str, Any]:
    """Run all variants of a case in turns, until its seconds are over."""
    x = case.points(scale)
    told: dict[str, dict[str, Any]] = {}
    exact = None
    began = time.perf_counter()
    for turn in range(repeat):
        for variant in case.variants:
            if turn and time.perf_counter() - began > seconds:
                break
            gc.collect()
            pairs, steps = joined(x, case.eps, variant)
            one = told.setdefault(
                variant.name,
                {"method": steps["method"], "filters": steps["filters"], "runs": []},
            )
            one["runs"].append(
                {name: round(steps[name], 4) for name in ("index", "join")}
            )
            if turn == 0:
                found = codes(pairs.left, pairs.right, len(x))
                exact = found if exact is None else exact
                one["pairs"] = len(found)
                one["false"], one["missed"] = (
                    len(without(found, exact)),
                    len(without(exact, found)),
                )
                if not variant.final and (one["false"] or one["missed"]):
                    raise AssertionError(f"{case} without {variant.name}: other pairs")
            del pairs
    for one in told.values():
        one["seconds"] = round(min(sum(run.values()) for run in one["runs"]), 4)
    return {
        "data": case.data,
        "rows": len(x),
        "dims": case.dims,
        "eps": case.eps,
        "without": told,
    }


def main(given: list[str]) -> None:
    """Run all cases, print a line for each variant, and write JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.ablation", description=__doc__
    )
    parser.add_argument("--scale", type=float, default=1.0, help="part of the rows")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=240.0, help="of each case")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(given)
    for case in CASES:  # compiles all kernels
        measured(case, 0.02, 1, 0.0)
    report: dict[str, Any] = {
        "environment": environment([], __version__),
        "unit": "CPU seconds of the index and of all pairs, least of the runs, which "
        "take turns",
        "results": [],
    }
    for case in CASES:
        row = measured(case, args.scale, args.repeat, args.seconds)
        report["results"].append(row)
        for name, one in row["without"].items():
            print(
                f"{row['data']} without {name}: {one['seconds']:.3f} s, {one['filters']}, "
                f"{one['pairs']:,} pairs, {one['false']} false, {one['missed']} missed",
                file=sys.stderr,
                flush=True,
            )
    write(report, args.output)


if __name__ == "__main__":
    main(sys.argv[1:])
