"""Assembles the CUDA C++ of the kernels from files and constants; needs neither CuPy
nor a GPU.
"""

from __future__ import annotations

import enum
import functools
import math
import re
from importlib import resources

from dask_simjoin.engine.index.gpu import ROW_DIMS
from dask_simjoin.metrics.norms import Norm


class Sink(enum.IntEnum):
    """How a join kernel uses pairs if it neither writes nor counts them: see
    `components.cuh`.
    """

    LINK = 1
    LOWEST = 2


FANOUT = 64
"""Number of children of a node in the tree of boxes."""

MIXED = 1024
"""Interleave factor of the query tiles of `tiles.cu`.

Points that are close in kd order have similar numbers of pairs. So without
interleaving, the pairs of the first queries would not predict how many pairs the other
queries have.
"""

LEAF = 8
"""Number of points in a leaf of the trees of `spanning_rows.cu` and `nearest_rows.cu`."""

ROW_NORMS = 1, 2, math.inf
"""Norms of searches by rows: their totals stay in the range of float32 numbers if the
coordinates do.
"""

LISTS = 8, 16, 32
"""Numbers of neighbors that a pass of `nearest_rows.cu` finds: the smallest one that is
enough, or the largest one.
"""

OPTIONS = ("-std=c++17",)
"""Options of NVRTC for all programs.

All programs share one tuple, because CuPy asks NVRTC for its version once for each
tuple object, even if all programs are cached. CuPy adds an option that flushes float32
numbers below 2**-126 to 0. This changes no result: points are scaled so that the
filters' bounds are far above 2**-126 (see `engine.filters.bounds`).
"""

PACKAGE = resources.files("dask_simjoin")

INCLUDE = re.compile(r'#include "(.+)"\n')
"""A line that includes a file.

This file is in the folder of the program, or in the folder of the engine's kernels.
"""


@functools.cache
def _text(name: str) -> str:
    """Return the text of a program, with the files that it includes."""
    room, _, file = name.rpartition("/")
    own, shared = (
        PACKAGE / some / "gpu" / "kernels" for some in (room or "engine", "engine")
    )

    def included(found: re.Match[str]) -> str:
        path = own / found[1]
        return (path if path.is_file() else shared / found[1]).read_text() + "\n"

    text = INCLUDE.sub(included, (own / f"{file}.cu").read_text())
    return _defined({"FANOUT": FANOUT, "MIXED": MIXED}) + text


def source(name: str, **constants: int) -> str:
    """Return the text of a program with these constants.

    `name`: such as "tiles" (of the engine) or "papers/grid".
    """
    return _defined(constants) + _text(name)


def _defined(constants: dict[str, int]) -> str:
    return "".join(f"#define {key} {int(value)}\n" for key, value in constants.items())


def norm_constant(norm: Norm) -> dict[str, int]:
    """Return the constant that selects a norm in kernels. For norm 2, the default, no
    constant is needed.
    """
    return {} if norm == 2 else {"NORM": 0 if norm == math.inf else int(norm)}


def tree_search(dims: int, exact: bool, norm: Norm = 2) -> tuple[str, dict[str, int]]:
    """Return the program of the search for spanning trees, and its constants.

    `exact`: whether tiles of points have no filter.
    """
    if dims <= ROW_DIMS:
        constants = {"DIMS": dims, "EXACT": True, "LEAF": LEAF}
        return "spanning_rows", constants | norm_constant(norm)
    return "spanning", {"DIMS": dims, "EXACT": exact} | norm_constant(norm)


def nearest_rows(dims: int, k: int, norm: Norm = 2) -> tuple[str, dict[str, int]]:
    """Return the program of the search of k neighbors by rows, and its constants."""
    length = next((one for one in LISTS if one >= k), LISTS[-1])
    constants = {"DIMS": dims, "EXACT": True, "LEAF": LEAF, "K": length}
    # a few registers are then kept in memory
    constants["BLOCKS"] = 4 if dims <= 3 else 3
    return "nearest_rows", constants | norm_constant(norm)
