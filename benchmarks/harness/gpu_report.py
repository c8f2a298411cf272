"""Describe the machine of a benchmark on GPUs: hardware, versions, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from typing import Any

import cupy

from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import after_colon
from benchmarks.harness.source import commit, source_digest


def environment() -> dict[str, Any]:
    """Return hardware, versions and date."""
    names = (
        "cudf-cu13",
        "cuml-cu13",
        "dask-cuda",
        "dask-cudf-cu13",
        "cupy-cuda13x",
        "dask",
        "numpy",
        "pandas",
    )
    versions = {"dask_simjoin": VERSION}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    runtime = cupy.cuda.runtime
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": runtime.getDeviceProperties(0)["name"].decode(),
        "gpus": runtime.getDeviceCount(),
        "cpu": after_colon("/proc/cpuinfo", "model name"),
        "driver": runtime.driverGetVersion(),
        "cuda": runtime.runtimeGetVersion(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": commit(),
        "source": source_digest(),
    }
