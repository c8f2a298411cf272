"""Named numbers of the package: list them, and measure what each of them is worth.

``python -m tools.numbers`` lists every number that a module names.  ``python -m
tools.numbers planning.costs.TOGETHER`` halves and doubles a number in child processes, and
prints how the CPU seconds of benchmarks change.  The name of a module stands for all of
its numbers.  ``--before FOLDER`` compares the benchmarks with those of another checkout.
``--output`` adds the results to a JSON file.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1] / "dask_simjoin"

PARTS = ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop
NAMES = ast.Name | ast.Load | ast.Attribute

RUNS = 9
"""The least of this many runs is used."""


class Number(NamedTuple):
    """A number that a module names."""

    module: str  # without the name of the package
    name: str
    text: str

    @property
    def label(self) -> str:
        """The module and the name."""
        return f"{self.module}.{self.name}"


def is_number(value: ast.expr) -> bool:
    """Return whether an expression is a plain number, or is computed of some."""
    every = list(ast.walk(value))
    return all(isinstance(some, PARTS | NAMES) for some in every) and any(
        isinstance(some, ast.Constant) and type(some.value) in (int, float)
        for some in every
    )


def assigned(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """Return the name and the value that a statement of a module assigns."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    else:
        return None
    return (target.id, value) if isinstance(target, ast.Name) else None


def numbers_of(path: Path) -> Iterator[Number]:
    """Yield the numbers that a module names."""
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for statement in ast.parse(path.read_text()).body:
        found = assigned(statement)
        if found is not None and is_number(found[1]):
            yield Number(module, found[0], ast.unparse(found[1]))


def all_numbers() -> list[Number]:
    """List the numbers of the package."""
    return [one for path in sorted(PACKAGE.rglob("*.py")) for one in numbers_of(path)]


def changed(source: bytes, name: str, factor: float) -> ast.Module:
    """Return the module with one number times a factor. A whole number stays one."""
    tree = ast.parse(source)
    for statement in tree.body:
        found = assigned(statement)
        if found is not None and found[0] == name:
            value = f"({ast.unparse(found[1])})"
            new = ast.parse(f"type({value})({value} * {factor})", mode="eval").body
            assert isinstance(statement, ast.Assign | ast.AnnAssign)
            statement.value = ast.copy_location(new, found[1])
    return ast.fix_missing_locations(tree)


