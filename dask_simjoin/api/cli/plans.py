"""Show plans before they run, and ask where they are large."""

from __future__ import annotations

import sys
from typing import Any

import click
from dask.utils import format_bytes, format_time

LARGE_BYTES, LARGE_SECONDS = 4 * 2**30, 300.0
"""What a result may need of memory, and a join of time, before somebody is asked."""


class Declined(click.ClickException):
    """Say that a large plan was not agreed to."""

    exit_code = 5


def agree(plan: Any, yes: bool, pairs: bool) -> None:
    """Ask about a plan that is large; without anybody to ask it is declined.

    `pairs`: whether the pairs are the result, and do not only tell something of rows.
    """
    size, seconds = plan.result_bytes if pairs else 0, getattr(plan, "seconds", 0.0)
    seconds += getattr(plan, "writing_seconds", 0.0)
    if yes or (size <= LARGE_BYTES and seconds <= LARGE_SECONDS):
        return
    large = f"This takes about {format_time(seconds)}{f' and makes about {format_bytes(size)}' * pairs}"
    if not sys.stdin.isatty():
        raise Declined(f"{large}: add --yes to compute it, or ask for less.")
    if not click.confirm(f"{large}. Go on?", err=True):
        raise Declined("Nothing was computed.")
