"""Methods that find pairs, data frame libraries, and dtypes of coordinates and ids.

Options, messages and docs are made from the table `METHODS`. This module imports no
kernels: `dask_simjoin.engine.base.method_module` imports the module of a method once it
is chosen. The fields of a method object are its options. A method given by name has
default options.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.errors import ColumnError, UnsupportedFrameError
from dask_simjoin.metrics.norms import DType, Frame, Norm, Series

AUTO = "auto"
"""Value of the option `method` that lets `choose` select a method."""


class Method:
    """Base class of the methods that find pairs. A subclass overrides only what it
    needs.
    """

    modules: ClassVar[Mapping[str, str]] = {}
    """Data frame library -> name of the module that implements the method: a
    `CpuMethod` or `GpuMethod`.
    """

    max_dims: ClassVar[int | None] = None
    """Largest number of dimensions that the method supports; None: any number."""

    has_search: ClassVar[bool] = False
    """Whether the method also finds nearest neighbors; then its modules follow
    `SearchMethod`.
    """

    recall_module: ClassVar[str | None] = None
    """Name of the module that estimates the recall of ``approximate=True``; None:
    always exact.
    """

    @property
    def needs_sample(self) -> bool:
        """Whether some options are chosen from a sample of the points."""
        return False

    def is_best(self, dims: int) -> bool:
        """Return whether "auto" may choose the method for this number of dimensions.

        If several methods return True, "auto" chooses the first one in `METHODS`.
        """
        return False

    def fitted(
        self,
        x: np.ndarray,
        rows: float,
        variance: np.ndarray,
        threshold: float,
        norm: Norm,
    ) -> Method:
        """Return the method with options chosen for `rows` points. `x` (m, d): a sample
        of them.
        """
        return self

    def approximate_layout(self, layout: Any) -> Any:
        """Convert the layout of an exact join to the layout for `approximate=True`."""
        return layout


@dataclass(frozen=True)
class Sweep(Method):
    """Sweep along one coordinate in the rows of an eps-grid: up to 4 dimensions.

    The grid has all other coordinates. In 2 dimensions, 1.7 to 1.9 candidates are
    compared per pair. Each further dimension triples the number of neighboring rows.
    """

    modules: ClassVar[Mapping[str, str]] = {"pandas": "dask_simjoin.engine.cpu.sweep"}
    max_dims: ClassVar[int | None] = 4

    def is_best(self, dims: int) -> bool:
        return dims <= 3


@dataclass(frozen=True)
class Tiles(Method):
    """Compare tiles of 64 neighboring points whose boxes are near: any dimensions.

    In few dimensions it compares more candidates than the sweep.
    """

    modules: ClassVar[Mapping[str, str]] = {
        "pandas": "dask_simjoin.engine.cpu.tiles",
        "cudf": "dask_simjoin.engine.gpu.tiles",
    }

    def is_best(self, dims: int) -> bool:
        return True


class MethodTable(Mapping[str, Method]):
    """Name -> method with default options.

    `entries`: name -> method, or name -> its class as text, "module:Class". Such a
    class is imported when it is used first, and must support all libraries and any
    number of dimensions.
    """

    def __init__(self, entries: dict[str, Method | str]) -> None:
        self.entries = entries

    def __getitem__(self, name: str) -> Method:
        entry = self.entries[name]
        return load_method(entry)() if isinstance(entry, str) else entry

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        """Return whether a method has this name. No class is imported."""
        return name in self.entries

    def find(self, kind: type) -> str | None:
        """Return the name of the method with this class, or None. No other class is
        imported.
        """
        path = f"{kind.__module__}:{kind.__qualname__}"
        for name, entry in self.entries.items():
            if entry == path if isinstance(entry, str) else type(entry) is kind:
                return name
        return None

    def serving(self, library: str | None = None, dims: int = 1) -> tuple[str, ...]:
        """Return the names of the methods for a library and a number of dimensions.
        `library`: None: all libraries."""
        return tuple(
            name
            for name, entry in self.entries.items()
            if isinstance(entry, str)
            or (
                (library is None or library in entry.modules)
                and dims <= (entry.max_dims or dims)
            )
        )


@functools.cache
def load_method(path: str) -> type[Method]:
    """Import the class of a method, given as "module:Class"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


METHODS = MethodTable(
    {
        "sweep": Sweep(),
        "tiles": Tiles(),
        "grid": "dask_simjoin.papers.grid:Grid",
        "nested_loop": "dask_simjoin.papers.lists:NestedLoop",
        "zorder": "dask_simjoin.papers.lists:ZOrder",
        "kmeans": "dask_simjoin.papers.lists:KMeans",
    }
)
"""All methods by name. "auto" takes the first one whose `is_best` returns True, never
one from a paper.
"""

DENSE = "tiles"
"""The method that can count neighbors, and connect rows to components, without finding
every pair.
"""

NEAREST = (AUTO, DENSE, "zorder")
"""Values of the option `method` for nearest neighbors."""

LOSSY, LOSSY_NEAREST = ("kmeans",), ("zorder",)
"""Methods that support ``approximate=True`` for pairs, and for nearest neighbors. They
may then miss some.
"""

CHOICES = (AUTO, *METHODS)
"""Values of the option `method`."""


def choices_for(library: str) -> tuple[str, ...]:
    """Return the values of the option `method` that a library supports."""
    return (AUTO, *METHODS.serving(library))


