"""The memory of this machine, as distributed computes it.

It is computed here, since importing distributed takes long and plain frames do not need it.
"""

from __future__ import annotations

import resource
from pathlib import Path

import psutil

CGROUP_FILES = (
    "memory/memory.limit_in_bytes",
    "memory/memory.soft_limit_in_bytes",
    "memory.max",
    "memory.high",
    "memory.low",
)
"""Files of Linux control groups with a memory limit, in versions 1 and 2."""


def memory_limit(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of memory that this process may use, of all processes together."""
    limits = [psutil.virtual_memory().total]
    for name in CGROUP_FILES:
        try:
            limits.append(int((cgroups / name).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    limits.append(resource.getrlimit(resource.RLIMIT_RSS)[1])
    return min(limit for limit in limits if limit > 0)


MEMORY_LIMIT = memory_limit()
"""Bytes of memory of this machine or container."""
