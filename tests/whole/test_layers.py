"""What may import what: only from floors below; private parts of Dask in one place, and
of Numba none.
"""

import ast
import functools
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dask_simjoin
from dask_simjoin import methods
from dask_simjoin.api.registration import when_imported
from dask_simjoin.catalog import Method
from tests.checks.mutations import MUTATIONS

PACKAGE = "dask_simjoin"
ROOT = Path(dask_simjoin.__file__).parent

IMPORTING_FUNCTIONS = {"import_module", "__import__"}

ROOMS = {
    "neighbors",
    "api",
    "calls",
    "catalog",
    "sizes",
    "cli",
    "cluster",
    "disk_index",
    "engine",
    "errors",
    "graph",
    "methods",
    "metrics",
    "papers",
    "planning",
    "reports",
    "request",
    "sets",
    "strings",
    "tasks",
}

FACES = {"metrics", "cluster", "sets"}
"""Packages that users import from."""


@functools.cache
def modules():
    """Name -> syntax tree of every module of the package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = ast.parse(
            path.read_text(), str(path)
        )
    return found


@functools.cache
def import_statements(module):
    """The nodes of all import statements of a module, those in functions too."""
    every = ast.walk(modules()[module])
    return [node for node in every if isinstance(node, ast.Import | ast.ImportFrom)]


@functools.cache
def imports(name):
    """Absolute names that a module imports; `from a import b` gives "a.b"."""
    base = [PACKAGE, *name.split(".")] if name else [PACKAGE]
    is_package = (ROOT / Path(*base[1:]) / "__init__.py").exists()
    found = []
    for node in import_statements(name):
        parts = []
        if isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            if node.level:
                parts = base[: len(base) - node.level + is_package] + parts
        found += [".".join([*parts, alias.name]) for alias in node.names]
    return found


def own(imported):
    """The module of this package that an import names, without the package's name, or
    None.
    """
    first, *parts = imported.split(".")
    if first != PACKAGE:
        return None
    while parts and ".".join(parts) not in modules():
        parts.pop()
    return ".".join(parts)


def test_rooms_import_from_rooms_below_only():
    """The contracts of pyproject.toml: layers, and no circle among packages and
    modules.
    """
    ran = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_listing_shows_the_house():
    # git leaves the compiled files of folders that went away
    there = (
        path for path in ROOT.iterdir() if path.is_file() or any(path.glob("*.py"))
    )
    rooms = {
        path.stem for path in there if path.suffix != ".typed" and path.stem[0] != "_"
    }
    assert rooms == ROOMS


SERIALIZERS = {
    "distributed.protocol.cuda.cuda_deserialize",
    "distributed.protocol.cuda.cuda_serialize",
    "distributed.protocol.deserialize",
    "distributed.protocol.serialize",
    "distributed.protocol.serialize.dask_deserialize",
    "distributed.protocol.serialize.dask_serialize",
}
"""All that `dask_simjoin.tasks.named_tuples` imports of Dask."""


def test_tasks_and_engines_do_not_know_dask():
    """But one module registers tuples with the serializers of `distributed`, if that is
    loaded.
    """
    for module in modules():
        if module.partition(".")[0] in (
            "errors",
            "metrics",
            "catalog",
            "engine",
            "tasks",
        ):
            dask = {
                what
                for what in imports(module)
                if what.partition(".")[0] in ("dask", "distributed")
            }
            known = SERIALIZERS if module == "tasks.named_tuples" else set()
            assert dask == known, f"{module} imports {dask}"


def test_packages_only_hand_names_on():
    """Their files hold no code, so that a module is found where it is named."""
    for module, tree in modules().items():
        if module and (ROOT / Path(*module.split(".")) / "__init__.py").exists():
            rest = [node for node in tree.body if not isinstance(node, ast.Expr)]
            if module in FACES:
                # a face may load what takes long to import once it is asked for
                late = [
                    node for node in rest if isinstance(node, ast.FunctionDef | ast.If)
                ]
                assert [getattr(node, "name", "types") for node in late] in (
                    [],
                    ["types", "__getattr__"],
                )
                names = [
                    node
                    for node in rest
                    if not isinstance(node, ast.ImportFrom) and node not in late
                ]
                assert [target.id for node in names for target in node.targets] == [
                    "__all__"
                ]
            else:
                assert not rest, f"{module}/__init__.py holds code"


@functools.cache
def late_imports(module):
    """Import statements inside the functions of a module."""
    lines = {
        line
        for function in ast.walk(modules()[module])
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(function.lineno, function.end_lineno + 1)
    }
    return [node for node in import_statements(module) if node.lineno in lines]


LAZY = ("dask.array", "dask.dataframe", "distributed")
"""What functions import at their first call: plain frames do not need it, and it takes
long to load.
"""


@functools.cache
def eager_imports(module):
    """The modules that the import of a module of the package imports itself."""
    late = list(late_imports(module))
    for block in ast.walk(modules()[module]):
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            late += block.body
    every = [node for node in import_statements(module) if node not in late]
    return [name for node in every for name in imported_names(node)]


def loads_lazy(name):
    """Whether the import of a module, of the package or another, loads any of `LAZY`."""
    seen, todo = set(), [name]
    while todo:
        one = todo.pop()
        if one.startswith(LAZY):
            return True
        inside = one.removeprefix("dask_simjoin.")
        if inside in modules() and inside not in seen:
            seen.add(inside)
            todo += eager_imports(inside)
    return False


def imported_names(node):
    """The modules that a statement imports, as far as their names show."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    below = [f"{node.module}.{alias.name}" for alias in node.names]
    return [
        node.module,
        *(name for name in below if name.removeprefix("dask_simjoin.") in modules()),
    ]


