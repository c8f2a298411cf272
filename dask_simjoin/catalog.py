"""Names that options accept: methods that find pairs, data frame libraries, and dtypes of columns.

Options, messages and docs are generated from the table of methods. A method's code is in one module per
library. `dask_simjoin.engine.base.method_module` loads it when the method is chosen, so this module needs no
kernels. Fields of a method object are its options; the name of a method stands for their defaults.
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
"""Value of the option `method` that lets `choose` select the method."""


class Method:
    """A method that finds pairs. A subclass overrides only the hooks that it needs.

    The docs show the first line of each subclass's docstring.
    """

    modules: ClassVar[Mapping[str, str]] = {}
    """Data frame library -> module with the method for it: a `CpuMethod` or a `GpuMethod`."""

    max_dims: ClassVar[int | None] = None
    """Largest number of dimensions; None: no limit."""

    has_search: ClassVar[bool] = False
    """Whether the modules also search nearest neighbors (`SearchMethod`). If not, the method "tiles"
    searches."""

    recall_module: ClassVar[str | None] = None
    """Module that estimates the recall with `approximate=True`; None: the method cannot skip pairs."""

    @property
    def needs_sample(self) -> bool:
        """Whether some options are chosen by a sample of the points."""
        return False

    def is_best(self, dims: int) -> bool:
        """Return whether the method suits this number of dimensions. "auto" selects the first method that
        does."""
        return False

    def fitted(self, x: np.ndarray, rows: float, variance: np.ndarray, threshold: float,
               norm: Norm) -> Method:  # fmt: skip
        """Return the method with options that suit `rows` points. `x` (m, d): a sample of these points."""
        return self

    def approximate_layout(self, layout: Any) -> Any:
        """Convert the layout of an exact join to a layout for `approximate=True`."""
        return layout


@dataclass(frozen=True)
class Sweep(Method):
    """Sweep along one coordinate, and divide the others by a grid of cell size eps: up to 4 dimensions.

    In 2 dimensions, it compares 1.7 to 1.9 candidates per pair that it finds. But with each further
    dimension, it visits three times as many neighbor cells.
    """

    modules: ClassVar[Mapping[str, str]] = {"pandas": "dask_simjoin.engine.cpu.sweep"}
    max_dims: ClassVar[int | None] = 4

    def is_best(self, dims: int) -> bool:
        return dims <= 3


@dataclass(frozen=True)
class Tiles(Method):
    """Compare tiles of 64 points (in kd order) with near bounding boxes: any number of dimensions.

    In few dimensions, its boxes exclude fewer points than the sweep excludes.
    """

    modules: ClassVar[Mapping[str, str]] = {
        "pandas": "dask_simjoin.engine.cpu.tiles",
        "cudf": "dask_simjoin.engine.gpu.tiles",
    }

    def is_best(self, dims: int) -> bool:
        return True


class MethodTable(Mapping[str, Method]):
    """Methods by name, with default options.

    `entries`: name -> method, or the text "module:Class". Such a class is loaded when it is first used. It
    must support all libraries, and any number of dimensions.
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
        """Return whether there is a method with this name; it is not loaded."""
        return name in self.entries

    def find(self, kind: type) -> str | None:
        """Return the name of a method, given its class; None: it is not in the table. No method is loaded."""
        path = f"{kind.__module__}:{kind.__qualname__}"
        for name, entry in self.entries.items():
            if entry == path if isinstance(entry, str) else type(entry) is kind:
                return name
        return None

    def serving(self, library: str | None = None, dims: int = 1) -> tuple[str, ...]:
        """Return the names of the methods that support a library (None: any one) and a number of
        dimensions."""
        return tuple(
            name
            for name, entry in self.entries.items()
            if isinstance(entry, str)
            or ((library is None or library in entry.modules) and dims <= (entry.max_dims or dims))
        )


