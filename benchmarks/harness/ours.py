"""Calls of this package on an array, a pandas DataFrame and a Dask DataFrame."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin
from benchmarks.harness.points import Row
from benchmarks.harness.timing import Join, Tool
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.planning.sample import moments

VERSION = dask_simjoin.__version__


def engine(x: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (int32) of the pairs of the points `x` (n, d), as peers do."""
    found = moments(x)
    layout = JOINER.layout(
        "auto", found.lower, found.upper, found.mean, found.variance, eps * eps
    )
    index = JOINER.build(x, layout)
    pairs = JOINER.pairs(index, index, layout, is_self_join=True)
    return pairs.left, pairs.right


def join_pandas(frame: pd.DataFrame, eps: float) -> pd.DataFrame:
    """Return ids (int64) of the pairs of a pandas DataFrame."""
    return frame.simjoin.self_join(eps)


def join_dask(frame: pd.DataFrame, eps: float) -> pd.DataFrame:
    """Return the same through a Dask DataFrame of one partition, which is made and
    planned here.
    """
    return (
        dd.from_pandas(frame, npartitions=1)
        .simjoin.self_join(eps)
        .compute(scheduler="sync")
    )


def _frame(x: np.ndarray, run: int) -> pd.DataFrame:
    """Return the points as a frame; labels begin at `run`, so that no plan of an
    earlier run is reused.
    """
    columns = {f"x{k}": x[:, k].copy() for k in range(x.shape[1])}
    return pd.DataFrame(columns, index=pd.RangeIndex(run, run + len(x)))


def _only(join: Join) -> Any:
    def variants(row: Row) -> dict[str, Join]:
        return {"": join}

    return variants


def _tool(name: str, join: Join, **how: Any) -> Tool:
    return Tool(
        name, _only(join), module="dask_simjoin", distribution="dask_simjoin", **how
    )


OURS = {
    "engine": _tool("engine", engine, count=lambda found: len(found[0])),
    "pandas": _tool("pandas", join_pandas, count=len, prepare=_frame),
    "dask": _tool("dask", join_dask, count=len, prepare=_frame),
}
