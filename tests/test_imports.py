"""What may import what: modules only from floors below, private parts of Dask only in one place."""

import ast
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dask_simjoin
from dask_simjoin.late import when_imported

PACKAGE = "dask_simjoin"
ROOT = Path(dask_simjoin.__file__).parent

FLOORS = [
    {"arrays", "errors", "norms", "wording"},
    {"budget", "late", "lists", "optional", "room", "sample", "scratch", "task_counts"},
    {"chosen", "picture", "sphere"},
    {"metrics"},
    {"columns", "options"},
    {
        "index",
        "index.bounds",
        "index.filter",
        "index.grid",
        "index.kdorder",
        "index.quantized",
        "index.regions",
        "index.tiles",
    },
    {"index.half", "index.layout", "index.nearest"},
    {"index.wide"},
    {"index.device"},
    {"index.device_nearest"},
    {"spec"},
    {"keeping"},
    {
        "kernels",
        "kernels.cpu",
        "kernels.cpu.components",
        "kernels.cpu.pack",
        "kernels.cpu.ranking",
        "kernels.cpu.rows",
        "kernels.cpu.sides",
        "kernels.cpu.stale",
        "kernels.cpu.vectors",
        "kernels.cuda",
        "kernels.cuda.sources",
    },
    {
        "kernels.cpu.memory",
        "kernels.cpu.optics",
        "kernels.cpu.pair_simd",
        "kernels.cpu.quantized_simd",
        "kernels.cpu.totals",
        "kernels.cuda.load",
    },
    {"kernels.cpu.finish", "kernels.cpu.regions", "kernels.cpu.sweep_simd", "kernels.cpu.tile_simd"},
    {"kernels.cpu.nearest_simd", "kernels.cpu.product_simd", "kernels.cpu.scan", "kernels.cpu.sweep"},
    {"kernels.cpu.nearest_scan", "kernels.cpu.tiles"},
    {"kernels.cpu.nearest"},
    {"backends", "backends.base"},
    {
        "backends.cpu_buffers",
        "backends.cpu_nearest",
        "backends.gpu_engine",
        "backends.gpu_order",
    },
    {"backends.cpu_tiles", "backends.gpu_nearest", "backends.gpu_pairs"},
    {"backends.cpu_engine"},
    {"backends.cpu", "backends.gpu"},
    {"entries", "ids", "moments", "sampled"},
    {"estimate"},
    {"partition"},
    {"checks", "chunking", "spatial_chunks"},
    {"region_chunks"},
    {"chunks", "outputs", "side"},
    {"doubts"},
    {"density", "density.components", "plan", "two_tables"},
    {"two_plan"},
    {"density.dbscan", "density.edges"},
    {"density.optics"},
    {"density.extract", "density.forest"},
    {"matches"},
    {"blocks", "neighbors", "report", "searches"},
    {"csr", "nearest_rows", "two_reports"},
    {"graph", "graph.cluster", "graph.memory", "graph.private", "graph.sweep"},
    {"graph.filters", "graph.named", "graph.source", "graph.space"},
    {"graph.chunked", "graph.planner"},
    {"graph.unplanned"},
    {"graph.aligned", "graph.cell_counts"},
    {"graph.counts", "graph.extract", "graph.found", "graph.pairs"},
    {"graph.dbscan", "graph.forest", "graph.nearest_join", "graph.neighbors"},
    {"graph.neighbor_graph", "graph.optics"},
    {"inputs"},
    {"tables"},
    {"clusterings", "joins", "neighbor_graphs", "two_joins"},
    {"plans"},
    {"accessor_clusterings", "accessor_graphs", "accessor_joins", "accessor_tables", "cluster", "plots"},
    {"accessor"},
    {""},
]
"""Modules of the package, without its name, from the ground up; "" is the package itself."""

IMPORTING_FUNCTIONS = {"import_module", "__import__"}


def modules():
    """Name -> syntax tree of every module of the package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = ast.parse(path.read_text(), str(path))
    return found


MODULES = modules()


def imports(name):
    """Absolute names that a module imports, and the line; `from a import b` gives "a.b"."""
    base = [PACKAGE, *name.split(".")] if name else [PACKAGE]
    is_package = (ROOT / Path(*base[1:]) / "__init__.py").exists()
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            if node.level:
                parts = base[: len(base) - node.level + is_package] + parts
            yield from ((".".join([*parts, alias.name]), node.lineno) for alias in node.names)


def own(imported):
    """The module of this package that an import names, without the package's name, or None."""
    first, *parts = imported.split(".")
    if first != PACKAGE:
        return None
    while parts and ".".join(parts) not in MODULES:
        parts.pop()
    return ".".join(parts)


def test_every_module_is_on_one_floor():
    listed = [module for floor in FLOORS for module in floor]
    assert len(listed) == len(set(listed))
    missing, gone = set(MODULES) - set(listed), set(listed) - set(MODULES)
    assert not missing, f"put these modules on a floor above those that they import: {sorted(missing)}"
    assert not gone, f"these modules are no more: {sorted(gone)}"


