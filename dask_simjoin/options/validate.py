"""Checks of single options of verbs."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.distances import METRICS, Metric, make_metric
from dask_simjoin.options.messages import METRICS as SYNONYMS
from dask_simjoin.options.messages import OPTIONS, did_you_mean, elsewhere, shown

MOST_P = 2**31 - 1
"""Largest finite p."""

MOST_WHOLE = 2**62
"""Up to which whole numbers are told apart: kernels have 64 bits."""

F = TypeVar("F", bound=Callable[..., Any])


def known_options(function: F) -> F:
    """Refuse unknown keywords with the list of the known ones."""
    signature = inspect.signature(function)
    known = [name for name in signature.parameters if name not in ("self", "frame")]
    kinds = signature.parameters.values()
    places = [one.name for one in kinds if one.kind is one.POSITIONAL_OR_KEYWORD]
    needed = [one.name for one in kinds if one.name in places and one.default is one.empty]
    own, called = int("self" in places), function.__name__

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        for name in options:
            if name not in signature.parameters:
                raise OptionTypeError(
                    f"{called}() has no option {name!r}{elsewhere(name, OPTIONS, known)}; "
                    f"its options are {', '.join(known) or 'none'}."
                )
        if len(args) > len(places):
            raise OptionTypeError(
                f"{called}({', '.join(places[own:])}) was given {shown(args[len(places)])} after those; its "
                f"options are named: {', '.join(f'{name}=' for name in known if name not in places)}."
            )
        missing = [name for name in needed[len(args) :] if name not in options]
        if missing:
            raise OptionTypeError(
                f"{' and '.join(f'{name}=' for name in missing)} {'is' if len(missing) == 1 else 'are'} "
                f"missing: use {called}({', '.join(needed[own:])}, ...)."
            )
        return function(*args, **options)

    return checked  # type: ignore[return-value]


def is_number(value: Any) -> bool:
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
    if not is_number(eps):
        raise OptionTypeError(f"{name}={shown(eps)} is not a number; use a finite number >= 0.")
    value = as_number(eps)
    if not math.isfinite(value) or eps < 0:  # a tiny negative Fraction would be -0.0
        raise OptionError(f"{name}={shown(eps)} is not allowed; use a finite number >= 0.")
    return value


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        if len(allowed) == 1:
            choices = f"use {allowed[0]!r}, the only one so far"
        else:
            names = ", ".join(repr(choice) for choice in allowed)
            choices = f"use one of {names}{did_you_mean(value, allowed)}"
        raise OptionError(f"{name}={shown(value)} is not allowed; {choices}.")


def check_metric(options: dict[str, Any]) -> Metric:
    """The metric of some options, in which `p` is made a plain number."""
    name, p = options.get("metric", "euclidean"), options.get("p", 2)
    if callable(name):
        raise OptionError(
            f"metric={shown(name)} is a function, and pairs are decided alike everywhere only for known "
            f"formulas; use one of {', '.join(map(repr, METRICS))}."
        )
    if isinstance(name, str) and name not in METRICS:
        raise OptionError(
            f"metric={shown(name)} is not allowed; use one of {', '.join(map(repr, METRICS))}"
            f"{elsewhere(name, SYNONYMS, METRICS)}."
        )
    check_choice("metric", name, tuple(METRICS))
    if not is_number(p):
        raise OptionTypeError(f"p={shown(p)} is not a number; use a whole number >= 1, or inf.")
    value = as_number(p)
    if (value != math.inf or p != math.inf) and not (1 <= value <= MOST_P and value == math.floor(value)):
        raise OptionError(
            f"p={shown(p)} is not allowed; use a whole number from 1 to {MOST_P:,}, or float('inf')."
        )
    if name != "minkowski" and p != 2:
        raise OptionError(
            f"p={shown(p)} is of metric='minkowski', and metric={name!r} takes none; use "
            "metric='minkowski', or leave out p."
        )
    options["p"] = value if value == math.inf else int(value)
    return make_metric(name, options["p"])


def check_whole(name: str, value: Any, least: int) -> int:
    """A whole number as an int; one beyond `MOST_WHOLE`, which no frame has rows for, as that."""
    # NumPy counts timedelta64 among its integers
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))
    if not whole or value < least:
        raise OptionError(f"{name}={shown(value)} is not allowed; use a whole number >= {least}.")
    return min(int(value), MOST_WHOLE)


def check_neighbors(k: Any, partitioning: Any) -> int:
    """A number of neighbours; refuses what is none, and the partitioning in which they are not sought."""
    number = check_whole("k", k, 1)
    if isinstance(partitioning, str) and partitioning == "replicated":
        raise OptionError("partitioning='replicated' is not allowed; use one of 'auto', 'entity', 'spatial'.")
    return number
