"""Check several distances that are given where one may be: rows or pairs are counted within each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.options.messages import shown
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.options.units import without_unit
from dask_simjoin.options.validate import check_eps, check_metric, is_number


def several_of(eps: Any, metric: str, p: object) -> tuple[float, ...] | None:
    """Return the distances of a list, an array or a Series in their order; None: it is none of these.

    `metric`, `p`: as they were given; some metrics have units, in which distances may be told.
    """
    if isinstance(eps, (set, frozenset, dict)):
        raise OptionTypeError(
            f"eps={shown(eps)} has no order, which the result's entries have; use a list, such as "
            f"eps={shown(sorted(value for value in eps if is_number(value)))}."
        )
    one = isinstance(eps, (str, bytes)) or not isinstance(eps, Iterable)
    if one or getattr(eps, "ndim", 1) == 0:
        return None
    if getattr(eps, "ndim", 1) > 1:
        raise OptionTypeError(f"eps={shown(eps)} has {eps.ndim} dimensions; use a list of numbers.")
    some = eps.tolist() if hasattr(eps, "tolist") else list(eps)
    if not some:
        raise OptionError("eps=[] names no distance; use a number, or a list of at least one.")
    kind, _ = check_metric(metric, p)
    names = [f"eps[{n}]" for n in range(len(some))]
    return tuple(
        check_eps(without_unit(value, kind, name), name) for value, name in zip(some, names, strict=True)
    )


def within_several(spec: JoinSpec, several: tuple[float, ...]) -> JoinSpec:
    """Ask for numbers within each of several distances."""

    def threshold(eps: float) -> tuple[float, float]:
        return float(spec.measure.threshold(eps)), eps

    # whatever a formula may round: all is found within the largest threshold
    return replace(spec, eps=max(several, key=threshold), several=several)


def check_once(several: tuple[float, ...]) -> None:
    """Refuse a distance that is named more than once, where columns are called by distances."""
    twice = [eps for n, eps in enumerate(several) if eps in several[:n]]
    if twice:
        raise OptionError(
            f"eps={shown(list(several))} names {twice[0]} more than once, and the result has a column for "
            "each distance; name each once."
        )
