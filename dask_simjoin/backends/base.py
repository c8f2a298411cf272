"""What a backend must offer, and the choice of one for a frame."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple, Protocol

from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.index.layout import Layout
from dask_simjoin.index.regions import Regions


class Pairs(NamedTuple):
    """Pairs of two chunks.

    Attributes
    ----------
    left, right : array (pairs,), int32 or int64
        The rows of the left and of the right chunk: positions, or labels.
    distance : array (pairs,), float64, or None
    decided, refused : int
        How many pairs only the float64 decision could tell, and how many of them it refused.
    """

    left: Any
    right: Any
    distance: Any
    decided: int
    refused: int


class Backend(Protocol):
    """Arrays of one kind and the kernels that work on them."""

    xp: Any
    """The array module."""

    def grain(self, layout: Layout) -> int:
        """Points at whose multiples an index can be cut."""

    def coordinates(self, frame: Any, columns: tuple[Any, ...]) -> Any:
        """The columns as an array (n, d) of float64, NaN where a value is missing."""

    def build(self, x: Any, layout: Layout) -> dict[str, Any]:
        """Index of a chunk: a plain dict of arrays, so that it can be spilled and sent."""

    def pairs(self, q: dict[str, Any], d: dict[str, Any], layout: Layout, *, same: bool,
              distance: bool = False, labels: tuple[Any, Any] | None = None) -> Pairs:  # fmt: skip
        """All pairs of two indexes, or of one with itself (`same`: each once, smaller first).

        `labels`: what to name the rows of both sides (n,) int64, in their index's order; None:
        their positions.
        """

    def counts(self, q: dict[str, Any], d: dict[str, Any], layout: Layout, *, same: bool) -> Any:
        """Numbers of neighbours (int64) of the rows of both chunks, by position."""

    def later(self, index: dict[str, Any], layout: Layout) -> Any:
        """For each place of an index, in its order, the number of neighbours (int64) at later places."""

    def part(self, index: dict[str, Any], layout: Layout, start: int, stop: int) -> dict[str, Any]:
        """The index of the points at places start ... stop-1 of an index: multiples of `grain`, or its end.

        Positions stay those of the whole index.
        """

    def regions(self, x: Any, regions: Regions, reach: float, threshold: float) -> tuple[Any, Any, Any]:
        """The region of each point (n,), and pairs of points and other regions that need them."""

    def result(self, columns: dict[str, Any], rows: int) -> Any:
        """A data frame of the library that the backend serves; it has rows even without columns."""

    def series(self, values: Any, index: Any, name: str) -> Any:
        """A series of that library."""


_MODULES = {"pandas": "dask_simjoin.backends.cpu"}


def library(frame: Any) -> str:
    """The data frame library that a frame's class is of, or derived from."""
    names = [base.__module__.partition(".")[0] for base in type(frame).__mro__]
    return next((name for name in names if name in _MODULES), names[0])


def backend_for(frame: Any) -> Backend:
    """The backend of a frame (or of a partition, or of an empty example)."""
    name = library(frame)
    if name not in _MODULES:
        raise UnsupportedFrameError(
            f"Frames of {name!r} cannot be joined yet; pandas-backed frames can: use "
            "ddf.to_backend('pandas')."
        )
    backend: Backend = importlib.import_module(_MODULES[name]).BACKEND
    return backend


def host() -> Backend:
    """The backend of NumPy arrays: for what is small and lies on the client."""
    return importlib.import_module(_MODULES["pandas"]).BACKEND