def choices_of(dims: int) -> tuple[str, ...]:
    """Return the values of the option `method` for a number of dimensions, "auto" last."""
    return (*METHODS.serving(dims=dims), AUTO)


def is_method(value: object) -> bool:
    return METHODS.find(type(value)) is not None


def name_of(method: str | Method) -> str:
    name = method if isinstance(method, str) else METHODS.find(type(method))
    assert name is not None
    return name


def as_method(method: str | Method) -> Method | None:
    """Convert a method, which is given by name or as an object, to an object. Return
    None for "auto".
    """
    if isinstance(method, str):
        return None if method == AUTO else METHODS[method]
    return method


def options_of(method: str | Method, name: str) -> Method:
    """Return the chosen method as an object: `method` if it is an object, else the
    method `name` with defaults."""
    return METHODS[name] if isinstance(method, str) else method


def needs_sample(method: str | Method) -> bool:
    options = as_method(method)
    return options is not None and options.needs_sample


def choose(method: str | Method, dims: int, library: str) -> str:
    """Return the name of a method; for "auto", the name of the best method for a
    library and these dimensions."""
    name = name_of(method)
    if name != AUTO:
        return name
    own = (
        (name, entry)
        for name, entry in METHODS.entries.items()
        if isinstance(entry, Method)
    )
    return next(
        name for name, entry in own if library in entry.modules and entry.is_best(dims)
    )


HOME = "pandas"
"""The library whose frames and arrays are in host memory."""

MAX_DIMS: dict[str, int | None] = {HOME: None, "cudf": 2048}
"""Library -> largest number of dimensions; None: any number.

GPUs have a limit, because the box of a query must fit into their shared memory.
"""

LIBRARIES = tuple(MAX_DIMS)


def library(frame: Frame) -> str:
    """Return the data frame library that a frame's class derives from, or else the
    package of the class.
    """
    names = [base.__module__.partition(".")[0] for base in type(frame).__mro__]
    return next((name for name in names if name in LIBRARIES), names[0])


def check_library(name: str) -> None:
    if name not in LIBRARIES:
        raise UnsupportedFrameError(
            f"Frames of {name!r} cannot be joined, only frames of pandas and cuDF; use "
            "ddf.to_backend('pandas')."
        )


class Lists(NamedTuple):
    """Length of the lists in a column, and dtype of their numbers. None: the dtype does
    not show it.
    """

    length: int | None
    kind: np.dtype | None


def arrow_type(dtype: DType) -> Any:
    """Return the Arrow type of a pandas Arrow dtype or of cuDF's list dtype; None for
    other dtypes.
    """
    if isinstance(dtype, pd.ArrowDtype):
        return dtype.pyarrow_dtype
    return dtype.to_arrow() if type(dtype).__name__ == "ListDtype" else None


def is_text(arrow: pa.DataType) -> bool:
    """Return whether an Arrow type is of texts, not in a dictionary."""
    return bool(
        pa.types.is_string(arrow)
        or pa.types.is_large_string(arrow)
        or pa.types.is_string_view(arrow)
    )


def lists_of(column: Series) -> Lists | None:
    """Return length and dtype of a column's lists of numbers; None if its dtype
    excludes such lists.
    """
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        # cuDF keeps no lists in object columns, but Dask describes a Parquet column of
        # lists by one
        return Lists(None, None)
    arrow = arrow_type(dtype)
    if arrow is None:
        return None
    fixed = pa.types.is_fixed_size_list(arrow)
    if not fixed and not pa.types.is_list(arrow) and not pa.types.is_large_list(arrow):
        return None
    of = arrow.value_type
    if not (
        pa.types.is_floating(of) or pa.types.is_integer(of) or pa.types.is_boolean(of)
    ):
        return None
    return Lists(arrow.list_size if fixed else None, np.dtype(of.to_pandas_dtype()))


def kind_of_number(dtype: DType) -> str:
    """Return NumPy's letter for a kind of number ("i", "u", "f", "b"), or "" for
    others.
    """
    kind = str(getattr(dtype, "kind", ""))
    size = getattr(dtype, "itemsize", 8)
    return kind if kind in "iufb" and size <= 8 else ""


NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Unit of times -> its size in nanoseconds; the coarsest unit first."""


def may_be_times(dtype: DType) -> bool:
    """Return whether a dtype is one of times, dates or time spans. A column of objects
    may hold dates.
    """
    arrow = arrow_type(dtype)
    if arrow is not None:
        kinds = pa.types.is_timestamp, pa.types.is_date, pa.types.is_duration
        return any(is_kind(arrow) for is_kind in kinds)
    kind = getattr(dtype, "kind", "")
    return kind in ("m", "M") or (isinstance(dtype, np.dtype) and kind == "O")


def check_indexable(dtype: DType, id: Hashable | None) -> None:
    """Raise an error for ids that are 16-bit floats, because pandas cannot look them up
    in an index.
    """
    if getattr(dtype, "kind", "") == "f" and getattr(dtype, "itemsize", 8) == 2:
        raise ColumnError(
            f"{describe_ids(id)} are of dtype {dtype}, which pandas cannot look up; "
            "convert them, for "
            "example with .astype('float64'), or use id= with another column."
        )


def describe_ids(id: Hashable | None) -> str:
    return "The index labels" if id is None else f"The ids in column {id!r}"
