"""Keep neighbors that are neighbors in both directions, within the memory of the search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dask_simjoin.engine.base import host_kernels
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.nearest import State


def mutual_state(q: Chunk, d: Chunk, search: Callable[[Chunk, Chunk], State]) -> State:
    """Search two chunks on the host, or one twice the same, and keep mutual neighbors.

    `search`: finds the neighbors of the first chunk's rows in the second, numbered from 0.  All other places
    of the state are -1, so that the ranks of mutual neighbors do not change.
    """
    back = None if q is d else _ascending(search(d, q))
    state = search(q, d)
    back = _ascending(state) if back is None else back
    host_kernels("mutual").drop_one_way(state["row_numbers"], back)
    return state


def _ascending(state: State) -> np.ndarray:
    """Return the numbers of each row's neighbors (n, k) in order; rows of a chunk fit int32."""
    numbers = state["row_numbers"].astype(np.int32)
    numbers.sort(axis=1)
    return numbers