def test_functions_import_only_what_plain_frames_do_not_need():
    for module in modules():
        for node in late_imports(module):
            lazy = any(map(loads_lazy, imported_names(node)))
            assert lazy, (
                f"{module}, line {node.lineno}: import at the top of the module"
            )


def test_the_package_itself_loads_none_of_it():
    for module in (
        "api.verbs",
        "api.accessor",
        "api.registration",
        "api.compile_kernels",
    ):
        assert not loads_lazy(f"dask_simjoin.{module}")


def test_modules_are_imported_by_name_only_where_they_are_chosen():
    found = set()
    for module, tree in modules().items():
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
        if any(
            imported.rpartition(".")[2] in IMPORTING_FUNCTIONS
            for imported in imports(module)
        ):
            found.add(module)
    assert found == {"catalog", "engine.base", "request.columns"}


DOCUMENTED = {
    "dask",
    "dask.array",
    "dask.base.compute",
    "dask.base.is_dask_collection",
    "dask.callbacks.Callback",
    "dask.dataframe",
    "dask.dataframe.extensions.register_dataframe_accessor",
    "dask.delayed.Delayed",
    "dask.optimization.cull",
    "dask.tokenize.normalize_token",
    "dask.tokenize.tokenize",
    "dask.utils.format_bytes",
    "dask.utils.format_time",
    "dask.utils.parse_bytes",
    "distributed",
    "distributed.Client",
    "distributed.Future",
    "distributed.LocalCluster",
    "distributed.Scheduler",
    "distributed.Status",
    "distributed.Worker",
    "distributed.get_worker",
    "distributed.as_completed",
    "distributed.rejoin",
    "distributed.secede",
    "distributed.wait",
    "distributed.diagnostics.plugin.SchedulerPlugin",
    "distributed.diagnostics.plugin.WorkerPlugin",
    "distributed.protocol.deserialize",
    "distributed.protocol.serialize",
    "distributed.protocol.serialize.dask_deserialize",
    "distributed.protocol.serialize.dask_serialize",
    "distributed.scheduler.KilledWorker",
}
"""What the documentation of Dask and distributed describes, of all that the package
imports.
"""

UNDERSTOOD = {"dask.base.get_scheduler", "dask.system.CPU_COUNT"}
"""Undocumented names of rooms below `graph`, tested in
tests/graph/test_dask_private.py.
"""


def is_private_dask(imported):
    """Whether an import names a part of Dask that Dask does not document."""
    if imported.partition(".")[0] not in ("dask", "distributed"):
        return False
    return imported not in DOCUMENTED | UNDERSTOOD


def test_private_parts_of_dask_are_imported_in_one_place():
    """Another module imports only the two functions that serialize for GPUs."""
    private: dict[str, set[str]] = {}
    for module in modules():
        if some := {
            imported for imported in imports(module) if is_private_dask(imported)
        }:
            private[module] = some
    assert {
        "distributed.protocol.cuda.cuda_deserialize",
        "distributed.protocol.cuda.cuda_serialize",
    } == (private.pop("tasks.named_tuples"))
    assert set(private) == {"graph.dask_private"}


