"""What one pass over a partition tells: rows, box, variance, bad values, ids."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.arrays import module_of, to_host
from dask_simjoin.backends.base import backend_for
from dask_simjoin.ids import IdSummary, id_bytes, row_ids, summarise_ids, value_bytes
from dask_simjoin.sample import Sample, draw
from dask_simjoin.spec import JoinSpec

EXACT_INTEGER = 2**53
"""Largest integer up to which every integer is a float64 number."""


@dataclass(frozen=True)
class Moments:
    """Number, box, means and sums of squared deviations of points; arrays (d,), float64."""

    rows: int
    lower: np.ndarray
    upper: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Mean squared deviation of each dimension (0 without points)."""
        return self.squares / max(self.rows, 1)


@dataclass(frozen=True)
class PartitionSummary:
    """See the module's text.

    Attributes
    ----------
    source_rows : int
        Rows of the partition, those that `dropna` leaves out included.
    moments : Moments
        Of the rows that take part.
    bad : dict
        Column -> numbers of its missing or NaN and of its infinite values.
    inexact : dict
        Column -> an integer in it that no float64 number equals.
    ids : IdSummary or None
        None where rows need no names.
    id_bytes : float
        Memory of one row's id.
    sample : Sample or None
        Some of the rows that take part; None if it was not asked for.
    kept_bytes : float
        Memory of one row's columns that the result keeps.
    largest_radius : float
        The largest of the rows' own distances.
    bad_radii : int
        How many of them are missing, negative or infinite.
    """

    source_rows: int
    moments: Moments
    bad: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    inexact: dict[Hashable, int] = field(default_factory=dict)
    ids: IdSummary | None = None
    id_bytes: float = 8.0
    sample: Sample | None = None
    kept_bytes: float = 0.0
    largest_radius: float = 0.0
    bad_radii: int = 0


def summarise(frame: Any, number: int, spec: JoinSpec, named: bool,
              partitions: int = 0) -> PartitionSummary:  # fmt: skip
    """Summary of one partition.

    `number`: the partition's; `named`: the result names rows, so their ids must be unique;
    `partitions`: how many there are in all (0: no sample is drawn).
    """
    x, kept = points(frame, spec)
    rows = len(frame)
    if kept is not None:
        frame, x = frame[spec.columns][kept], x[kept]
    names = row_ids(frame, spec.id, spec.id_dtype) if named else None
    ids = None if names is None else summarise_ids(names, spec.id)
    found, xp = moments(x), module_of(x)
    size = 8.0 if names is None else id_bytes(names)
    bad = {}
    for k, name in enumerate(spec.on):
        if found.rows and not (np.isfinite(found.lower[k]) and np.isfinite(found.upper[k])):
            bad[name] = (int(xp.isnan(x[:, k]).sum()), int(xp.isinf(x[:, k]).sum()))
    radius, limit = (0.0, 0), None
    if spec.radius is not None:
        r = backend_for(frame).coordinates(frame, (spec.radius,))[:, 0]
        wrong = ~(xp.isfinite(r) & (r >= 0))
        radius, limit = (float(r.max()) if len(r) else 0.0, int(wrong.sum())), spec.measure.threshold(r)
    sample = None
    if partitions and not bad:
        # the number too: of partitions that are alike, other rows must be drawn in each
        seed = (int(box_digest(found.lower, found.upper)[:12], 16), number)
        sample = draw(x, None if kept is None else to_host(kept), partitions, seed, limit)
    kept_bytes = sum(value_bytes(frame[name]) for name in spec.keep)
    return PartitionSummary(rows, found, bad, _inexact(frame, spec), ids, size, sample, kept_bytes, *radius)


def points(frame: Any, spec: JoinSpec) -> tuple[Any, Any]:
    """Coordinates (n, d) of a partition, and which rows `dropna` keeps (None: all)."""
    backend = backend_for(frame)
    x = backend.coordinates(frame, spec.on)
    if not spec.dropna:
        return x, None
    kept = backend.xp.isfinite(x).all(axis=1)
    return x, None if bool(kept.all()) else kept


def bounds(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest coordinates (d,) of the points `x` (n, d); NaN where one is."""
    if not len(x):
        nowhere = np.full(x.shape[1], np.inf)
        return nowhere, -nowhere
    if module_of(x) is not np:
        return to_host(x.min(axis=0)), to_host(x.max(axis=0))
    # column by column NumPy is faster
    return np.array([c.min() for c in _columns(x)]), np.array([c.max() for c in _columns(x)])


def _columns(x: Any) -> list[Any]:
    return [x[:, k] for k in range(x.shape[1])]


def box_digest(lower: np.ndarray, upper: np.ndarray) -> str:
    """A box in a few characters: equal for equal boxes only, as good as certainly."""
    return hashlib.blake2b(lower.tobytes() + upper.tobytes(), digest_size=12).hexdigest()


def moments(x: Any) -> Moments:
    """Moments of the points `x` (n, d); a NaN shows in its column's bounds."""
    n, d = x.shape
    lower, upper = bounds(x)
    if n == 0:
        return Moments(0, lower, upper, np.zeros(d), np.zeros(d))
    on_host = module_of(x) is np
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.array([c.mean() for c in _columns(x)]) if on_host else to_host(x.mean(axis=0))
        for k in np.flatnonzero(~np.isfinite(mean)):  # a sum of finite numbers may overflow
            mean[k] = float((x[:, k] * 0.5**10).mean()) * 2.0**10
        if on_host:
            squares = np.array([_squares(c - m) for c, m in zip(_columns(x), mean, strict=True)])
        else:
            squares = to_host(((x - module_of(x).asarray(mean)) ** 2).sum(axis=0))
    return Moments(n, lower, upper, mean, squares)


def _squares(away: np.ndarray) -> float:
    # no np.dot: BLAS would start threads, for more than it is worth
    return float(np.einsum("i,i->", away, away))


def merge_moments(parts: list[Moments]) -> Moments:
    """Moments of all points together (Chan, Golub & LeVeque 1979, pairwise update)."""
    total = parts[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts[1:]:
            if part.rows == 0:
                continue
            if total.rows == 0:
                total = part
                continue
            rows = total.rows + part.rows
            delta = part.mean - total.mean
            total = Moments(
                rows,
                np.minimum(total.lower, part.lower),
                np.maximum(total.upper, part.upper),
                total.mean + delta * (part.rows / rows),
                total.squares + part.squares + delta**2 * (total.rows * part.rows / rows),
            )
    return total


def _inexact(frame: Any, spec: JoinSpec) -> dict[Hashable, int]:
    found = {}
    for name in spec.on:
        column = frame[name]
        if getattr(column.dtype, "kind", "") in "iu" and len(column):
            for value in (column.max(), column.min()):
                if not pd.isna(value) and abs(int(value)) > EXACT_INTEGER:
                    found[name] = int(value)
    return found
