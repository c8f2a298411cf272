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


def programs() -> dict[str, str]:
    """Map the name of each benchmark to the first line of its docstring.  A module with
    a `main` is a benchmark.
    """
    found = {}
    for folder in FOLDERS:
        for path in sorted((HERE / folder).glob("*.py")):
            tree = ast.parse(path.read_text())
            if any(
                isinstance(node, ast.FunctionDef) and node.name == "main"
                for node in tree.body
            ):
                name = folder if path.stem == "__main__" else f"{folder}.{path.stem}"
                found[name] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def main() -> None:
    """Run the benchmark that the first argument names."""
    known = programs()
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        for name, what in known.items():
            print(f"{name:28} {what.partition(': ')[2] or what}")
        wanted = sys.argv[1] if len(sys.argv) > 1 else None
        sys.exit(
            None
            if wanted in (None, "-h", "--help")
            else f"no benchmark is called {wanted!r}"
        )
    name = sys.argv.pop(1)
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