def change_on_import(label: str, factor: float) -> None:
    """Change a number as soon as its module is imported, before anything uses it."""
    module, _, name = label.rpartition(".")
    whole, usual = f"dask_simjoin.{module}", SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        if fullname != whole:
            return usual(self, fullname)
        path = self.get_filename(fullname)
        tree = changed(self.get_data(path), name, factor)
        return compile(tree, path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _points(rows: int, dims: int, **how: Any) -> Any:
    import numpy as np
    import pandas as pd

    x = np.random.default_rng(0).random((rows, dims), **how)
    return pd.DataFrame(x, columns=[f"x{k}" for k in range(dims)])


def _verb(
    verb: str, rows: int, dims: int, *arguments: Any, **how: Any
) -> Callable[[], Any]:
    frame = _points(rows, dims)
    return lambda: getattr(frame.simjoin, verb)(*arguments, **how)


def _lazy(rows: int, parts: int, *arguments: Any, **how: Any) -> Callable[[], Any]:
    import dask
    import dask.dataframe as dd

    frame = dd.from_pandas(_points(rows, 2), npartitions=parts, sort=False)

    def run() -> Any:
        # planned for four threads, and run by one
        with dask.config.set(scheduler="threads", num_workers=4):
            size = frame.simjoin.self_join(*arguments, **how).size
        return size.compute(scheduler="sync")

    return run


def _names(rows: int) -> Any:
    import numpy as np
    import pandas as pd

    random = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnop"))
    words = ["".join(random.choice(letters, 12)) for _ in range(rows // 2)]
    near = [word[:-1] + random.choice(letters) for word in words]
    return pd.DataFrame({"name": [*words, *near]})


def _sets() -> Callable[[], Any]:
    frame = _names(300_000)
    how = {"tokenizer": ("qgrams", 2)}
    return lambda: frame.simjoin.count_set_pairs("name", 0.8, **how)


def _strings() -> Callable[[], Any]:
    frame = _names(300_000)
    return lambda: frame.simjoin.edit_self_join("name", 2)


def _sphere() -> Callable[[], Any]:
    frame = _points(3_000_000, 2)
    frame["x0"], frame["x1"] = 180 * frame["x0"] - 90, 360 * frame["x1"] - 180
    return lambda: frame.simjoin.self_join(6_000, on=["x0", "x1"], metric="haversine")


def _index() -> Callable[[], Any]:
    frame = _points(200_000, 2)
    frame["id"] = range(len(frame))

    def run() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            index = frame[:150_000].simjoin.index(2e-3, Path(folder) / "i", id="id")
            for first in range(150_000, 200_000, 10_000):
                index.update(frame[first : first + 10_000])
            return index.pairs().size.compute()

    return run


BENCHMARKS: dict[str, Callable[[], Callable[[], Any]]] = {
    "pairs-2d": lambda: _verb("self_join", 4_000_000, 2, 5e-4),
    "counts-6d": lambda: _verb("count_pairs", 300_000, 6, 0.2),
    "pairs-16d": lambda: _verb("self_join", 60_000, 16, 0.7),
    "nearest-6d": lambda: _verb("knn_join", 200_000, 6, k=10),
    "dbscan-2d": lambda: _verb("dbscan", 4_000_000, 2, 6e-4, min_samples=4),
    "hdbscan-5d": lambda: _verb("hdbscan", 200_000, 5, min_cluster_size=10),
    "optics-2d": lambda: _verb("optics", 300_000, 2, 0.004, min_samples=5),
    "sphere": _sphere,
    "sets": _sets,
    "strings": _strings,
    "lazy": lambda: _lazy(2_000_000, 16, 5e-4),
    "shuffle": lambda: _lazy(
        2_000_000, 16, 5e-4, partitioning="spatial", blocksize="4 MB"
    ),
    "index": _index,
}
"""Name of a benchmark -> a function that prepares it, and returns the call to measure.
"""


def child(bench: str, label: str, factor: float) -> None:
    """Run a benchmark each time that a line comes, and print its CPU seconds."""
    import time

    if factor != 1:
        change_on_import(label, factor)
    import dask_simjoin  # noqa: F401  (gives DataFrames the accessor .simjoin)

    run = BENCHMARKS[bench]()
    run()  # compiles
    for _ in sys.stdin:
        begin = time.process_time()
        run()
        print(time.process_time() - begin, flush=True)


def started(
    bench: str, label: str, factor: float, cache: str, checkout: Path = PACKAGE.parent
) -> subprocess.Popen[str]:
    """Start a child in a checkout.

    If kernels use the number, the child has a cache of kernels of its own, since the
    cache knows only files.
    """
    from dask_simjoin.engine.cpu.kernels.jit import sources

    command = [sys.executable, "-m", "tools.numbers", "--child", bench, label]
    path = PACKAGE / (label.rpartition(".")[0].replace(".", "/") + ".py")
    shared = factor == 1 or path not in sources()
    own = {} if shared else {"XDG_CACHE_HOME": f"{cache}/{label}-{factor}"}
    return subprocess.Popen(
        [*command, str(factor)],
        cwd=checkout,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"} | own,
    )


def measure(bench: str, label: str) -> list[float]:
    """Return the least CPU seconds of a benchmark: with a number as it is, halved and
    doubled.
    """
    with tempfile.TemporaryDirectory() as cache:
        return least_of(
            [started(bench, label, factor, cache) for factor in (1, 0.5, 2)]
        )


def least_of(children: list[subprocess.Popen[str]]) -> list[float]:
    """Return the least CPU seconds of each child. The runs alternate."""
    least = [float("inf")] * len(children)
    for _ in range(RUNS):
        for n, one in enumerate(children):
            assert one.stdin is not None and one.stdout is not None
            one.stdin.write("\n")
            one.stdin.flush()
            # a child that failed says nothing
            least[n] = min(least[n], float(one.stdout.readline() or "inf"))
    for one in children:
        one.communicate()
    return least


def compare(bench: str, checkout: Path) -> list[float]:
    """Return the least CPU seconds of a benchmark in another checkout, and in this one."""
    return least_of(
        [started(bench, "", 1, "", folder) for folder in (checkout, PACKAGE.parent)]
    )


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.numbers", description=__doc__
    )
    parser.add_argument("names", nargs="*", help="numbers or modules to measure")
    parser.add_argument("--benchmark", choices=BENCHMARKS, action="append")
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--output", type=Path, help="JSON file of earlier results, too")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child[0], given.child[1], float(given.child[2]))
        return
    benchmarks = given.benchmark or list(BENCHMARKS)
    if given.before:
        for bench in benchmarks:
            before, after = compare(bench, given.before)
            print(
                f"{bench:12} {before:7.3f} s   after {after / before:5.2f}", flush=True
            )
            if given.output is not None:
                add_result(given.output, bench, {"before": before, "after": after})
        return
    every = all_numbers()
    if not given.names:
        for one in every:
            print(f"{one.label:60} {one.text}")
        rooms = Counter(one.module.split(".")[0] for one in every)
        print(
            len(every),
            "numbers:",
            ", ".join(f"{n} {room}" for room, n in rooms.most_common()),
        )
        return
    chosen = [one for one in every if {one.label, one.module} & set(given.names)]
    for one in chosen:
        for bench in benchmarks:
            usual, half, double = measure(bench, one.label)
            print(
                f"{one.label:50} {bench:12} {usual:7.3f} s   half {half / usual:5.2f}   "
                f"double {double / usual:5.2f}",
                flush=True,
            )
            if given.output is not None:
                row = {"usual": usual, "half": half, "double": double}
                add_result(given.output, f"{one.label}, {bench}", row)


def add_result(path: Path, name: str, row: dict[str, float]) -> None:
    """Add a row to a file of results."""
    from benchmarks.harness.ours import VERSION
    from benchmarks.harness.report import environment

    if path.exists():
        report = json.loads(path.read_text())
    else:
        report = {
            "environment": environment([], VERSION),
            "unit": f"CPU seconds of one thread, least of {RUNS}, in turns",
            "rows": {},
        }
    report["rows"][name] = row
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
