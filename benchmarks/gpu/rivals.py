"""``python -m benchmarks gpu.rivals``: compare self-joins by Euclidean distance with
other programs on a GPU.

All run on one machine, on the same rows of float32; `eps` gives about 64 neighbors per
row. Programs of other authors are in the folder `--programs` (see
benchmarks/gpu/rival_programs.py). Libraries that are not installed are listed as
absent. For cuBLAS, CuPy multiplies blocks of rows, and a kernel writes pairs whose
distance is small. cuVS and faiss find the k nearest rows, because their Python
interfaces have no range search on GPUs. Their k is the largest number of neighbors of
any row, plus the row itself. We take it from our join.

"kernels" are the seconds of a join whose rows and index are on the GPU; for libraries,
they include the index. "whole" starts with rows in host memory and ends with pairs
there. It includes the index, but not the start of a process, nor files. Pairs are
compared with ours. If they differ, float64 decides.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

with contextlib.suppress(ImportError, OSError):
    import cuvs  # noqa: F401  (before CuPy, which loads an older nvJitLink than cuVS was linked to)
with contextlib.suppress(ImportError, OSError):
    import cuml  # noqa: F401  (likewise)
import cupy
import numpy as np

from benchmarks.gpu import wide
from benchmarks.gpu.rival_programs import (
    LIMIT,
    LONG,
    PROGRAMS,
    Program,
    ProgramError,
    codes,
    compared,
    measured,
    moved,
)
from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import clock
from benchmarks.harness.repeats import repeated, summary
from benchmarks.papers.data import distance_of, points
from dask_simjoin.engine.gpu import tiles
from dask_simjoin.engine.index.gpu import make_device_layout

Pairs = tuple[Any, Any]
Search = Callable[[Any], Pairs]
Save = Callable[[dict[str, Any]], None]

NEIGHBORS = 64

NEAR = """
extern "C" __global__ void near(const float* products, int width, const float* norms, float limit, int row0,
                                int column0, int2* out, unsigned long long room, unsigned long long* count) {
    const int row = row0 + blockIdx.y;
    const float* line = products + (size_t)blockIdx.y * width;
    const float bound = limit - norms[row];
    for (int k = blockIdx.x * 256 + threadIdx.x; k < width; k += gridDim.x * 256) {
        const int column = column0 + k;
        if (column <= row || norms[column] - 2 * line[k] > bound) continue;
        const unsigned long long to = atomicAdd(count, 1ull);
        if (to < room) out[to] = make_int2(row, column);
    }
}
"""

BLOCK, BLOCK_OTHERS = 8192, 1 << 17

MOST_NEIGHBORS = 2048
"""Most nearest rows that faiss finds on a GPU."""


STEPS = 2048
"""Coordinates of skewed rows are multiples of 1 / STEPS, so that rows can be moved
without rounding.
"""


def deep(n: int, dims: int) -> Any:
    """Draw unit vectors whose columns have falling variances, as in Deep1B, but no
    clusters.
    """
    x = cupy.random.default_rng(2).standard_normal((n, dims), cupy.float32)
    x *= cupy.arange(1, dims + 1, dtype=cupy.float32) ** np.float32(-0.5)
    return x / cupy.sqrt((x * x).sum(axis=1, keepdims=True))


def sift(n: int, dims: int) -> Any:
    """Draw whole numbers from 0 to 255, few of them large, and of length about 512, as
    in SIFT, but no clusters.
    """
    x = cupy.random.default_rng(3).standard_normal((n, dims), cupy.float32) ** 2
    x *= 512 / cupy.sqrt((x * x).sum(axis=1, keepdims=True))
    return cupy.minimum(cupy.rint(x), np.float32(255))


class Case(NamedTuple):
    """Rows to join; "skew" is of the papers, "deep" and "sift" are of this file, other
    kinds of benchmarks/gpu/wide.py.
    """

    kind: str
    dims: int
    rows: int

    @property
    def name(self) -> str:
        """The name of the case on the command line."""
        return f"{self.kind}{self.dims}"

    def points(self, scale: float) -> np.ndarray:
        """Return the rows (n, dims), float32."""
        n = int(self.rows * scale)
        makers = wide.KINDS | {"deep": deep, "sift": sift}
        if self.kind in makers:
            return makers[self.kind](n, self.dims).get()
        return (np.round(points(self.name, n) * STEPS) / STEPS).astype(np.float32)


CASES = (
    Case("skew", 16, 300_000),
    Case("skew", 32, 250_000),
    Case("skew", 64, 200_000),
    Case("skew", 90, 150_000),
    Case("clustered", 384, 100_000),
    Case("clustered", 960, 50_000),
)
MILLIONS = (
    Case("clustered", 768, 1_000_000),
    Case("gaussian", 768, 1_000_000),
    Case("deep", 96, 1_000_000),
    Case("sift", 128, 1_000_000),
)
"""A million embeddings, which run only if `--cases` names them: in clusters, and three
kinds in even directions, so that an index can skip nothing.
"""

EVEN_EPS = 12.0
"""Distance of the even directions: most near copies are closer, and other rows are
farther than 30.
"""


def moments_of(x: Any) -> list[np.ndarray]:
    """Return the bounds, means and variances of the columns, on the host."""
    return [f(x, axis=0).get() for f in (cupy.min, cupy.max, cupy.mean, cupy.var)]


def rows_of(batches: Any, order: Any) -> Pairs:
    """Return the rows of the pairs of all batches."""
    found = [order[batch.places].astype(cupy.int32) for batch in batches]
    both = cupy.concatenate(found) if found else cupy.empty((0, 2), cupy.int32)
    return both[:, 0], both[:, 1]


def ours(host: np.ndarray, eps: float, repeat: int) -> tuple[dict[str, Any], Any]:
    """Time our join, and return its times and its pairs as codes."""
    x = cupy.asarray(host).astype(cupy.float64)
    layout = make_device_layout(*moments_of(x), eps**2, "auto")
    index = tiles.build(x, layout)
    counters: list[int] = []

    def kernels() -> None:
        for batch in tiles.batches(index, index, layout, is_self_join=True):
            counters[:] = batch.decided, batch.refused

    def whole() -> Pairs:
        rows = cupy.asarray(host).astype(cupy.float64)
        chosen = make_device_layout(*moments_of(rows), eps**2, "auto")
        built = tiles.build(rows, chosen)
        left, right = rows_of(
            tiles.batches(built, built, chosen, is_self_join=True), built["order"]
        )
        return left.get(), right.get()

    found = codes(*map(cupy.asarray, whole()), len(host), cupy)
    kernels()
    result = {
        "numbers": "exact",
        "engine": layout.engine,
        "pairs": len(found),
        "kernels": summary(repeated(lambda: clock(kernels), repeat, LONG)),
        "whole": summary(repeated(lambda: clock(whole), repeat, LONG)),
        "decided in float64": counters[0],
        "refused": counters[1],
    }
    return result, found


def cublas(eps: float, pairs: int, k: int, numbers: str = "float32") -> Search:
    """Multiply blocks by cuBLAS, and write pairs whose distance is small.

    `numbers`: the numbers that are multiplied, "float32", "TF32" or "float16"; sums are
    float32.
    """
    near, limit = cupy.RawKernel(NEAR, "near"), np.float32(eps * eps)
    out, count = (
        cupy.empty((2 * pairs + 1024, 2), cupy.int32),
        cupy.zeros(1, cupy.uint64),
    )
    products = cupy.empty(BLOCK * BLOCK_OTHERS, cupy.float32)
    linear = cupy._core._routines_linalg

    def search(x: Any) -> Pairs:
        centered = x - x.mean(axis=0)
        if numbers == "float16":
            centered = halves(centered)
        wide_numbers = centered.astype(cupy.float32, copy=False)
        norms = (wide_numbers * wide_numbers).sum(axis=1)
        del wide_numbers
        count[:] = 0
        before = linear.get_compute_type(np.dtype(np.float32))
        if numbers == "TF32":
            linear.set_compute_type(np.dtype(np.float32), linear.COMPUTE_TYPE_TF32)
        try:
            for i in range(0, len(x), BLOCK):
                for j in range(i, len(x), BLOCK_OTHERS):
                    one, other = centered[i : i + BLOCK], centered[j : j + BLOCK_OTHERS]
                    block = products[: len(one) * len(other)].reshape(
                        len(one), len(other)
                    )
                    if numbers == "float16":
                        multiply_halves(one, other, block)
                    else:
                        cupy.matmul(one, other.T, out=block)
                    near(
                        (min(16, -(-len(other) // 256)), len(one)),
                        (256,),
                        (
                            block,
                            np.int32(len(other)),
                            norms,
                            limit,
                            np.int32(i),
                            np.int32(j),
                            out,
                            np.uint64(len(out)),
                            count,
                        ),
                    )
        finally:
            linear.set_compute_type(np.dtype(np.float32), before)
        found = out[: min(int(count[0]), len(out))]
        return found[:, 0], found[:, 1]

    return search


def tf32(eps: float, pairs: int, k: int) -> Search:
    """Multiply blocks in the same way by TF32 on tensor cores."""
    return cublas(eps, pairs, k, "TF32")


def float16(eps: float, pairs: int, k: int) -> Search:
    """Multiply blocks in the same way by float16 on tensor cores, as FaSTED does."""
    return cublas(eps, pairs, k, "float16")


def halves(x: Any) -> Any:
    """Round rows to float16; their length becomes a multiple of 8, as tensor cores
    need.
    """
    n, dims = x.shape
    rounded = cupy.zeros((n, -(-dims // 8) * 8), cupy.float16)
    rounded[:, :dims] = x
    return rounded


def multiply_halves(one: Any, other: Any, out: Any) -> None:
    """Write the products of float16 rows (m, k) and (n, k) to float32 `out` (m, n)."""
    library, runtime = cupy.cuda.cublas, cupy.cuda.runtime
    factors = np.array([1, 0], np.float32)
    (m, k), n = one.shape, len(other)
    library.gemmEx(
        cupy.cuda.device.get_cublas_handle(),
        library.CUBLAS_OP_T,
        library.CUBLAS_OP_N,
        n,
        m,
        k,
        factors.ctypes.data,
        other.data.ptr,
        runtime.CUDA_R_16F,
        k,
        one.data.ptr,
        runtime.CUDA_R_16F,
        k,
        factors.ctypes.data + 4,
        out.data.ptr,
        runtime.CUDA_R_32F,
        n,
        library.CUBLAS_COMPUTE_32F,
        library.CUBLAS_GEMM_DEFAULT,
    )


def _within(distances: Any, rows: Any, eps: float) -> Pairs:
    """Return the pairs of the nearest rows (n, k) that are within `eps`."""
    cupy.cuda.Device().synchronize()  # libraries have their own streams
    left, place = cupy.nonzero(cupy.asarray(distances) <= np.float32(eps))
    return left, cupy.asarray(rows)[left, place]


def cuvs_brute(eps: float, pairs: int, k: int) -> Search:
    """Find the k nearest rows by the brute force of cuVS."""
    from cuvs.neighbors import brute_force

    def search(x: Any) -> Pairs:
        return _within(
            *brute_force.search(brute_force.build(x, metric="euclidean"), x, k), eps
        )

    return search


def cuvs_all(eps: float, pairs: int, k: int) -> Search:
    """Build the graph of the k nearest rows by cuVS, with brute force."""
    from cuvs.neighbors import all_neighbors

    def search(x: Any) -> Pairs:
        given = all_neighbors.AllNeighborsParams(
            algo="brute_force", n_clusters=1, metric="sqeuclidean"
        )
        rows, d2 = (
            cupy.empty((len(x), k), cupy.int64),
            cupy.empty((len(x), k), cupy.float32),
        )
        all_neighbors.build(x, k, given, indices=rows, distances=d2)
        return _within(d2, rows, eps * eps)

    return search


def faiss_brute(eps: float, pairs: int, k: int) -> Search:
    """Find the k nearest rows by the brute force of faiss; rows and results stay in GPU
    memory.
    """
    import faiss

    if k > MOST_NEIGHBORS:
        raise ValueError(f"a row has {k} neighbors, and faiss finds {MOST_NEIGHBORS}")
    resources = faiss.StandardGpuResources()

    def search(x: Any) -> Pairs:
        n, dims = x.shape
        d2, rows = cupy.empty((n, k), cupy.float32), cupy.empty((n, k), cupy.int64)
        table = faiss.cast_integer_to_float_ptr(x.data.ptr)
        given = faiss.GpuDistanceParams()
        given.metric, given.k, given.dims = faiss.METRIC_L2, k, dims
        given.vectors, given.numVectors, given.vectorsRowMajor = table, n, True
        given.queries, given.numQueries, given.queriesRowMajor = table, n, True
        given.vectorType = given.queryType = faiss.DistanceDataType_F32
        given.outDistances = faiss.cast_integer_to_float_ptr(d2.data.ptr)
        given.outIndices = faiss.cast_integer_to_idx_t_ptr(rows.data.ptr)
        given.outIndicesType = faiss.IndicesDataType_I64
        faiss.bfKnn(resources, given)
        resources.syncDefaultStreamCurrentDevice()
        return _within(d2, rows, eps * eps)

    return search


def cuml_rbc(eps: float, pairs: int, k: int) -> Search:
    """Build the graph of all rows within a radius by the random ball cover of cuML."""
    from cuml.neighbors import NearestNeighbors

    def search(x: Any) -> Pairs:
        index = NearestNeighbors(
            algorithm="rbc", metric="euclidean", output_type="cupy"
        ).fit(x)
        graph = index.radius_neighbors_graph(x, radius=eps).tocoo()
        return graph.row, graph.col

    return search


LIBRARIES: dict[str, tuple[Callable[[float, int, int], Search], str]] = {
    "cuBLAS, float32": (cublas, "products of float32"),
    "cuBLAS, TF32": (tf32, "products of TF32, sums of float32"),
    "cuBLAS, float16": (float16, "products of float16, sums of float32"),
    "cuVS, brute force": (cuvs_brute, "float32, k nearest rows"),
    "cuVS, all neighbors": (cuvs_all, "float32, k nearest rows"),
    "faiss, brute force": (faiss_brute, "float32, k nearest rows"),
    "cuML, ball cover": (cuml_rbc, "float32"),
}
"""Name -> a function that makes its search, and the numbers that limit it; slow ones
are last.
"""


def library(
    search: Search, host: np.ndarray, repeat: int
) -> tuple[dict[str, Any], Pairs]:
    """Time the search of a library, and all from host to host; return the times and the
    pairs.
    """
    kernels: list[float] = []
    found: list[Any] = []

    def whole() -> float:
        found.clear()
        gc.collect()
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        x = cupy.asarray(host)
        cupy.cuda.Device().synchronize()
        copied = time.perf_counter()
        found.extend(search(x))
        cupy.cuda.Device().synchronize()
        kernels.append(time.perf_counter() - copied)
        found[:] = [cupy.asnumpy(column) for column in found]
        return time.perf_counter() - began

    wholes = [whole()]  # the first run may compile
    if wholes[0] <= LONG:
        kernels.clear()
        wholes = repeated(whole, repeat, LONG)
    result = {
        "kernels": summary(kernels),
        "whole": summary(wholes),
        "repeated": len(wholes) > 1,
    }
    return result, (cupy.asarray(found[0]), cupy.asarray(found[1]))


def joined(case: Case, given: argparse.Namespace, until: float, save: Save) -> None:
    """Join these rows by every program and library; start none after the time `until`.

    After each of them, `save` gets all results of the case so far.
    """
    host = case.points(given.scale)
    n = len(host)
    near = given.eps or (
        EVEN_EPS
        if case.kind == "gaussian"
        else distance_of(host.astype(np.float64), NEIGHBORS)
    )
    eps = float(np.float32(f"{near:.4g}"))
    own, expected = ours(host, eps, given.repeat)
    degrees = cupy.bincount(
        cupy.concatenate([expected // n, expected % n]), minlength=n
    )
    k = int(degrees.max()) + 1
    result = {
        "name": case.name,
        "rows": n,
        "dims": case.dims,
        "eps": eps,
        "neighbors": 2 * len(expected) / n,
        "most neighbors": k - 1,
        "ours": own,
        "rivals": {},
    }
    _print(case, "ours", own)
    save(result)
    x = cupy.asarray(host)

    def tried(name: str, work: Callable[[], tuple[dict[str, Any], Any]]) -> None:
        if given.rivals and name not in given.rivals:
            return
        try:
            if time.monotonic() > until:
                raise ProgramError("no time was left")
            measurement, pairs = work()
            if pairs is not None:
                measurement |= compared(codes(*pairs, n, cupy), expected, x, eps, cupy)
            else:  # the program only counts
                measurement["pairs"] = (measurement["ordered"] - n) // 2
        except subprocess.TimeoutExpired as error:  # without the path of the program
            measurement = {"absent": f"no result after {error.timeout:g} s"}
        except Exception as error:  # an error of a library or a program is a result too
            measurement = {"absent": f"{type(error).__name__}: {error}"[:400]}
        result["rivals"][name] = measurement
        _print(case, name, measurement)
        save(result)
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()

    with tempfile.TemporaryDirectory() as folder:
        paths: dict[bool, Path] = {}
        chosen = [
            program
            for program in PROGRAMS
            if given.programs and program.name in (given.rivals or [program.name])
        ]
        for unsigned in {program.unsigned for program in chosen}:
            paths[unsigned] = Path(folder) / ("moved" if unsigned else "rows")
            (moved(host) if unsigned else host).tofile(paths[unsigned])
        for program in chosen:

            def run(program: Program = program) -> tuple[dict[str, Any], Any]:
                cupy.get_default_memory_pool().free_all_blocks()
                binary = given.programs / program.file.format(dims=case.dims)
                limit = min(LIMIT, max(10.0, until - time.monotonic()))
                path = paths[program.unsigned]
                measurement, pairs = measured(
                    program, binary, path, case.dims, eps, given.repeat, limit
                )
                return measurement, None if pairs is None else tuple(
                    cupy.asarray(pairs).T
                )

            tried(program.name, run)
    for name, (make, numbers) in LIBRARIES.items():

        def search(
            make: Any = make, numbers: str = numbers
        ) -> tuple[dict[str, Any], Any]:
            measurement, pairs = library(
                make(eps, len(expected), k), host, given.repeat
            )
            return {"numbers": numbers} | measurement, pairs

        tried(name, search)


def _print(case: Case, name: str, result: dict[str, Any]) -> None:
    times = [result.get(part, {}).get("seconds") for part in ("kernels", "whole")]
    rest = {
        part: result[part]
        for part in ("pairs", "false", "missed", "refuted", "absent")
        if part in result
    }
    print(f"{case.name}: {name}: {times} {rest}", file=sys.stderr, flush=True)


def arguments(given: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.rivals", description=__doc__
    )
    names, every = (
        [case.name for case in CASES],
        [case.name for case in (*CASES, *MILLIONS)],
    )
    rivals = [program.name for program in PROGRAMS] + list(LIBRARIES)
    parser.add_argument(
        "--programs", type=Path, help="folder of the programs; without: only libraries"
    )
    parser.add_argument(
        "--cases", nargs="+", choices=every, default=names, metavar="CASE"
    )
    parser.add_argument("--rivals", nargs="+", choices=rivals, metavar="NAME")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the rows")
    parser.add_argument(
        "--eps",
        type=float,
        help="instead of about 64 neighbors per row, for example because libraries "
        f"find at most {MOST_NEIGHBORS} nearest rows",
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=500.0, help="start no rival later than this"
    )
    parser.add_argument("--output", type=Path)
    return parser.parse_args(given)


def main(given: list[str]) -> None:
    """Join all cases, print a line per rival, and write JSON after each."""
    args = arguments(given)
    end = time.monotonic() + args.seconds
    built = args.programs / "rivals.json" if args.programs else None
    report: dict[str, Any] = {
        "environment": environment(),
        "unit": "seconds, medians of the runs",
        "programs": json.loads(built.read_text()) if built and built.exists() else None,
        "rows": [],
    }
    cases = [case for case in (*CASES, *MILLIONS) if case.name in args.cases]
    for number, case in enumerate(cases):

        def save(row: dict[str, Any], number: int = number) -> None:
            report["rows"][number:] = [row]
            if args.output:
                args.output.write_text(json.dumps(report, indent=1) + "\n")

        now = time.monotonic()
        joined(case, args, now + (end - now) / (len(cases) - number), save)


if __name__ == "__main__":
    main(sys.argv[1:])
