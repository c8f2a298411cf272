"""The drivers of all verbs that compare rows by distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_simjoin.calls.drivers import Drivers
from dask_simjoin.cluster.local import LocalDistances, extracted
from dask_simjoin.metrics.norms import Series


def _lazy() -> type[Any]:
    from dask_simjoin.cluster.lazy import LazyDistances

    return LazyDistances


def _lazy_extraction() -> Callable[..., Series]:
    from dask_simjoin.cluster.lazy import extracted

    return extracted


DISTANCES = Drivers(LocalDistances, _lazy)

EXTRACTION = Drivers(extracted, _lazy_extraction)
"""Extract labels from a result of OPTICS: see `Extraction`."""
