"""Make two tables alike: both lazy or both plain, of one library."""

from __future__ import annotations

import numbers

import dask.dataframe as dd
from dask.base import is_dask_collection

from dask_simjoin.engine.base import HOME, library
from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.frames import example_of, is_frame
from dask_simjoin.options.messages import shown
from dask_simjoin.options.optional import optional
from dask_simjoin.options.remedies import instead_of_frame
from dask_simjoin.options.settings import texts_as_given


def check_other(call: str, other: object, **second: object) -> None:
    """Refuse a right table that is none; `second`: the argument that comes after it."""
    if is_frame(other):
        return
    swapped = [
        f" {name}= is one: the table comes first." for name, value in second.items() if is_frame(value)
    ]
    if not swapped and "k" in second and isinstance(other, numbers.Integral):
        swapped = [f" Of this frame itself: knn_join(k={shown(other)})."]
    raise UnsupportedFrameError(
        f"other={shown(other)} is not a data frame.{''.join(swapped) or _remedy(other)} Use {call}, where "
        "other= is a Dask, pandas or cuDF DataFrame."
    )


def _remedy(other: object) -> str:
    return "" if isinstance(other, numbers.Number) else instead_of_frame(other)


def same_library(left: Frame, right: Frame) -> tuple[Frame, Frame, Frame, Frame]:
    """Two tables, both Dask's if one is, and their empty examples; refuses those of two libraries."""
    examples = example_of(left), example_of(right)
    names = [library(example) for example in examples]
    if names[0] != names[1]:
        raise UnsupportedFrameError(
            f"The left table is one of {names[0]} and the right one of {names[1]}; both must be of one "
            f"library: use .to_backend({names[0]!r}) of a Dask DataFrame, or convert the right one."
        )
    if is_dask_collection(left) or is_dask_collection(right):
        left, right = (side if is_dask_collection(side) else lazy(side, names[0]) for side in (left, right))
    return left, right, *examples


def one_or_two(frame: Frame, other: Frame | None) -> tuple[Frame, Frame | None, Frame, Frame | None]:
    """The tables as `same_library` gives them, or one and its empty example if there is no other."""
    return (frame, None, example_of(frame), None) if other is None else same_library(frame, other)


def lazy(frame: Frame, name: str) -> Frame:
    """A plain frame as a Dask DataFrame of one partition."""
    if name == HOME:
        with texts_as_given():  # and lists, and what objects else there are
            return dd.from_pandas(frame, npartitions=1, sort=False)
    dask_cudf = optional("dask_cudf", "dask-cudf", "Joins of Dask DataFrames with cuDF's")
    return dask_cudf.from_cudf(frame, npartitions=1, sort=False)
