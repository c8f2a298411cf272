"""What a backend must offer, and the choice of one for a frame."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from dask_simjoin.engine.index.regions import Regions
from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.metrics.norms import Norm

Visitor = Callable[[Any, Any, Any], None]

Measured = Callable[[Any], Any]
"""Makes distances of totals."""


class Pairs(NamedTuple):
    """Pairs of two chunks.

    Attributes
    ----------
    left, right : array (pairs,), int32 or int64
        The rows of the left and of the right chunk: positions, or labels.
    distance : array (pairs,), float64, or None
        What `distance` made of the pairs' totals.
    decided, refused : int
        How many pairs only the float64 decision could tell, and how many of them it refused.
    kept : list of array (pairs,)
        What `kept` has of the left and of the right rows.
    """

    left: Any
    right: Any
    distance: Any
    decided: int
    refused: int
    kept: Any = ()


class Backend(Protocol):
    """Arrays of one kind and the kernels that work on them.

    A layout is what this backend's `layout` made: it says how all chunks of a join are indexed, and has
    the attributes `method` and `grain`.
    """

    xp: Any
    """The array module."""

    methods: tuple[str, ...]
    """The engines that can be chosen by name, and "auto"."""

    most_dims: int | None
    """Dimensions that it serves; None: any number."""

    def layout(self, method: str, lower: Any, upper: Any, mean: Any, variance: Any,
               threshold: float, norm: Norm = 2) -> Any:  # fmt: skip
        """How to index chunks, from moments (d,) of all points and the decision's threshold and norm."""

    def coordinates(self, frame: Any, columns: tuple[Any, ...]) -> Any:
        """The columns as an array (n, d) of float64, NaN where a value is missing.

        They are columns of numbers, or one of lists of d numbers; raises `ListError` where it is not.
        """

    def build(self, x: Any, layout: Any) -> dict[str, Any]:
        """Index of a chunk: a plain dict of arrays, so that it can be spilled and sent."""

    def pairs(self, q: dict[str, Any], d: dict[str, Any], layout: Any, *, same: bool,
              distance: Measured | None = None, labels: tuple[Any, Any] | None = None,
              rows: tuple[int, int] | None = None, kept: Any = None) -> Pairs:  # fmt: skip
        """All pairs of two indexes, or of one with itself (`same`: each once, smaller position first).

        `distance`: makes distances of totals (pairs,) float64, in their memory if it likes.
        `labels`: what to name the rows of both sides (n,) int64, in their index's order; None:
        their positions.  `kept`: with labels, lists of arrays (n,) of which to give the left and the right
        rows' values, in the order of the left and of the right chunk's index.
        `rows`: only what `weights` counts for the first side's places start ...
        stop-1, multiples of the layout's `grain` or its end.
        """

    def visit(self, q: dict[str, Any], d: dict[str, Any], layout: Any, visitor: Visitor, *,
              same: bool, rows: tuple[int, int] | None = None) -> None:  # fmt: skip
        """Show all pairs of two indexes, or of one with itself, to `visitor`, some at a time.

        It gets positions (int32) in the first and in the second, and totals (float64);
        arrays that it must not keep.  `rows`: as of `pairs`.
        """

    def connect(self, q: dict[str, Any], d: dict[str, Any], layout: Any, parent: Any,
                taking: tuple[Any, Any], offset: int, *, same: bool) -> None:  # fmt: skip
        """Join the sets of all pairs of two indexes (or of one) of which both rows take part.

        `parent`: of each node (int32 or int64), in a disjoint-set forest in which roots are their sets'
        smallest nodes; a row's node is its position, on the second side plus `offset`.  `taking`: which
        rows of both sides take part (bool), by position.
        """

    def link(self, parent: Any, left: Any, right: Any) -> None:
        """The same for edges between nodes."""

    def roots(self, parent: Any) -> None:
        """Make every node's parent the root of its set."""

    def lowest(self, q: dict[str, Any], d: dict[str, Any], layout: Any, labels: tuple[Any, Any],
               low: tuple[Any, Any], *, same: bool) -> None:  # fmt: skip
        """Lower what rows without a label (-1) have in `low` to the labels of their neighbours.

        All by position, int64, of both sides; of one index with itself twice the same.
        """

    def counts(self, q: dict[str, Any], d: dict[str, Any], layout: Any, *, same: bool) -> Any:
        """Numbers of neighbours (int64) of the rows of both chunks, by position."""

    def weights(self, q: dict[str, Any], d: dict[str, Any], layout: Any, *, same: bool) -> Any:
        """Numbers of pairs (int64) that the places of the first side give in `pairs`, in their order."""

    def regions(self, x: Any, regions: Regions, reach: float, threshold: float,
                norm: Norm = 2, *, everywhere: bool = False) -> tuple[Any, Any, Any]:  # fmt: skip
        """The region of each point (n,), and pairs of points and other regions that need them.

        Those are regions of lower numbers than the point's; `everywhere`: all that are within reach of it,
        its own included.
        """

    def result(self, columns: dict[str, Any], rows: int) -> Any:
        """A data frame of the library that the backend serves; it has rows even without columns."""

    def values(self, frame: Any, name: Any, places: Any) -> Any:
        """The values of a column at some places, as `result` takes them."""

    def plain(self, frame: Any, name: Any) -> Any:
        """A column as an array (n,) that `pairs` can keep, or None if it is no such."""

    def stacked(self, frames: list[Any]) -> Any:
        """Frames of the same columns one after the other, numbered anew."""

    def optional(self, dtype: Any) -> Any:
        """The dtype of values like those, some of which may be missing."""

    def missing(self, dtype: Any, rows: int) -> Any:
        """So many missing values of an optional dtype, as `result` takes them."""

    def series(self, values: Any, index: Any, name: str) -> Any:
        """A series of that library."""

    def rows(self, values: Any, index: Any, example: Any) -> Any:
        """A Series of values (n,), or a data frame of values (n, k), like an example.

        All are int64; what is of other types, of 8 bytes too, is given as its bits.
        """

    def index(self, values: Any) -> Any:
        """An index of that library."""

    def memory(self) -> int | None:
        """Bytes of memory that only this kind of arrays has, where no cluster tells; None: no such."""


