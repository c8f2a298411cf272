"""``python -m benchmarks cpu.first_use [--backend cudf]``: what the first call of a
verb in a process takes.

Each verb is called in a process of its own on a copy of the package, first with nothing
compiled, then with everything compiled.  Verbs of sets are called on texts, which count
as 0 columns.  The import of the package is reported too.  On a GPU, loading cuDF and
its driver is not counted.  For pandas frames, the CPU seconds to compile each kernel
are reported as well.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask_simjoin
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write
from benchmarks.harness.worker import run_apart
from dask_simjoin.api.compile_kernels import OPTIONS, SET_VERBS

PACKAGE = Path(dask_simjoin.__file__).parent
PATIENCE = 300

OTHERS = (str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")]))
"""Folders where modules are found: these benchmarks, and the caller's own."""


GOALS = {"nothing compiled": 5.0, "all compiled": 0.3}
"""Most seconds of a first call on pandas frames, without the import."""

SLOW = dict.fromkeys(("hdbscan", "spanning_tree", *SET_VERBS), 8.0)
"""Verbs whose goal is higher where nothing is compiled."""


def goal(verb: str, kind: str) -> float:
    """Return the most seconds of a first call."""
    return SLOW.get(verb, GOALS[kind]) if kind == "nothing compiled" else GOALS[kind]


def table(found: dict[str, dict[str, Any]], clock: str) -> str:
    """Tabulate seconds of first calls, without and with the import; a "!" marks seconds
    beyond their goal.
    """
    lines = [
        f"{clock + ' seconds':22} dims"
        + "".join(f"{kind:>18}{'with import':>13}" for kind in GOALS)
    ]
    for verb, sizes in found.items():
        for dims, runs in sizes.items():
            line = f"{verb:22} {dims:>4}"
            for kind in GOALS:
                run = runs.get(kind, {"failed": ""})
                if "failed" in run:
                    line += f"{'failed':>18}{'':13}"
                    continue
                mark = "!" if run[clock] > goal(verb, kind) else " "
                line += f"{run[clock]:17.2f}{mark}{run[clock] + run['import ' + clock]:13.2f}"
            lines.append(line)
    return "\n".join(lines)


def copy_of_package(folder: Path) -> Path:
    """Copy the package with Python's own bytecode, but without compiled kernels."""
    copy = folder / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(copy, quiet=1)
    return copy


def first_use(
    verb: str, dims: int, backend: str, copy: Path, repeat: int
) -> dict[str, Any]:
    """Call a verb with nothing compiled, and again with all compiled; return the median
    of several runs.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        "benchmarks.cpu.first_use_worker",
        verb,
        str(dims),
        backend,
        str(copy),
    ]
    found: dict[str, Any] = {}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as cache:
            prepare(copy, cache)
            for name in GOALS:
                record = (
                    ["record"]
                    if backend == "pandas" and name == "nothing compiled"
                    else []
                )
                told = run_apart([*command, *record], PATIENCE)
                if "failed" in told:
                    return {name: told}
                told["kernels"] = sum(
                    path.suffix in (".nbc", ".cubin") for path in Path(cache).rglob("*")
                )
                found.setdefault(name, []).append(told)
    ordered = {
        name: sorted(runs, key=lambda run: run["cpu"]) for name, runs in found.items()
    }
    return {
        name: runs[len(runs) // 2] | {"runs": [run["cpu"] for run in runs]}
        for name, runs in ordered.items()
    }


def prepare(copy: Path, cache: str) -> None:
    """Let later processes load the copy, and keep kernels in an empty folder."""
    os.environ |= {
        "PYTHONPATH": os.pathsep.join((str(copy.parent), *OTHERS)),
        "NUMBA_CACHE_DIR": cache,
        "CUPY_CACHE_DIR": cache,
    }


def main() -> None:
    """Run the benchmark; print tables, and everything as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.first_use", description=__doc__
    )
    parser.add_argument("--backend", choices=("pandas", "cudf"), default="pandas")
    parser.add_argument(
        "--verbs", nargs="*", choices=list(OPTIONS), default=list(OPTIONS)
    )
    parser.add_argument("--dims", nargs="*", type=int, default=[2, 6, 16])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of_package(Path(folder))
        for verb in options.verbs:
            for dims in [0] if verb in SET_VERBS else options.dims:
                told = first_use(verb, dims, options.backend, copy, options.repeat)
                found.setdefault(verb, {})[str(dims)] = told
                print(f"{verb:22} {dims:4}  {told}", file=sys.stderr, flush=True)
    if options.backend == "pandas":
        print(table(found, "wall"), table(found, "cpu"), sep="\n\n", file=sys.stderr)
    where: dict[str, Any] = environment([], VERSION)
    if options.backend == "cudf":
        command = [
            sys.executable,
            "-c",
            "import json; from benchmarks.harness import gpu_report as r; "
            "print(json.dumps(r.environment()))",
        ]
        where |= run_apart(command, PATIENCE)
    write({"environment": where, "seconds": found}, options.output)


if __name__ == "__main__":
    main()
