"""Check single options of verbs."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.distances import METRICS, Metric, make_metric
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.options.messages import METRICS as SYNONYMS
from dask_simjoin.options.messages import NO_CHOICES, NO_METRICS, did_you_mean, elsewhere, shown
from dask_simjoin.options.remedies import instead_of_distance

MAX_P = 2**31 - 1
"""Largest finite p."""

MAX_WHOLE = 2**62
"""Up to which whole numbers are told apart: kernels have 64 bits."""


def is_number(value: object) -> bool:
    """Whether it is a real number, and no truth value."""
    # NumPy counts timedelta64 among its integers
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_, np.timedelta64))


def as_number(value: Any) -> float:
    """A real number as a float, inf of the sign where it has none; NaN: it is no number."""
    if not is_number(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_eps(eps: Any, name: str) -> float:
    """A distance as a float; refuses what is none."""
    if not is_number(eps):
        raise OptionTypeError(
            f"{name}={shown(eps)} is not a number; use a finite number >= 0{instead_of_distance(name, eps)}."
        )
    value = as_number(eps)
    if not math.isfinite(value) or eps < 0:  # a tiny negative Fraction would be -0.0
        raise OptionError(f"{name}={shown(eps)} is not allowed; use a finite number >= 0.")
    return value


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse what is none of the allowed values."""
    if not isinstance(value, str) or value not in allowed:
        if len(allowed) == 1:
            choices = f"use {allowed[0]!r}, the only one so far"
        else:
            names = ", ".join(repr(choice) for choice in allowed)
            told = NO_CHOICES.get(name, {}).get(value.lower()) if isinstance(value, str) else None
            choices = f"use one of {names}{f' ({told})' if told else did_you_mean(value, allowed)}"
        raise OptionError(f"{name}={shown(value)} is not allowed; {choices}.")


def check_metric(name: Any, p: object) -> tuple[Metric, Norm]:
    """The metric of that name, and `p` as a plain number."""
    if callable(name):
        raise OptionError(
            f"metric={shown(name)} is a function, and pairs are decided alike everywhere only for known "
            f"formulas; use one of {', '.join(map(repr, METRICS))}."
        )
    if isinstance(name, str) and name not in METRICS:
        raise OptionError(
            f"metric={shown(name)} is not allowed; use one of {', '.join(map(repr, METRICS))}"
            f"{_metric_meant(name)}."
        )
    check_choice("metric", name, tuple(METRICS))
    if not is_number(p):
        raise OptionTypeError(f"p={shown(p)} is not a number; use a whole number >= 1, or inf.")
    value = as_number(p)
    if (value != math.inf or p != math.inf) and not (1 <= value <= MAX_P and value == math.floor(value)):
        raise OptionError(
            f"p={shown(p)} is not allowed; use a whole number from 1 to {MAX_P:,}, or float('inf')."
        )
    if name != "minkowski" and p != 2:
        raise OptionError(
            f"p={shown(p)} is of metric='minkowski', and metric={name!r} takes none; use "
            "metric='minkowski', or leave out p."
        )
    norm = value if value == math.inf else int(value)
    return make_metric(name, norm), norm


def _metric_meant(name: str) -> str:
    told = NO_METRICS.get(name.lower())
    return f" ({told})" if told else elsewhere(name, SYNONYMS, METRICS)


def check_whole(name: str, value: Any, least: int) -> int:
    """A whole number as an int; one beyond `MAX_WHOLE`, which no frame has rows for, as that."""
    # NumPy counts timedelta64 among its integers
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))
    if not whole or value < least:
        raise OptionError(f"{name}={shown(value)} is not allowed; use a whole number >= {least}.")
    return min(int(value), MAX_WHOLE)
