"""What the documentation, the examples and docstrings import is public."""

import ast
import doctest
import importlib
import inspect
import re

import pytest

from tests.support.outputs import blocks
from tests.support.paths import ROOT

PACKAGE = "dask_simjoin"

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

PROGRAMS = sorted((ROOT / "examples").rglob("*.py"))

ROW = re.compile(r"^\| `(dask_simjoin[\w.]*)` \|", re.M)


def public_modules():
    """Modules that the page of promises lists."""
    page = (ROOT / "docs" / "reference" / "promises.md").read_text()
    return ROW.findall(page)


def public_names(module):
    loaded = importlib.import_module(module)
    if module == f"{PACKAGE}.errors":
        return {"Remedy"} | {
            name
            for name, one in vars(loaded).items()
            if inspect.isclass(one) and issubclass(one, BaseException)
        }
    return set(loaded.__all__)


def used(code):
    """Yield each (module, name) of the package that some code uses."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            yield from ((node.module, one.name) for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                (one.name, "")
                for one in node.names
                if one.name.partition(".")[0] == PACKAGE
            )
        elif isinstance(node, ast.Attribute):
            names = ast.unparse(node).split(".")
            if names[0] == PACKAGE and all(map(str.isidentifier, names)):
                yield ".".join(names[:-1]), names[-1]


def is_public(module, name):
    known = public_modules()
    if f"{module}.{name}".rstrip(".") in known:
        return True
    if module not in known:
        # an attribute of a public name, such as dask_simjoin.open_index.__doc__
        above, _, own = module.rpartition(".")
        return bool(above) and is_public(above, own)
    return name in public_names(module) or name.startswith("__")


def docstrings(module):
    """Yield the examples in the docstrings of a module's public names, and of their
    methods.
    """
    parser, loaded = doctest.DocTestParser(), importlib.import_module(module)
    for name in sorted(public_names(module)):
        one = getattr(loaded, name)
        methods = vars(one).values() if inspect.isclass(one) else ()
        for text in map(inspect.getdoc, (one, *methods)):
            yield from (example.source for example in parser.get_examples(text or ""))


def sources():
    for page in PAGES:
        yield page.relative_to(ROOT), [block.text for block in blocks(page)]
    for program in PROGRAMS:
        yield program.relative_to(ROOT), [program.read_text()]
    for module in public_modules():
        yield module, list(docstrings(module))


@pytest.mark.parametrize(
    ("path", "codes"), [pytest.param(*one, id=str(one[0])) for one in sources()]
)
def test_what_is_shown_is_public(path, codes):
    private = {
        f"{module}.{name}".rstrip(".")
        for code in codes
        for module, name in used(code)
        if not is_public(module, name)
    }
    assert not private, f"{path} uses {sorted(private)}, which are private"


@pytest.mark.parametrize("module", public_modules())
def test_public_modules_have_public_names(module):
    names, loaded = public_names(module), importlib.import_module(module)
    assert names and all(hasattr(loaded, name) for name in names)
    assert all(inspect.getdoc(getattr(loaded, name)) for name in names)


def test_private_names_are_found():
    code = "from dask_simjoin.graph import planner\nimport dask_simjoin.tasks\n"
    found = {one for one in used(code) if not is_public(*one)}
    assert found == {("dask_simjoin.graph", "planner"), ("dask_simjoin.tasks", "")}
    assert not is_public("dask_simjoin.disk_index.index", "DIFF")
    assert is_public("dask_simjoin.cluster", "plots")
    assert is_public("dask_simjoin.errors", "OptionError")
    assert not is_public("dask_simjoin.errors", "contextlib")
