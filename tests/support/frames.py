"""One frame in several layouts."""

import itertools
import re

import dask
import dask.dataframe as dd
from dask.base import is_dask_collection


def lay(frame, how):
    """Return the frame itself, or a Dask DataFrame of 1 or 3 partitions, with rows in
    the same order.
    """
    if how == "pandas":
        return frame
    n = int(how[-1])
    size = -(-len(frame) // n)
    parts = [frame.iloc[i * size : (i + 1) * size] for i in range(n)]
    # Dask gives some frames of different dtypes the same token, so the name must differ
    label = re.sub(r"\W+", "-", f"part {frame.index.dtype} {frame.dtypes.tolist()}")
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(itself, parts, meta=frame.iloc[:0], label=label)


def split(frame, cuts):
    """Return a Dask DataFrame of the frame's rows, cut at some of them."""
    bounds = [0, *sorted(cuts), len(frame)]
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(bounds)]
    label = re.sub(
        r"\W+", "-", f"part {bounds} {frame.index.dtype} {frame.dtypes.tolist()}"
    )
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(itself, parts, meta=frame.iloc[:0], label=label)


def itself(part):
    """Return a partition unchanged, for `from_map`."""
    return part


def planned(frame, eps):
    """Plan a count of a frame's pairs; return its spec, its layout, and the planned
    rows and box.
    """
    with dask.config.set(scheduler="sync"):
        expr = split(frame, ()).simjoin.count_pairs(eps).expr
        return expr.operand("spec"), expr.plan.layout, expr.plan.tables.sources[0][0]


def computed(result):
    """Return the result, and compute it if it is lazy."""
    return result.compute() if is_dask_collection(result) else result
