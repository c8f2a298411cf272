"""Tell what a frame is before anything is computed."""

from __future__ import annotations

from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.errors import ColumnError, UnsupportedFrameError
from dask_simjoin.metrics.types import Frame, Ids
from dask_simjoin.options.remedies import instead_of_frame
from dask_simjoin.options.spec import RowSpec


def is_frame(frame: object) -> bool:
    """Whether it is a data frame, of whatever library."""
    meta = getattr(frame, "_meta", frame) if is_dask_collection(frame) else frame
    return getattr(meta, "ndim", 0) == 2 and hasattr(meta, "columns")


def example_of(frame: Frame) -> Frame:
    """The empty example of a frame; refuses what is no frame."""
    meta = frame._meta if is_dask_collection(frame) and hasattr(frame, "_meta") else frame
    if not is_frame(frame):
        raise UnsupportedFrameError(
            f"{_kind(frame)} is not a data frame; use a Dask "
            "DataFrame or a pandas DataFrame, or cuDF's; or, in functions of the package, an array of shape "
            "(rows, columns), or a table that Arrow can stream (__arrow_c_stream__)."
            f"{instead_of_frame(frame)}"
        )
    frames_for(meta)
    return meta.iloc[:0]


def _kind(value: object) -> str:
    """The type of a value with its module, if it has one that needs to be imported."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def example_ids(meta: Frame, spec: RowSpec) -> Ids:
    """An empty index of the ids that name rows in a result; refuses labels that cannot."""
    ids = row_ids(meta[spec.columns], spec.id)[:0]
    if ids.nlevels > 1:
        raise ColumnError(
            "The index is a MultiIndex, whose labels cannot name rows in a result; use id= a column "
            "of unique values, or add one with frame.simjoin.with_row_id()."
        )
    return ids
