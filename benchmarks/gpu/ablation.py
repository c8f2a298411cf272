"""``python -m benchmarks gpu.ablation``: switch the parts of a join on a GPU off, one
after the other, and take the answer of its filter as final.

Rows and index are on the GPU.  Seconds are those of the kernels alone, for all pairs;
"index" is the time to build the index in the same way.  Parts without a switch are
changed in the source code of the kernels, for this program only.

- "order of tiles": rows stay in the order in which they were drawn.
- "boxes": no tile is skipped, because all boxes have the size of the whole space.
- "float16 filter", "all filters": float32 differences filter, or float64 decides all.
- "wgmma": the kernel for other GPUs, whose single warps multiply.
- "sharing in a cluster": each block of threads copies all of its queries by itself.
- "common first tile": all blocks compare the tiles in the order of their numbers.
- "float64": the rounded numbers of the filter decide, without a margin for their errors.
  Pairs are compared with the exact ones.
- "float64 and margins": all candidates are pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import cupy

from benchmarks.gpu import wide
from benchmarks.gpu.rival_programs import codes, without
from benchmarks.gpu.rivals import moments_of, rows_of
from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import clock
from benchmarks.harness.repeats import repeated, summary
from benchmarks.papers.data import points
from dask_simjoin.engine.gpu import load, tiles
from dask_simjoin.engine.gpu.build import BUILDER
from dask_simjoin.engine.gpu.sources import source
from dask_simjoin.engine.index import gpu as device
from dask_simjoin.engine.index.gpu import make_device_layout

LONG = 2.0
"""A run that takes more seconds is not repeated."""

EVERYWHERE = 1e15
"""Half of the side of a box that excludes nothing."""

Patch = tuple[tuple[str, str], ...]

PLAIN: Patch = (
    (
        "double s = (t - norm) / 2 + g * p + U24;\n        s += U30 * fabs(s);",
        "double s = (outer * outer / 2 - norm) / 2;",
    ),
    ("(near & ~unsure) << FIRST", "near << FIRST"),
    ("open |= (near & unsure) << FIRST;", "(void)unsure;"),
    ("sums[m][h] <= reach &&", "sums[m][h] <= (reach + sure) / 2 &&"),
    ("if (hit[h] && sums[m][h] > sure)", "if (false)"),
)
"""The sums of the filter decide, without a margin for their errors."""

CANDIDATES: Patch = (
    ("(near & ~unsure) << FIRST", "near << FIRST"),
    ("open |= (near & unsure) << FIRST;", "(void)unsure;"),
    ("if (hit[h] && sums[m][h] > sure)", "if (false)"),
)
"""All candidates are pairs."""

ALONE: Patch = (
    (
        "copy_to_both(query_memory + rank * TILE_BYTES, qh + (size_t)(2 * i + rank) * "
        "TILE * STRIDE, TILE_BYTES,\n                         queried);",
        "for (int half = 0; half < 2; half++) copy_here(query_memory + half * "
        "TILE_BYTES, qh + (size_t)(2 * i + half) * TILE * STRIDE, TILE_BYTES, queried);",
    ),
    (
        "copy_to_both(to + rank * SLICE_BYTES, queries + s * TILE * 64, bytes, on);",
        "for (int half = 0; half < 2; half++) copy_here(to + half * SLICE_BYTES, "
        "queries + (half - rank) * TILE * STRIDE + s * TILE * 64, bytes, on);",
    ),
    ("#define READERS (2 * WARPS)", "#define READERS WARPS"),
    (
        '#if RESIDENT\n    asm volatile("mbarrier.arrive.shared::cta',
        '#if 1\n    asm volatile("mbarrier.arrive.shared::cta',
    ),
)
"""A block copies all slices of its queries, and waits for its own warps only."""

IN_ORDER: Patch = (
    (
        "if (same) {\n                const int wave",
        "if (false) {\n                const int wave",
    ),
)
"""Blocks do not begin with the same tile."""


class Variant(NamedTuple):
    """A way to join.

    Attributes
    ----------
    name : str
        What is switched off.
    engine : str
    patch : Patch
        Replacements in the source code of the kernels.
    ordered, boxes, warpgroups : bool
        Whether these parts are there.
    exact : bool
        Whether the pairs must be the exact ones.
    """

    name: str
    engine: str = "auto"
    patch: Patch = ()
    ordered: bool = True
    boxes: bool = True
    warpgroups: bool = True
    exact: bool = True


ALL = (
    Variant("nothing"),
    Variant("order of tiles", ordered=False),
    Variant("boxes", boxes=False),
    Variant("all filters", engine="float64"),
    Variant("float64", patch=PLAIN, exact=False),
    Variant("float64 and margins", patch=CANDIDATES, exact=False),
)
TENSOR = (
    Variant("float16 filter", engine="float32"),
    Variant("wgmma", warpgroups=False),
    Variant("sharing in a cluster", patch=ALONE),
    Variant("common first tile", patch=IN_ORDER),
)
"""Variants of joins on tensor cores."""


class Case(NamedTuple):
    """Rows to join.

    Attributes
    ----------
    data : str
        Of `benchmarks.papers.data`, or a kind of benchmarks/gpu/wide.py.
    rows, dims : int
    eps : float
    """

    data: str
    rows: int
    dims: int
    eps: float

    def points(self, scale: float) -> Any:
        """Return the rows (n, dims) on the GPU, float64."""
        n = int(self.rows * scale)
        if self.data in wide.KINDS:
            return wide.KINDS[self.data](n, self.dims).astype(cupy.float64)
        return cupy.asarray(points(self.data, n))


CASES = (
    Case("Expo2D", 2_000_000, 2, 0.01),
    Case("Syn16D", 500_000, 16, 0.05),
    Case("clustered", 250_000, 768, 35.81),
)


@contextlib.contextmanager
def changed(patch: Patch) -> Iterator[list[str]]:
    """Compile kernels from changed source code; yields the changes that were made."""
    made: list[str] = []

    def patched(name: str, **constants: int) -> str:
        text = source(name, **constants)
        for old, new in patch:
            if old in text:
                text = text.replace(old, new)
                made.append(old)
        return text

    def forget() -> None:
        load._modules.clear()
        load._function.cache_clear()
        load.grid_size.cache_clear()

    load.source = patched  # type: ignore[assignment]
    if patch:
        forget()
    try:
        yield made
    finally:
        load.source = source
        if patch:
            forget()


def everywhere(index: dict[str, Any]) -> dict[str, Any]:
    """Return an index whose boxes exclude nothing."""
    for name, value in (("lower", -EVERYWHERE), ("upper", EVERYWHERE)):
        index[name] = cupy.full_like(index[name], value)
    return index


def joined(
    x: Any, eps: float, variant: Variant, repeat: int
) -> tuple[dict[str, Any], Any]:
    """Time a variant; return its times, and its pairs as codes."""
    layout = make_device_layout(*moments_of(x), eps**2, variant.engine)
    builder = BUILDER
    if not variant.ordered:
        builder = replace(
            BUILDER, order=lambda x, *_: cupy.arange(len(x), dtype=cupy.int32)
        )
    with contextlib.ExitStack() as stack:
        if not variant.warpgroups:
            stack.enter_context(wide.without_warpgroups())
        made = stack.enter_context(changed(variant.patch))

        def build() -> dict[str, Any]:
            index = device.build(x, layout, builder)
            return index if variant.boxes else everywhere(index)

        index = build()
        counters: list[int] = []

        def join() -> None:
            for batch in tiles.batches(index, index, layout, is_self_join=True):
                counters[:] = batch.decided, batch.refused

        found = codes(
            *rows_of(
                tiles.batches(index, index, layout, is_self_join=True), index["order"]
            ),
            len(x),
            cupy,
        )
        if variant.patch and not made:
            return {"absent": "the kernels have no such part"}, None
        result = {
            "engine": layout.engine,
            "pairs": len(found),
            "join": summary(repeated(lambda: clock(join), repeat, LONG)),
            "index": summary(repeated(lambda: clock(build), repeat, LONG)),
            "decided in float64": counters[0],
            "refused": counters[1],
        }
    return result, found


def main(given: list[str]) -> None:
    """Join all cases in all ways, print a line for each, and write JSON after each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.ablation", description=__doc__
    )
    data = [case.data for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=data, default=data)
    names = [variant.name for variant in (*ALL, *TENSOR)]
    parser.add_argument("--without", nargs="+", choices=names, default=names)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the rows")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=110.0, help="start none later")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(given)
    end = time.monotonic() + args.seconds
    report: dict[str, Any] = {
        "environment": environment(),
        "unit": "seconds, medians of the runs",
        "rows": [],
    }
    for case in (case for case in CASES if case.data in args.cases):
        x = case.points(args.scale)
        row = {**case._asdict(), "rows": len(x), "without": {}}
        report["rows"].append(row)
        exact = None
        variants = ALL if case.dims < 9 else (*ALL, *TENSOR)
        for variant in variants:
            # pairs are compared with those of the first one
            if variant.name not in ("nothing", *args.without):
                continue
            if time.monotonic() > end:
                row["without"][variant.name] = {"absent": "no time was left"}
                continue
            result, found = joined(x, case.eps, variant, args.repeat)
            if found is None:
                row["without"][variant.name] = result
                continue
            exact = found if exact is None else exact
            false, missed = (
                len(without(*both, cupy)) for both in ((found, exact), (exact, found))
            )
            if variant.exact and (false or missed):
                raise AssertionError(f"{case} without {variant.name}: other pairs")
            row["without"][variant.name] = result | {"false": false, "missed": missed}
            told = {
                name: one["seconds"] if isinstance(one, dict) else one
                for name, one in row["without"][variant.name].items()
            }
            print(
                f"{case.data} without {variant.name}: {told}",
                file=sys.stderr,
                flush=True,
            )
            if args.output:
                args.output.write_text(json.dumps(report, indent=1) + "\n")
            del found
            cupy.get_default_memory_pool().free_all_blocks()
        x = exact = None


if __name__ == "__main__":
    main(sys.argv[1:])
