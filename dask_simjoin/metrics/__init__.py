"""What a distance is, and when two rows are a pair."""

from dask_simjoin.metrics.distances import METRICS, Metric, make_metric

__all__ = ["METRICS", "Metric", "make_metric"]
