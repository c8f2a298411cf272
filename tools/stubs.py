"""Stubs for type checkers and editors: names of the package, and methods of the
accessor with their types.

Types stand in a stub as they are written in the requests, and are imported from where
they are defined.
"""

import ast
import builtins
import inspect
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill

import dask_simjoin
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.calls.decorators import options_of
from tools import ROOT

PACKAGE = ROOT / "dask_simjoin" / "__init__.pyi"
ACCESSOR = ROOT / "dask_simjoin" / "api" / "accessor.pyi"

OPTIONS = "dask_simjoin.request.options"

NOTE = "Made from the table of verbs by `python -m tools.generate`."

LIBRARIES = {"pd.DataFrame": "pd.Series", "dd.DataFrame": "dd.Series", "Any": "Any"}
"""Frames of an accessor, and their Series."""

RESULTS = {
    "Series": LIBRARIES,
    "Series | Frame": LIBRARIES,
    "Number": {"pd.DataFrame": "int", "dd.DataFrame": "Any", "Any": "Any"},
}
"""Result of a verb -> result by library. Dask's Scalar has no public type."""

SEVERAL = {
    "neighbor_counts": {
        "pd.DataFrame": "pd.DataFrame",
        "dd.DataFrame": "dd.DataFrame",
        "Any": "Any",
    },
    "count_pairs": {
        "pd.DataFrame": "pd.Series",
        "dd.DataFrame": "dd.Series",
        "Any": "Any",
    },
}
"""Verb -> result by library for a list of distances."""

HEAD = f'''"""The accessor `.simjoin`, whose methods are the verbs.

{NOTE}
"""

# where pandas and Dask have no types, all their frames are Any
# mypy: disable-error-code="overload-cannot-match"

from typing import Any, Generic, TypeVar, overload

import dask.dataframe as dd
import pandas as pd
{{imports}}

F = TypeVar("F")

class SimJoinAccessor(Generic[F]):
    """Similarity joins of a DataFrame: ``frame.simjoin``."""

'''


def package():
    """The stub of the package: every name from the module that defines it."""
    lines = []
    for name in dask_simjoin.__all__:
        value = getattr(dask_simjoin, name)
        lines.append(
            f"from {'dask_simjoin' if inspect.ismodule(value) else value.__module__} "
            f"import {name}"
        )
    names = ",\n    ".join(f'"{name}"' for name in sorted(dask_simjoin.__all__))
    head = f'"""{inspect.getdoc(dask_simjoin)}\n\n{NOTE}\n"""\n\n'
    return _formatted(
        head
        + "\n".join(lines)
        + f"\n\n__version__: str\n\n__all__ = [\n    {names},\n]\n"
    )


def accessor():
    """The stub of the accessor: of a Dask DataFrame a verb gives one of Dask's, and so
    on.
    """
    types = Types()
    text = _overloads("__init__", [], "...")
    for name, value in vars(dask_simjoin.SimJoinAccessor).items():
        if name not in VERBS and inspect.isfunction(value) and not name.startswith("_"):
            text += _method(name, value, [], types)
    for name, verb in VERBS.items():
        text += _method(name, verb.function, _parameters(verb.request, types), types)
    return _formatted(HEAD.replace("{imports}", types.imports()) + text)


def _method(name, function, parameters, types):
    """The text of a method; it is overloaded if its result is a Series."""
    own = inspect.unwrap(function)
    result = inspect.get_annotations(own)["return"]
    words = inspect.getdoc(function).partition("\n\n")[0]
    about = fill(f'"""{words}"""', 100, subsequent_indent=" " * 8)
    if result in RESULTS:
        if name in SEVERAL:
            return _overloads(
                name,
                _with_type(parameters, "eps", types.named("Radius", OPTIONS)),
                about,
                RESULTS[result],
                end="",
            ) + _overloads(
                name,
                _with_type(parameters, "eps", types.named("Sequence[float]", OPTIONS)),
                about,
                SEVERAL[name],
            )
        return _overloads(name, parameters, about, RESULTS[result])
    result = "F" if result == "Frame" else types.named(result, own.__module__)
    return f"    def {name}({', '.join(['self', *parameters])}) -> {result}:\n        {about}\n\n"


def _overloads(name, parameters, about, results=LIBRARIES, end="\n"):
    """A method for each library of frames; the frame of `__init__` selects it."""
    text = ""
    making = name == "__init__"
    for frame, result in results.items():
        own = (
            [f"frame: {'object' if frame == 'Any' else frame}"]
            if making
            else parameters
        )
        signature = f"def {name}(self: SimJoinAccessor[{frame}], {', '.join(own)})"
        text += f"    @overload\n    {signature} -> {'None' if making else result}:\n        {about}\n"
    return text + end


def _with_type(parameters, name, hint):
    """The parameters, with another type of one."""
    return [
        f"{name}: {hint}" if one.startswith(f"{name}:") else one for one in parameters
    ]


def _parameters(request, types):
    """The options of a request as parameters, with types and defaults as in the source."""
    found = []
    for option in options_of(request):
        if option.kind is option.KEYWORD_ONLY and "*" not in found:
            found.append("*")
        owner = next(
            kind
            for kind in request.__mro__
            if option.name in inspect.get_annotations(kind)
        )
        hint = types.named(
            inspect.get_annotations(owner)[option.name], owner.__module__
        )
        default = "" if option.default is option.empty else f" = {option.default!r}"
        found.append(f"{option.name}: {hint}{default}")
    return found


class Types:
    """Names of types that a stub uses, each imported from the module that defines it."""

    def __init__(self):
        self._origins = {}

    def named(self, hint, module):
        """A type as a module writes it, in the names of the stub."""
        tree = ast.parse(hint, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                node.id = self._own(*_origin(module, node.id))
        return ast.unparse(tree)

    def _own(self, module, name):
        """Another name if two modules define one: that of the second begins with its
        package.
        """
        if self._origins.setdefault(name, (module, name)) == (module, name):
            return name
        other = module.split(".")[-2].title().replace("_", "") + name
        assert self._origins.setdefault(other, (module, name)) == (module, name), other
        return other

    def imports(self):
        """The lines that import them."""
        return "\n".join(
            f"from {module} import {name} as {own}"
            if own != name
            else f"from {module} import {name}"
            for own, (module, name) in self._origins.items()
        )


def _origin(module, name):
    """The module that defines a name which another one uses, and what it is called
    there.
    """
    imported = _imported(module).get(name)
    if imported is None:
        return module, name
    source, there = imported
    return (
        _origin(source, there)
        if source.partition(".")[0] == "dask_simjoin"
        else (source, there)
    )


@cache
def _imported(module):
    """Name -> (module, name there) of what a module imports by name."""
    tree = ast.parse(Path(find_spec(module).origin).read_text())
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _formatted(text):
    """The text as ruff has it."""
    for command in (["check", "-q", "--select", "I,F401", "--fix"], ["format", "-q"]):
        words = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--stdin-filename",
            str(ACCESSOR),
            "-",
        ]
        ran = subprocess.run(
            words, input=text, capture_output=True, text=True, cwd=ROOT
        )
        assert ran.returncode == 0, ran.stderr
        text = ran.stdout
    return text


def files():
    """Path -> text of both stubs."""
    return {PACKAGE: package(), ACCESSOR: accessor()}