@functools.cache
def load_method(path: str) -> type[Method]:
    """Load the class of a method, given as "module:Class"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


METHODS = MethodTable({
    "sweep": Sweep(),
    "tiles": Tiles(),
    "grid": "dask_simjoin.papers.grid:Grid",
    "nested_loop": "dask_simjoin.papers.lists:NestedLoop",
    "zorder": "dask_simjoin.papers.lists:ZOrder",
    "kmeans": "dask_simjoin.papers.lists:KMeans",
})  # fmt: skip
"""All methods by name. "auto" chooses the first one that returns True in `is_best`, which published methods
never do."""

DENSE = "tiles"
"""Name of the method that can count or connect rows without listing all pairs."""

NEAREST = (AUTO, DENSE, "zorder")
"""Values of the option `method` for nearest neighbors."""

LOSSY, LOSSY_NEAREST = ("kmeans",), ("zorder",)
"""Methods that skip expensive pairs with `approximate=True`, and methods that skip neighbors."""

CHOICES = (AUTO, *METHODS)
"""Values of the option `method`."""


def choices_for(library: str) -> tuple[str, ...]:
    """Return the values of the option `method` that a library supports."""
    return (AUTO, *METHODS.serving(library))


def choices_of(dims: int) -> tuple[str, ...]:
    """Return the values of the option `method` that support a number of dimensions, "auto" last."""
    return (*METHODS.serving(dims=dims), AUTO)


def is_method(value: object) -> bool:
    """Return whether a value is a method object, not a name."""
    return METHODS.find(type(value)) is not None


def name_of(method: str | Method) -> str:
    """Return the name of a method that is given by name or as an object."""
    name = method if isinstance(method, str) else METHODS.find(type(method))
    assert name is not None
    return name


def as_method(method: str | Method) -> Method | None:
    """Return the method that is given by name or as an object; None: "auto"."""
    if isinstance(method, str):
        return None if method == AUTO else METHODS[method]
    return method


def options_of(method: str | Method, name: str) -> Method:
    """Return the method `name`: the object `method` if options were given, else the method with default
    options."""
    return METHODS[name] if isinstance(method, str) else method


def needs_sample(method: str | Method) -> bool:
    """Return whether some options of a method are chosen by a sample of the points."""
    options = as_method(method)
    return options is not None and options.needs_sample


def choose(method: str | Method, dims: int, library: str) -> str:
    """Return the name of a method; for "auto", the name of the best one for this library and number of
    dimensions."""
    name = name_of(method)
    if name != AUTO:
        return name
    own = ((name, entry) for name, entry in METHODS.entries.items() if isinstance(entry, Method))
    return next(name for name, entry in own if library in entry.modules and entry.is_best(dims))


HOME = "pandas"
"""The library whose frames and arrays are in host memory."""

MAX_DIMS: dict[str, int | None] = {HOME: None, "cudf": 2048}
"""Largest number of dimensions that each library supports; None: no limit.

On GPUs, the bounding box of a query must fit into shared memory.
"""

LIBRARIES = tuple(MAX_DIMS)


def library(frame: Frame) -> str:
    """Return the name of the data frame library that defines a frame's class or one of its base classes."""
    names = [base.__module__.partition(".")[0] for base in type(frame).__mro__]
    return next((name for name in names if name in LIBRARIES), names[0])


def check_library(name: str) -> None:
    """Raise an error for frames of a library that the package cannot join."""
    if name not in LIBRARIES:
        raise UnsupportedFrameError(
            f"Frames of {name!r} cannot be joined, only frames of pandas and cuDF; use "
            "ddf.to_backend('pandas')."
        )


class Lists(NamedTuple):
    """Length of the lists in a column, and dtype of their numbers. None: the dtype of the column does not
    show it."""

    length: int | None
    kind: np.dtype | None


def arrow_type(dtype: DType) -> Any:
    """Return the Arrow type of a pandas Arrow dtype or of cuDF lists; None: it is another dtype."""
    if isinstance(dtype, pd.ArrowDtype):
        return dtype.pyarrow_dtype
    return dtype.to_arrow() if type(dtype).__name__ == "ListDtype" else None


def lists_of(column: Series) -> Lists | None:
    """Describe the lists of numbers in a column; None: its dtype cannot hold such lists."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return Lists(None, None)  # object: strings in cuDF, but also lists that Dask reads from parquet
    arrow = arrow_type(dtype)
    if arrow is None:
        return None
    fixed = pa.types.is_fixed_size_list(arrow)
    if not fixed and not pa.types.is_list(arrow) and not pa.types.is_large_list(arrow):
        return None
    of = arrow.value_type
    if not (pa.types.is_floating(of) or pa.types.is_integer(of) or pa.types.is_boolean(of)):
        return None
    return Lists(arrow.list_size if fixed else None, np.dtype(of.to_pandas_dtype()))


def kind_of_number(dtype: DType) -> str:
    """Return NumPy's letter for the kind of number; "": coordinates cannot have this dtype."""
    kind = str(getattr(dtype, "kind", ""))
    size = getattr(dtype, "itemsize", 8)
    return kind if kind in "iufb" and size <= 8 else ""


def check_indexable(dtype: DType, id: Hashable | None) -> None:
    """Raise an error for ids that are 16-bit floats, because pandas cannot look them up in an index."""
    if getattr(dtype, "kind", "") == "f" and getattr(dtype, "itemsize", 8) == 2:
        raise ColumnError(
            f"{describe_ids(id)} are of dtype {dtype}, which pandas cannot look up; convert them, for "
            "example with .astype('float64'), or use id= with another column."
        )


def describe_ids(id: Hashable | None) -> str:
    return "The index labels" if id is None else f"The ids in column {id!r}"
