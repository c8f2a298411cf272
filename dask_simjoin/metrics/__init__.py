"""Metrics: their distances, and which two rows are a pair."""

from dask_simjoin.metrics.distances import METRICS, Metric, make_metric

__all__ = ["METRICS", "Metric", "make_metric"]