@pytest.mark.parametrize(
    ("imported", "private"),
    [
        ("dask._task_spec.Task", True),
        ("dask.dataframe.dask_expr.new_collection", True),
        ("dask.dataframe.dask_expr._expr.Expr", True),
        ("dask.dataframe.dask_expr.io.io.BlockwiseIO", True),
        ("dask.base._hidden", True),
        ("dask.dataframe.utils.UNKNOWN_CATEGORIES", True),
        ("dask.utils.key_split", True),
        ("distributed.protocol.cuda.cuda_serialize", True),
        ("dask", False),
        ("dask.tokenize.tokenize", False),
        ("dask.dataframe.extensions.register_dataframe_accessor", False),
        ("numpy._core", False),
    ],
)
def test_what_private_means(imported, private):
    assert is_private_dask(imported) == private


# --- importing the package
# ------------------------------------------------------------------------

NOT_NEEDED = [
    "cupy",
    "cudf",
    "dask_cuda",
    "dask_cudf",
    "rmm",
    "sklearn",
    "scipy",
    "matplotlib",
    "hypothesis",
]

# Dask and Numba import SciPy where they find it, so it is hidden: the package must not
# need it
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
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


NUMBA = ("numba.types", "numba.extending", "numba.core.cgutils")
"""Modules of Numba that its documentation tells users to import."""


def test_nothing_private_of_numba_is_imported():
    found = {
        (name, imported)
        for name in modules()
        for imported in imports(name)
        if re.match(r"numba\.(_|\w+\.)", imported) and not imported.startswith(NUMBA)
    }
    assert not found


def test_importing_the_package_needs_no_optional_library():
    loaded = run(CODE)
    assert PACKAGE in loaded
    assert not set(loaded) & set(NOT_NEEDED)


@pytest.mark.slow
def test_importing_the_package_loads_nothing_more_than_its_dependencies():
    """What Dask, Numba and PyArrow load by themselves is theirs; backends are loaded
    when they are chosen.
    """
    code = f"""
import sys
import numpy, pandas, pyarrow, numba, llvmlite.binding, dask.dataframe, distributed
before = set(sys.modules)
import {PACKAGE}
print(*set(sys.modules) - before)
"""
    loaded = run(code)
    assert PACKAGE in loaded
    assert not {name.partition(".")[0] for name in loaded} & set(NOT_NEEDED)
    backends = (f"{PACKAGE}.engine.cpu.", f"{PACKAGE}.engine.gpu.")
    assert not [module for module in loaded if module.startswith(backends)]


JOINS = f"""
import sys
import pandas as pd
import dask.dataframe as dd
import {PACKAGE}
frame = pd.DataFrame({{"x": [0.0, 1.0, 5.0], "y": [0.0, 0.0, 0.0]}})
assert len(frame.simjoin.self_join(2.0)) == len(frame.simjoin.knn_join(k=1)) - 2 == 1
lazy = dd.from_pandas(frame, npartitions=2).simjoin
lazy.plan(2.0)
assert len(lazy.self_join(2.0).compute(scheduler="synchronous")) == 1
print(*(name for name in sys.modules if name.startswith("{PACKAGE}.papers")))
frame.simjoin.self_join(2.0, method="grid")
print("{PACKAGE}.papers.cpu.grid" in sys.modules, {PACKAGE}.methods.KMeans.__name__)
"""


def test_methods_of_papers_are_listed_before_they_are_loaded():
    assert set(methods.__all__) <= set(dir(methods))
    assert all(issubclass(getattr(methods, name), Method) for name in methods.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Squares'"):
        methods.Squares  # noqa: B018


@pytest.mark.slow
def test_a_plain_join_imports_nothing_of_papers():
    assert run(JOINS) == ["True", "KMeans"]


def test_papers_are_loaded_by_name_only():
    """The one module that imports them is the public face of methods, for type
    checkers.
    """
    importing = {
        module
        for module in modules()
        for imported in imports(module)
        if (own(imported) or "").startswith("papers")
        and not module.startswith("papers")
    }
    assert importing == {"methods"}


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
    (tmp_path / "late_library.py").write_text(
        "import sys\nassert 'late_ready' in sys.modules\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    calls = []
    when_imported(
        "late_library", lambda: calls.append(sys.modules["late_library"].__name__)
    )
    assert importlib.util.find_spec("late_library")
    with pytest.raises(AssertionError):
        exec("import late_library")
    assert not calls
    monkeypatch.setitem(sys.modules, "late_ready", sys)
    exec("import late_library; import late_library")
    assert calls == ["late_library"]
    when_imported("late_library", lambda: calls.append("again"))
    assert calls == ["late_library", "again"]


def test_the_text_of_each_mutation_is_in_its_module_once():
    for one in MUTATIONS:
        assert (ROOT / one.file).read_text().count(one.old) == 1, one
