"""Read what Dask's configuration says, and whether a cluster is in use."""

from __future__ import annotations

import contextlib
import numbers
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import dask
import numpy as np
import yaml
from dask.base import get_scheduler
from dask.utils import parse_bytes
from distributed import Client

from dask_simjoin.errors import OptionError
from dask_simjoin.options.messages import shown

_setting = threading.RLock()

MAX_BYTES = 2**62
"""Up to which sizes are told apart."""


SHUFFLES = ("tasks", "disk", "p2p")
"""Dask's ways to shuffle rows."""


GIVEN = yaml.safe_load((resources.files("dask_simjoin") / "options/simjoin.yaml").read_text())
DEFAULTS: dict[str, Any] = GIVEN["simjoin"]
"""Give what is used where Dask's configuration under "simjoin" says nothing."""

dask.config.update_defaults(GIVEN)


@dataclass(frozen=True)
class Settings:
    """Dask's configuration when a join is built, as far as its plan depends on it.

    Attributes
    ----------
    blocksize, output, result : int or None
        Bytes that were set; see `Budget`.
    shuffle : str or None
        How rows are shuffled, where it is set.
    cluster : bool
        Whether there is a client of a cluster.
    """

    blocksize: int | None
    output: int | None
    result: int | None
    shuffle: str | None
    cluster: bool


def current_settings(cluster: bool = False) -> Settings:
    """What is configured now; refuses what is not allowed."""
    sizes = {}
    for name, default in DEFAULTS.items():
        value = dask.config.get(f"simjoin.{name}", default)
        sizes[name] = None if value is None else parse_size(f"The configuration's simjoin.{name}", value)
    shuffle = dask.config.get("dataframe.shuffle.method", None)
    if shuffle not in (None, *SHUFFLES):
        raise OptionError(
            f"The configuration's dataframe.shuffle.method={shown(shuffle)} is not allowed; use one of "
            f"{', '.join(map(repr, SHUFFLES))}, or leave it out."
        )
    return Settings(sizes["blocksize"], sizes["output-size"], sizes["result-limit"], shuffle, cluster)


def parse_size(name: str, value: Any) -> int:
    """A number of bytes, or text such as "64 MiB", as an int; refuses what is neither."""
    # NumPy counts timedelta64 among its integers
    number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.timedelta64))
    try:
        size = int(parse_bytes(value)) if isinstance(value, str) else int(value) if number else 0
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise OptionError(
            f"{name}={shown(value)} is not allowed; use a number of bytes of at least 1, or text such as "
            "'64 MiB'."
        )
    return min(size, MAX_BYTES)


def current_client() -> Client | None:
    """The client of the cluster that Dask would compute on now."""
    client = getattr(get_scheduler(), "__self__", None)
    return client if isinstance(client, Client) else None


def on_cluster() -> bool:
    """Whether Dask would compute on a distributed cluster now."""
    return current_client() is not None


@contextlib.contextmanager
def texts_as_given() -> Iterator[None]:
    """Make frames whose texts and objects Dask leaves as they are.

    Its configuration is all threads', and each puts back what it found: of two at a time one would put back
    what the other had set, for good.
    """
    with _setting, dask.config.set({"dataframe.convert-string": False}):
        yield
