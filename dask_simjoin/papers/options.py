"""Checks of the options of the methods of papers."""

from __future__ import annotations

from typing import Any

from dask_simjoin.errors import OptionError


def is_word(value: object, *words: str) -> bool:
    """Tell whether a value is one of some words; an array, which compares by its elements, is none."""
    return isinstance(value, str) and value in words


def check_whole(owner: str, name: str, value: object, least: int, most: int, others: str = "") -> None:
    """Refuse what is no whole number from `least` to `most`; `others`: what else is allowed, in words."""
    if type(value) is not int or not least <= value <= most:
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use {others}a whole number from {least} to {most:,}."
        )


def check_one_of(owner: str, name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuse what is none of these values, or of another type."""
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use one of {', '.join(map(repr, allowed))}."
        )


def check_share(owner: str, name: str, value: object) -> None:
    """Refuse what is no float above 0 and up to 1."""
    if not isinstance(value, float) or not 0 < value <= 1:
        raise OptionError(f"{owner}({name}={value!r}) is not allowed; use a float above 0 and up to 1.0.")


def check_batches(owner: str, options: Any) -> None:
    """Refuse what methods cannot be told of GPUs: the filter's precision, and how queries are cut."""
    check_one_of(owner, "precision", options.precision, ("float32", "float64"))
    check_whole(owner, "buffer", options.buffer, 1, 1 << 40)
    check_whole(owner, "batches", options.batches, 1, 1 << 20)
    check_whole(owner, "streams", options.streams, 1, 64)
    check_share(owner, "sample", options.sample)
