"""Checks of the options of published methods."""

from __future__ import annotations

from typing import Any

from dask_simjoin.errors import OptionError


def is_word(value: object, *words: str) -> bool:
    """Return whether a value is one of some words; arrays compare by element, so they are not."""
    return isinstance(value, str) and value in words


def check_whole(owner: str, name: str, value: object, low: int, high: int, others: str = "") -> None:
    """Refuse values other than whole numbers from `low` to `high`; `others`: more allowed values, as text."""
    if type(value) is not int or not low <= value <= high:
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use {others}a whole number from {low} to {high:,}."
        )


def check_one_of(owner: str, name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuse other values, and values of another type."""
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use one of {', '.join(map(repr, allowed))}."
        )


def check_share(owner: str, name: str, value: object) -> None:
    """Refuse values other than floats above 0 and up to 1."""
    if not isinstance(value, float) or not 0 < value <= 1:
        raise OptionError(f"{owner}({name}={value!r}) is not allowed; use a float above 0 and up to 1.0.")


def check_batches(owner: str, options: Any) -> None:
    """Check the options for GPUs: precision of the filter, and batches of queries."""
    check_one_of(owner, "precision", options.precision, ("float32", "float64"))
    check_whole(owner, "buffer", options.buffer, 1, 1 << 40)
    check_whole(owner, "batches", options.batches, 1, 1 << 20)
    check_whole(owner, "streams", options.streams, 1, 64)
    check_share(owner, "sample", options.sample)
