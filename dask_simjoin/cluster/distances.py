"""The drivers of all verbs that compare rows by distance."""

from __future__ import annotations

from typing import Any

from dask_simjoin.calls.drivers import Drivers
from dask_simjoin.cluster.local import LocalDistances


def _lazy() -> type[Any]:
    from dask_simjoin.cluster.lazy import LazyDistances

    return LazyDistances


DISTANCES = Drivers(LocalDistances, _lazy)
