"""Tests of dask_simjoin."""
