"""Show the package's log lines."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def log_lines(verbose: bool) -> Iterator[None]:
    """Write log lines of this package to the standard error stream, if so much is to be told."""
    logger, handler = logging.getLogger("dask_simjoin"), logging.StreamHandler()
    if not verbose:
        yield
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
