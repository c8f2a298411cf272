"""A frame whose plans are reported."""

import dask.dataframe as dd
import numpy as np
import pytest

from tests.support.plans import KINDS
from tests.support.points import frame_of


@pytest.fixture(scope="module")
def frame():
    """Few enough rows for the sample to be all of them, where partitions are small."""
    return frame_of(np.random.default_rng(3).uniform(size=(900, 2)))


@pytest.fixture(scope="module")
def ddf(frame):
    return dd.from_pandas(frame, npartitions=5)


@pytest.fixture(params=KINDS)
def chosen(request):
    """Options that give many chunks of either kind, or one."""
    return KINDS[request.param]
