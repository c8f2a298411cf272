"""Fingerprints of rows: whether two runs of a partition gave the same rows, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import all_of, module_of
from dask_simjoin.errors import SourceChangedError
from dask_simjoin.metrics.types import Array, Frame, Series
from dask_simjoin.options.spec import JoinSpec, RowSpec
from dask_simjoin.planning.statistics.partition import points

PREDECESSOR = "predecessor"
"""The column of a result that holds numbers of rows."""

Groups = tuple[tuple[Hashable, ...], ...] | Callable[[Frame], Array]
"""Columns of numbers that are read together (one of lists is alone), or what hashes rows (rows,), uint64."""

STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The numbers of splitmix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators")."""

REMEDY = "persist() the frame, or write it to parquet, before you ask for values of its rows."
"""What helps where rows came out otherwise, in messages."""


def fingerprints(frame: Frame, groups: Groups, spec: RowSpec | None) -> Array:
    """Hash the rows of a partition that have values.

    Parameters
    ----------
    frame : DataFrame
    groups : tuple of tuple, or callable
        The columns that values depend on, or what hashes rows by them.
    spec : RowSpec or None
        Whose `dropna` tells which rows have values; None: all.

    Returns
    -------
    array (rows,), uint64
    """
    return _kept_fingerprints(frame, groups, kept_rows(frame, spec))


def kept_rows(frame: Frame, spec: RowSpec | None) -> Array | None:
    """Tell which rows have values (n,), bool; None: all."""
    return points(frame, spec)[1] if isinstance(spec, JoinSpec) and spec.dropna else None


def _kept_fingerprints(frame: Frame, groups: Groups, kept: Array | None) -> Array:
    found = groups(frame) if callable(groups) else hash_columns(frame, groups)
    return found if kept is None else found[kept]


def hash_columns(frame: Frame, groups: tuple[tuple[Hashable, ...], ...]) -> Array:
    """Hash rows by columns of numbers (rows,), uint64."""
    frames = frames_for(frame)
    found = frames.xp.zeros(len(frame), np.uint64)
    for columns in groups:
        x = frames.coordinates(frame, columns)
        for k in range(x.shape[1]):
            found = _mixed(found, x[:, k])
    return found


def _mixed(state: Array, numbers: Array) -> Array:
    """Hash what was hashed before with numbers (n,): equal where those are."""
    xp = module_of(numbers)
    numbers = xp.where(xp.isnan(numbers), np.nan, numbers + 0.0)  # makes 0.0 of -0.0
    return mixed_bits(state, xp.ascontiguousarray(numbers).view(np.uint64))


def mixed_bits(state: Array, bits: Array) -> Array:
    """Hash what was hashed before with numbers (n,), uint64."""
    state = (state ^ bits) + np.uint64(STEP)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(SECOND)
    return state ^ (state >> np.uint64(31))


def places_of(now: Array, then: Array) -> Array | None:
    """Find for each row of a partition the place that the row had in another run; None: all have kept theirs.

    Rows of equal fingerprints keep their order.

    Parameters
    ----------
    now, then : array (rows,), uint64
        Fingerprints in both runs.

    Raises
    ------
    SourceChangedError
        They are not those of the same rows.
    """
    xp = module_of(now)
    if len(now) == len(then):
        if all_of(now == then):
            return None
        new, old = xp.argsort(now, kind="stable"), xp.argsort(then, kind="stable")
        if all_of(now[new] == then[old]):
            places = xp.empty(len(now), np.int64)
            places[new] = old
            return places
    raise _other_rows(len(now), len(then))


def _other_rows(now: int, then: int) -> SourceChangedError:
    return SourceChangedError(
        f"A partition of {now} rows holds others than the {then} that its values were found for: "
        "Dask ran what the frame is made of twice, as it may where that shuffles rows, and got other rows "
        f"the second time. {REMEDY}"
    )


def values_beside(frame: Frame, values: Frame | Series, then: Array, groups: Groups,
                  spec: RowSpec | None) -> Frame | Series:  # fmt: skip
    """Put values of the rows of a partition in the order, and with the labels, that the rows have there.

    `then`: fingerprints of the rows in the order of the values.
    """
    kept = kept_rows(frame, spec)
    places = places_of(_kept_fingerprints(frame, groups, kept), then)
    if places is not None and PREDECESSOR in getattr(values, "columns", ()):
        raise SourceChangedError(
            f"The column {PREDECESSOR!r} tells numbers of rows of all partitions; Dask ran what the frame "
            "is made of twice and got its rows in another order. Take the other columns of the result "
            f"without this one, or {REMEDY}"
        )
    return _labelled(values.copy(deep=False) if places is None else values.take(places), frame, kept)


def relabelled(frame: Frame, values: Frame | Series, spec: RowSpec | None) -> Frame | Series:
    """Give values of the rows of a partition, in their order, the labels that the rows have there."""
    return _labelled(values.copy(deep=False), frame, kept_rows(frame, spec))


def _labelled(values: Frame | Series, frame: Frame, kept: Array | None) -> Frame | Series:
    labels = frame.index if kept is None else frame.index[kept]
    if len(labels) != len(values):
        raise _other_rows(len(labels), len(values))
    values.index = labels
    return values
