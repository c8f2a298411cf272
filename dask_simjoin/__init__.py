"""Exact similarity joins for Dask, pandas and cuDF DataFrames.

Importing this package adds the accessor ``.simjoin`` to these frames.
"""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NoReturn

from dask_simjoin import methods
from dask_simjoin.api.accessor import SimJoinAccessor
from dask_simjoin.api.compile_kernels import compile_kernels
from dask_simjoin.api.introspect import report
from dask_simjoin.api.registration import register
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.cluster.verbs import connected_components
from dask_simjoin.disk_index.verbs import open_index
from dask_simjoin.request.messages import no_verb

try:
    __version__ = version("dask-simjoin")
except PackageNotFoundError:  # imported from a source tree or a zip file
    __version__ = "0+unknown"

# type checkers and editors read the same names from __init__.pyi
globals().update({name: verb.function for name, verb in VERBS.items()})

__all__ = [
    "SimJoinAccessor",
    "compile_kernels",
    "connected_components",
    "methods",
    "open_index",
    "report",
    *VERBS,
]

PUBLIC_MODULES = ("cluster", "errors", "neighbors", "sets")


def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        rest = ""
    elif find_spec(f"{__name__}.{name}") is not None:
        rest = f"; to load this module: import {__name__}.{name}"
    else:
        rest = no_verb(name, sorted(VERBS), __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{rest}")


def __dir__() -> list[str]:
    modules = [name for name in PUBLIC_MODULES if name in globals()]
    return sorted([*__all__, *modules, "__version__"])


register()