def columns_like(values: Any, example: Any, xp: Any) -> dict[Any, Any]:
    """The columns of a data frame like an example, of numbers (n, k) int64 that are their bits."""
    kinds = zip(example.columns, example.dtypes, strict=True)
    return {name: xp.ascontiguousarray(values[:, k]).view(kind) for k, (name, kind) in enumerate(kinds)}


class Searcher(Protocol):
    """Searches chunks for the nearest neighbours of others' rows."""

    def layout(self, lower: Any, upper: Any, mean: Any, variance: Any, sample: Any,
               norm: Norm = 2) -> Any:  # fmt: skip
        """How to index chunks, from moments (d,) of all points and some of them; for `Backend.build`."""

    def renamed(self, index: dict[str, Any], names: Any) -> dict[str, Any]:
        """The index, its rows named by numbers (n,) int64, or by their places and a number more."""

    def fresh(self, rows: int, k: int) -> tuple[Any, Any]:
        """What is known of rows that met nothing: totals of the norm and names, (rows, k)."""

    def nearest(self, q: dict[str, Any], d: dict[str, Any], layout: Any, best_d2: Any, best_name: Any, *,
                same: bool, bound2: float = ...) -> None:  # fmt: skip
        """Improve what is known of the rows of `q` by those of `d`; see the CPU's."""


HOME = "pandas"
"""The library of the host's backend."""

_MODULES = {HOME: "dask_simjoin.engine.cpu.backend", "cudf": "dask_simjoin.engine.gpu.backend"}


_SEARCHERS = {HOME: "dask_simjoin.engine.cpu.nearest", "cudf": "dask_simjoin.engine.gpu.nearest"}


def library(frame: Any) -> str:
    """The data frame library that a frame's class is of, or derived from."""
    names = [base.__module__.partition(".")[0] for base in type(frame).__mro__]
    return next((name for name in names if name in _MODULES), names[0])


def backend_for(frame: Any) -> Backend:
    """The backend of a frame (or of a partition, or of an empty example)."""
    return backend_named(library(frame))


def backend_named(name: str) -> Backend:
    """The backend of a data frame library."""
    if name not in _MODULES:
        raise UnsupportedFrameError(
            f"Frames of {name!r} cannot be joined; those of pandas and cuDF can: use "
            "ddf.to_backend('pandas')."
        )
    backend: Backend = importlib.import_module(_MODULES[name]).BACKEND
    return backend


def searcher_named(name: str) -> Searcher:
    """What searches chunks of a data frame library for nearest neighbours."""
    if name not in _SEARCHERS:
        raise UnsupportedFrameError(
            f"Nearest neighbours in frames of {name!r} cannot be found yet; use ddf.to_backend('pandas')."
        )
    searcher: Searcher = importlib.import_module(_SEARCHERS[name]).SEARCHER
    return searcher


def searcher_for(frame: Any) -> Searcher:
    """The same for a frame."""
    return searcher_named(library(frame))


def host() -> Backend:
    """The backend of NumPy arrays: for what is small and lies on the client."""
    return backend_named(HOME)


def host_kernels(name: str) -> Any:
    """A module of the host's kernels: for what is done there, wherever chunks lie."""
    return importlib.import_module(f"dask_simjoin.engine.cpu.kernels.{name}")
