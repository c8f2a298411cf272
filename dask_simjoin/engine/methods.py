"""The methods by which pairs are found: an entry each, from which options, messages and docs are made.

What is told here needs no kernels.  What a method does is in its modules, one for each library it serves;
`dask_simjoin.engine.base.method_module` loads them once it is chosen.  Fields of a method are its options;
its name alone stands for one with their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from dask_simjoin.papers.grid import Grid
from dask_simjoin.papers.lists import KMeans, NestedLoop, ZOrder

AUTO = "auto"
"""The name that leaves the choice to `choose`."""


class Method(Protocol):
    """A way to find pairs; its docstring's first line is what docs say of it."""

    modules: ClassVar[Mapping[str, str]]
    """The module that does it for each data frame library: a `CpuMethod` or a `GpuMethod`."""

    max_dims: ClassVar[int | None]
    """Most dimensions that it serves; None: any number."""

    def is_best(self, dims: int) -> bool:
        """Tell whether "auto" takes it for so many dimensions, unless one before it in the table is best."""


@dataclass(frozen=True)
class Sweep:
    """Sweep along one coordinate, between rows of an eps-grid in the others: up to 4 dimensions.

    It compares 1.7 to 1.9 candidates per pair in 2 dimensions, but its neighbourhoods triple with every
    gridded dimension.
    """

    modules: ClassVar[Mapping[str, str]] = {"pandas": "dask_simjoin.engine.cpu.sweep"}
    max_dims: ClassVar[int | None] = 4

    def is_best(self, dims: int) -> bool:
        return dims <= 3


@dataclass(frozen=True)
class Tiles:
    """Compare tiles of 64 points in kd order whose boxes are near: any number of dimensions.

    In few dimensions boxes leave fewer points out than the sweep does.
    """

    modules: ClassVar[Mapping[str, str]] = {
        "pandas": "dask_simjoin.engine.cpu.tiles",
        "cudf": "dask_simjoin.engine.gpu.tiles",
    }
    max_dims: ClassVar[int | None] = None

    def is_best(self, dims: int) -> bool:
        return True


METHODS: dict[str, Method] = {
    "sweep": Sweep(),
    "tiles": Tiles(),
    "grid": Grid(),
    "nested_loop": NestedLoop(),
    "zorder": ZOrder(),
    "kmeans": KMeans(),
}
"""All methods by name; "auto" takes the first that is best."""

DENSE = "tiles"
"""The name of the one that need not find each pair to count or to connect them."""

NEAREST = (AUTO, DENSE, "zorder")
"""What the option may be where nearest neighbours are sought."""

LOSSY, LOSSY_NEAREST = ("kmeans",), ("zorder",)
"""Those that can leave out pairs that are dear to find, where that is asked for."""

CHOICES = (AUTO, *METHODS)
"""What the option `method` may be."""


def choices_for(library: str) -> tuple[str, ...]:
    """Return what the option may be for frames of a library."""
    return (AUTO, *(name for name, method in METHODS.items() if library in method.modules))


def choices_of(dims: int) -> tuple[str, ...]:
    """Return what the option may be in so many dimensions, "auto" last."""
    served = (name for name, method in METHODS.items() if method.max_dims is None or dims <= method.max_dims)
    return (*served, AUTO)


def is_method(asked: object) -> bool:
    """Tell whether it is a method as an object, not as a name."""
    return type(asked) in map(type, METHODS.values())


def name_of(asked: str | Method) -> str:
    """Return the name of what was asked for, by name or as an object."""
    if isinstance(asked, str):
        return asked
    return next(name for name, method in METHODS.items() if type(method) is type(asked))


def options_of(asked: str | Method, name: str) -> Method:
    """Return the options of the chosen method of that name: those asked for, or the usual ones."""
    return METHODS[name] if isinstance(asked, str) else asked


def asks_sample(asked: str | Method) -> bool:
    """Tell whether a method's options are chosen by a sample of the points."""
    options = METHODS.get(asked) if isinstance(asked, str) else asked
    return (isinstance(options, Grid) and options.indexed == "auto") or (
        isinstance(options, KMeans) or (isinstance(options, ZOrder) and options.lists == "auto")
    )


def choose(asked: str | Method, dims: int, library: str) -> str:
    """Return the name of a method that serves a library: the one that was asked for, or the best."""
    name = name_of(asked)
    if name != AUTO:
        return name
    served = ((name, METHODS[name]) for name in choices_for(library) if name != AUTO)
    return next(name for name, method in served if method.is_best(dims))
