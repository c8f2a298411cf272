"""Types of options name what there is."""

from typing import get_args, get_type_hints

import dask_simjoin
from dask_simjoin.catalog import CHOICES
from dask_simjoin.metrics import METRICS
from dask_simjoin.request.options import MethodName, MetricName


def test_names_are_those_that_there_are():
    assert get_args(MetricName) == tuple(METRICS)
    assert get_args(MethodName) == CHOICES
    for verb in (
        dask_simjoin.self_join,
        dask_simjoin.dbscan,
        dask_simjoin.near_duplicated,
    ):
        assert get_type_hints(verb)["metric"] == MetricName
