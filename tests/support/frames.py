"""One frame in several layouts."""

import itertools
import re

import dask
import dask.dataframe as dd
from dask.base import is_dask_collection


def lay(frame, how):
    """The frame itself, or a Dask DataFrame of 1 or 3 partitions, rows in the same order."""
    if how == "pandas":
        return frame
    n = int(how[-1])
    size = -(-len(frame) // n)
    parts = [frame.iloc[i * size : (i + 1) * size] for i in range(n)]
    # Dask's tokens do not tell all dtypes apart, so the label does
    label = re.sub(r"\W+", "-", f"part {frame.index.dtype} {frame.dtypes.tolist()}")
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(itself, parts, meta=frame.iloc[:0], label=label)


def split(frame, cuts):
    """A Dask DataFrame of the frame's rows, cut at some of them."""
    bounds = [0, *sorted(cuts), len(frame)]
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(bounds)]
    label = re.sub(r"\W+", "-", f"part {bounds} {frame.index.dtype} {frame.dtypes.tolist()}")
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(itself, parts, meta=frame.iloc[:0], label=label)


def itself(part):
    """A partition as it is: for `from_map`."""
    return part


def planned(frame, eps):
    """What was asked for by a count of a frame's pairs, its layout, and its rows and box as planned."""
    with dask.config.set(scheduler="sync"):
        expr = split(frame, ()).simjoin.count_pairs(eps).expr
        return expr.operand("spec"), expr.plan.layout, expr.plan.sources[0][0]


def computed(result):
    """The result, whether it is lazy or not."""
    return result.compute() if is_dask_collection(result) else result
