"""Metrics: how distances are computed, and which rows are pairs."""

from dask_simjoin.metrics.distances import METRICS, Metric, make_metric

__all__ = ["METRICS", "Metric", "make_metric"]
