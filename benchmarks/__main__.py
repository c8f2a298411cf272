"""``python -m benchmarks NAME ...``: one benchmark, with its options; without a name,
the list of them.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = ("cpu", "dask", "gpu", "papers")


def modules() -> dict[str, Path]:
    """Map the names of modules that may be benchmarks to their files."""
    return {
        folder if path.stem == "__main__" else f"{folder}.{path.stem}": path
        for folder in FOLDERS
        for path in sorted((HERE / folder).glob("*.py"))
    }


def about(path: Path) -> str | None:
    """Return the first line of a benchmark's docstring; None if the module has no
    `main`, so it is not a benchmark.
    """
    tree = ast.parse(path.read_text())
    if any(
        isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body
    ):
        return (ast.get_docstring(tree) or "").partition("\n")[0]
    return None


def programs() -> dict[str, str]:
    """Map the name of each benchmark to the first line of its docstring."""
    found = {name: about(path) for name, path in modules().items()}
    return {name: what for name, what in found.items() if what is not None}


def main() -> None:
    """Run the benchmark that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else None
    path = modules().get(name or "")
    if path is None or about(path) is None:
        for known, what in programs().items():
            print(f"{known:28} {what.partition(': ')[2] or what}")
        sys.exit(
            None
            if name in (None, "-h", "--help")
            else f"no benchmark is called {name!r}"
        )
    sys.argv.pop(1)
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
