"""``python -m benchmarks gpu.wide``: near-duplicates of a million embeddings on one
GPU, by cosine distance.

Points lie on the GPU as float32.  A run makes unit vectors of them in float64, builds
the index, and writes every unordered pair once, exactly.  Other runs use the kernel for
GPUs without products of warpgroups ("by warps"), and on fewer rows float32 differences
instead of tensor cores.  The peer is a simple program with CuPy.  cuBLAS multiplies
float16 unit vectors block by block, and a kernel lists the large products.  It is not
exact.  The benchmark needs CuPy only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import timed
from dask_simjoin.engine.filters import float16
from dask_simjoin.engine.gpu import tiles as gpu_tiles
from dask_simjoin.engine.gpu.build import narrowed
from dask_simjoin.engine.gpu.tiles import build
from dask_simjoin.engine.index.gpu import make_device_layout
from dask_simjoin.metrics import make_metric

LARGE = """
extern "C" __global__ void large(const uint4* products, unsigned long long eights, int width, int least,
                                 int row0, int column0, int2* out, unsigned long long room,
                                 unsigned long long* count) {
    for (unsigned long long at = blockIdx.x * 256ull + threadIdx.x; at < eights; at += gridDim.x * 256ull) {
        const uint4 eight = products[at];
        const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
        for (int k = 0; k < 8; k++) {
            // float16 numbers above 0 are in the order of their bits
            if ((short)(words[k / 2] >> k % 2 * 16) < least) continue;
            const int row = row0 + (int)(at * 8 / width), column = column0 + (int)(at * 8 % width) + k;
            if (column <= row) continue;
            const unsigned long long to = atomicAdd(count, 1ull);
            if (to < room) out[to] = make_int2(row, column);
        }
    }
}
"""

ROWS, FEW, DIMS = 1_000_000, 100_000, 384
DISTANCES = (0.05, 0.1)
BLOCK, BLOCK_OTHERS = 8192, 1 << 17


def gaussian(n: int, dims: int) -> Any:
    """Draw even directions, 1 % of them copies of others with noise: at cosine
    distances up to 0.15.
    """
    rng = cupy.random.default_rng(0)
    # a quarter at a time takes less memory
    x, step = cupy.empty((n, dims), cupy.float32), n if n <= ROWS else ROWS // 4
    for start in range(0, n, step):
        x[start : start + step] = rng.standard_normal(
            (min(step, n - start), dims), cupy.float32
        )
    some = n // 100
    noise = cupy.sqrt(2 * rng.random((some, 1), cupy.float32) * np.float32(0.15))
    x[-some:] = x[:some] + noise * rng.standard_normal((some, dims), cupy.float32)
    return x


def clustered(n: int, dims: int) -> Any:
    """Draw a hundred points around each of n / 100 directions, some clusters ten times
    as wide as others.
    """
    rng = cupy.random.default_rng(1)
    number = n // 100
    centres = rng.standard_normal((number, dims), cupy.float32)
    width = 0.05 + 0.45 * rng.random((number, 1), cupy.float32)
    which = rng.integers(0, number, n)
    return centres[which] + width[which] * rng.standard_normal((n, dims), cupy.float32)


KINDS = {"gaussian": gaussian, "clustered": clustered}


def joined(
    x: Any, eps: float, engine: str, repeat: int, narrow: bool = False
) -> dict[str, Any]:
    """Make unit vectors, index and join, device to device; with `narrow` the index
    stores float32 rows.
    """
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    metric = make_metric("cosine", 2)
    embedding = timed(lambda: metric.embed(x, cupy), repeat)
    unit = metric.embed(x, cupy)
    moments = [f(unit, axis=0).get() for f in (cupy.min, cupy.max, cupy.mean, cupy.var)]
    layout = make_device_layout(*moments, metric.threshold(eps), engine)
    if narrow:
        columns = cupy.asfortranarray(x, cupy.float64)
        unit, lengths = metric.divided(columns, cupy)
        narrowing = timed(lambda: narrowed(columns, unit, lengths), repeat, len)
        unit = narrowed(columns, unit, lengths)
        del columns, lengths
    index = timed(
        lambda: build(unit, layout), repeat, lambda built: len(built["order"])
    )
    built = build(unit, layout)
    told: list[int] = []

    def join() -> int:
        pairs = 0
        for found in gpu_tiles.batches(built, built, layout, is_self_join=True):
            pairs += len(found.places)
            told[:] = found.decided, found.refused
        return pairs

    join_ = timed(join, repeat, int)
    n, dims = x.shape
    return {
        "engine": layout.engine,
        "embedding": embedding,
        "index": index,
        "join": join_,
        "pairs": join_["found"],
        "decided in float64": told[0],
        "refused": told[1],
        # counts all pairs of points, two operations a dimension, as if the index
        # skipped none
        "tflops, all candidates": round(n * n * dims / join_["median"] / 1e12, 1),
        "gpu memory, GB": round(pool.total_bytes() / 1e9, 2),
        "of it the index, GB": round(sum(a.nbytes for a in built.values()) / 1e9, 2),
    } | ({"narrowing": narrowing} if narrow else {})


@contextlib.contextmanager
def without_warpgroups() -> Iterator[None]:
    """Use the kernel for GPUs that multiply by warps only."""
    before, float16.TENSOR_DIMS = float16.TENSOR_DIMS, 1 << 30
    try:
        yield
    finally:
        float16.TENSOR_DIMS = before


def peer(x: Any, eps: float, pairs: int) -> dict[str, Any]:
    """Find large products of blocks of float16 unit vectors, by CuPy."""
    cupy.get_default_memory_pool().free_all_blocks()
    h = (x / cupy.sqrt((x * x).sum(axis=1, keepdims=True))).astype(cupy.float16)
    least = int(np.float16(1 - eps).view(np.int16))
    large = cupy.RawKernel(LARGE, "large")
    room = 2 * pairs + 1024
    out, count = cupy.empty((room, 2), cupy.int32), cupy.zeros(1, cupy.uint64)
    products = cupy.empty(BLOCK * BLOCK_OTHERS, cupy.float16)

    def multiply(search: bool) -> int:
        count[:] = 0
        for i in range(0, len(h), BLOCK):
            for j in range(i, len(h), BLOCK_OTHERS):
                one, other = h[i : i + BLOCK], h[j : j + BLOCK_OTHERS]
                block = products[: len(one) * len(other)].reshape(len(one), len(other))
                cupy.matmul(one, other.T, out=block)
                if search:
                    eights = np.uint64(block.size // 8)
                    large(
                        (4096,),
                        (256,),
                        (
                            block,
                            eights,
                            np.int32(len(other)),
                            np.int32(least),
                            np.int32(i),
                            np.int32(j),
                            out,
                            np.uint64(room),
                            count,
                        ),
                    )
        return int(count[0])

    alone = timed(lambda: multiply(False), 2, int)
    both = timed(lambda: multiply(True), 2, int)
    n, dims = x.shape
    return both | {
        "pairs": both["found"],
        "products alone": alone["median"],
        "tflops, all candidates": round(n * n * dims / both["median"] / 1e12, 1),
        "of the products": round(n * n * dims / alone["median"] / 1e12, 1),
    }


def main(given: list[str]) -> None:
    """Measure, and print and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.wide", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--few", type=int, default=FEW)
    parser.add_argument("--dims", type=int, default=DIMS)
    parser.add_argument(
        "--join-only",
        action="store_true",
        help="only the first join, of evenly drawn rows",
    )
    parser.add_argument(
        "--narrow-only",
        action="store_true",
        help="only joins of float32 and float64 rows",
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(given)
    results: dict[str, Any] = {}

    def note(name: str, one: dict[str, Any]) -> None:
        results[name] = one
        print(f"{name}: {one}", file=sys.stderr, flush=True)

    # the first call compiles everything, which must not be timed
    x = gaussian(8192, args.dims)
    for engine in ("float16", "float32"):
        joined(x, DISTANCES[0], engine, 0)
        joined(x, DISTANCES[0], engine, 0, narrow=True)
    peer(x, DISTANCES[0], len(x))
    for kind, make in ({} if args.join_only else KINDS).items():
        x = make(args.rows, args.dims)
        for eps in DISTANCES:
            found = joined(x, eps, "auto", args.repeat)
            note(f"{kind}, {args.rows} rows, {eps}", found)
            own = joined(x, eps, "auto", args.repeat, narrow=True)
            note(f"{kind}, {args.rows} rows, {eps}, float32 rows", own)
            assert own["pairs"] == found["pairs"]
            if args.narrow_only:
                continue
            with without_warpgroups():
                note(
                    f"{kind}, {args.rows} rows, {eps}, by warps",
                    joined(x, eps, "auto", args.repeat),
                )
            note(
                f"{kind}, {args.rows} rows, {eps}, cuBLAS", peer(x, eps, found["pairs"])
            )
        for engine in () if args.narrow_only else ("float16", "float32"):
            few = make(args.few, args.dims)
            note(
                f"{kind}, {args.few} rows, {DISTANCES[0]}, {engine}",
                joined(few, DISTANCES[0], engine, 1),
            )
        x = few = None
    if args.join_only:
        note(
            f"gaussian, {args.rows} rows, {DISTANCES[0]}",
            joined(gaussian(args.rows, args.dims), DISTANCES[0], "auto", args.repeat),
        )
    told = {
        "environment": environment(),
        "unit": "seconds, medians",
        "dims": args.dims,
        "results": results,
    }
    if args.output:
        args.output.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
