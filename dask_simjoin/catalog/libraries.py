"""Libraries of data frames that the package joins."""

from __future__ import annotations

from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.metrics.norms import Frame

HOME = "pandas"
"""The library whose frames and arrays are in host memory."""

MAX_DIMS: dict[str, int | None] = {HOME: None, "cudf": 2048}
"""Largest number of dimensions for each library; None: any number.

On GPUs the box of a query must fit into shared memory.
"""

LIBRARIES = tuple(MAX_DIMS)


def library(frame: Frame) -> str:
    """Return the data frame library of a frame's class, or of a class that it is derived from."""
    names = [base.__module__.partition(".")[0] for base in type(frame).__mro__]
    return next((name for name in names if name in LIBRARIES), names[0])


def check_library(name: str) -> None:
    """Refuse frames of a library that the package does not join."""
    if name not in LIBRARIES:
        raise UnsupportedFrameError(
            f"Frames of {name!r} cannot be joined, only frames of pandas and cuDF; use "
            "ddf.to_backend('pandas')."
        )
