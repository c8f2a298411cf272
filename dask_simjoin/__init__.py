"""Exact similarity joins for Dask, pandas and cuDF DataFrames.

Importing this package adds the accessor ``.simjoin`` to these frames.
"""

from importlib.metadata import PackageNotFoundError, version

from dask_simjoin import methods
from dask_simjoin.api.accessor import SimJoinAccessor
from dask_simjoin.api.compile_kernels import compile_kernels
from dask_simjoin.api.introspect import report
from dask_simjoin.api.registration import register
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.cluster.verbs import connected_components
from dask_simjoin.disk_index.verbs import open_index

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

register()
