"""Check that an input is a data frame, and import optional libraries."""

from __future__ import annotations

import importlib
from typing import Any

from dask.base import is_dask_collection

from dask_simjoin.catalog.frames import check_library, library
from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.messages import instead_of_frame


def is_frame(frame: object) -> bool:
    """Return whether it is a data frame of any library."""
    meta = getattr(frame, "_meta", frame) if is_dask_collection(frame) else frame
    return getattr(meta, "ndim", 0) == 2 and hasattr(meta, "columns")


def example_of(frame: Frame) -> Frame:
    """Return the empty example of a frame; refuse other objects."""
    meta = frame._meta if is_dask_collection(frame) and hasattr(frame, "_meta") else frame
    if not is_frame(frame):
        raise UnsupportedFrameError(
            f"{_kind(frame)} is not a data frame; use a Dask "
            "DataFrame or a pandas DataFrame, or cuDF's. Functions of the package also take an array of "
            "shape (rows, columns), or a table that Arrow can stream (__arrow_c_stream__)."
            f"{instead_of_frame(frame)}"
        )
    check_library(library(meta))
    return meta.iloc[:0]


def _kind(value: object) -> str:
    """Return the type of a value, with its module unless it is a builtin."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


Axes = Any
"""Matplotlib's axes, which may not be installed."""


def optional(module: str, package: str, wanted: str) -> Any:
    """Import an optional module; if it is missing, say how to install it.

    Examples
    --------
    >>> optional("no_such_module", "no-such-package", "Colours")
    Traceback (most recent call last):
    ModuleNotFoundError: Colours need no-such-package, which is not installed: pip install no-such-package
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{wanted} need {package}, which is not installed: pip install {package}", name=error.name
        ) from error


def load(module: str) -> Any:
    """Import a module of this package by its name."""
    return importlib.import_module(module)


def new_axes(ax: Axes = None) -> Axes:
    """Return the given Matplotlib axes, or the axes of a new figure."""
    return ax or optional("matplotlib.pyplot", "matplotlib", "Plots").subplots()[1]