def test_modules_import_from_floors_below_only():
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    wrong = [
        f"{module or PACKAGE}, line {line}: {imported} is not below it"
        for module in MODULES
        for imported, line in imports(module)
        if own(imported) is not None and floor[own(imported)] >= floor[module]
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_the_tests():
    assert not [
        module for module in MODULES for imported, _ in imports(module) if imported.startswith("tests")
    ]


def test_packages_inside_the_package_are_empty():
    for module, tree in MODULES.items():
        if module and (ROOT / Path(*module.split(".")) / "__init__.py").exists():
            assert all(isinstance(node, ast.Expr) for node in tree.body), f"{module}/__init__.py holds code"


def inside_functions(module, kinds):
    """Nodes of these kinds inside the functions of a module."""
    functions = [
        n
        for n in ast.walk(MODULES[module])
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    return [node for function in functions for node in ast.walk(function) if isinstance(node, kinds)]


def test_no_imports_inside_functions():
    found = [
        f"{module or PACKAGE}, line {node.lineno}: import at the top of the module"
        for module in MODULES
        for node in inside_functions(module, ast.Import | ast.ImportFrom)
    ]
    assert not found, "\n".join(found)


def test_modules_are_imported_by_name_only_where_they_are_chosen():
    found = set()
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            name = (
                node.attr
                if isinstance(node, ast.Attribute)
                else node.id
                if isinstance(node, ast.Name)
                else None
            )
            if name in IMPORTING_FUNCTIONS:
                found.add(module)
        if any(imported.rpartition(".")[2] in IMPORTING_FUNCTIONS for imported, _ in imports(module)):
            found.add(module)
    assert found == {"backends.base", "optional"}


def is_private_dask(imported):
    """Whether an import names a part of Dask that Dask does not document."""
    parts = imported.split(".")
    if parts[0] not in ("dask", "distributed"):
        return False
    return any(part.startswith("_") for part in parts[1:]) or imported.startswith("dask.dataframe.dask_expr")


def test_private_parts_of_dask_are_imported_in_one_place():
    private = {module for module in MODULES for imported, _ in imports(module) if is_private_dask(imported)}
    assert private == {"graph.private"}


@pytest.mark.parametrize(
    ("imported", "private"),
    [
        ("dask._task_spec.Task", True),
        ("dask.dataframe.dask_expr.new_collection", True),
        ("dask.dataframe.dask_expr._expr.Expr", True),
        ("dask.dataframe.dask_expr.io.io.BlockwiseIO", True),
        ("dask.base._hidden", True),
        ("dask", False),
        ("dask.tokenize.tokenize", False),
        ("dask.dataframe.extensions.register_dataframe_accessor", False),
        ("numpy._core", False),
    ],
)
def test_what_private_means(imported, private):
    assert is_private_dask(imported) == private


# --- importing the package ------------------------------------------------------------------------

NOT_NEEDED = ["cupy", "cudf", "dask_cuda", "dask_cudf", "rmm", "sklearn", "scipy", "matplotlib", "hypothesis"]

# Dask and Numba import SciPy where they find it, so it is hidden: the package must not need it
CODE = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_NEEDED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
import {PACKAGE}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


def run(code):
    """What a fresh Python prints."""
    path = os.pathsep.join([str(ROOT.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_the_package_needs_no_optional_library():
    loaded = run(CODE)
    assert PACKAGE in loaded
    assert not set(loaded) & set(NOT_NEEDED)


def test_importing_the_package_loads_nothing_more_than_its_dependencies():
    """What Dask, Numba and PyArrow load by themselves is theirs."""
    names = "numpy, pandas, pyarrow, numba, llvmlite.binding, dask.dataframe, distributed"
    show = "; import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    before, after = (set(run(f"import {what}{show}")) for what in (names, PACKAGE))
    assert not (after - before) & set(NOT_NEEDED)


def test_backends_are_loaded_when_they_are_chosen():
    code = "import sys, dask_simjoin; print(*[m for m in sys.modules if m.startswith('dask_simjoin')])"
    assert not [module for module in run(code) if module.startswith(f"{PACKAGE}.kernels")]


def test_the_version_is_that_of_the_installed_package():
    try:
        installed = importlib.metadata.version("dask-simjoin")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("dask-simjoin is imported from its source tree")
    assert dask_simjoin.__version__ == installed


def test_everything_that_is_exported_exists():
    assert sorted(dask_simjoin.__all__) == sorted(set(dask_simjoin.__all__))
    for name in dask_simjoin.__all__:
        assert getattr(dask_simjoin, name).__doc__, f"{name} has no documentation"


def test_an_accessor_is_registered_once_a_library_is_imported(tmp_path, monkeypatch):
    """Also if somebody only looked for the library before, or its first import failed."""
    (tmp_path / "late_library.py").write_text("import sys\nassert 'late_ready' in sys.modules\n")
    monkeypatch.syspath_prepend(tmp_path)
    calls = []
    when_imported("late_library", lambda: calls.append(sys.modules["late_library"].__name__))
    assert importlib.util.find_spec("late_library")
    with pytest.raises(AssertionError):
        exec("import late_library")
    assert not calls
    monkeypatch.setitem(sys.modules, "late_ready", sys)
    exec("import late_library; import late_library")
    assert calls == ["late_library"]
    when_imported("late_library", lambda: calls.append("again"))
    assert calls == ["late_library", "again"]
