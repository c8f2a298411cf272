"""One frame in several layouts on the GPU; needs cuDF."""

import cudf
import dask_cudf
import pandas as pd
from dask.base import is_dask_collection


def lay(frame, how):
    """Return a pandas or cuDF frame as a cuDF frame: plain, or in 1 or 4 partitions."""
    there = cudf.from_pandas(frame) if isinstance(frame, pd.DataFrame) else frame
    return (
        there
        if how == "cudf"
        else dask_cudf.from_cudf(there, npartitions=int(how[-1]), sort=False)
    )


def computed(result):
    """Return a result on the host, after checking that it came from the GPU."""
    if is_dask_collection(result):
        result = result.compute(scheduler="sync")
    if isinstance(result, int):
        return result
    assert isinstance(result, cudf.DataFrame | cudf.Series)
    return result.to_pandas()
