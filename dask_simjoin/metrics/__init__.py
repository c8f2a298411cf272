"""Metrics: their distances, and the rule that decides which rows are pairs."""

from dask_simjoin.metrics.distances import METRICS, Metric, make_metric

__all__ = ["METRICS", "Metric", "make_metric"]
