"""How many examples Hypothesis tries: a fifth of them by default, all with `pytest --all`."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

WHOLE = 100
"""Examples of a test that names no number, in the profile of which other numbers are."""

COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("quick", max_examples=WHOLE // 5, **COMMON)
settings.register_profile("full", max_examples=WHOLE, **COMMON)


def examples(number: int) -> int:
    """So many examples, or as few as the profile asks for, but at least ten.

    Parameters
    ----------
    number
        Examples in the profile ``full``.
    """
    return max(min(number, 10), number * settings().max_examples // WHOLE)


def chosen(every: list, few: list) -> list:
    """Every value in the profile ``full``, and few of them in others: of parameters that are compiled for."""
    assert set(few) <= set(every)
    return every if settings().max_examples >= WHOLE else few


def pairwise(where: Callable[..., bool] | None = None, /, **axes: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrize by all combinations of values; those that no pair of values needs are marked slow.

    Parameters
    ----------
    where
        Whether there is a combination, told its values by name; by default each is.
    **axes
        Values by the names of parameters, at least two of them.

    Returns
    -------
    pytest.MarkDecorator
        Decorates a test.
    """
    every = [
        one
        for one in itertools.product(*(range(len(values)) for values in axes.values()))
        if where is None or where(**{name: axes[name][k] for name, k in zip(axes, one, strict=True)})
    ]
    pairs = {one: set(itertools.combinations(enumerate(one), 2)) for one in every}
    missing, few = set().union(*pairs.values()), set()
    while missing:
        best = max(every, key=lambda one: len(pairs[one] & missing))
        few.add(best)
        missing -= pairs[best]
    chosen = [
        pytest.param(
            *(values[k] for values, k in zip(axes.values(), one, strict=True)),
            marks=() if one in few else pytest.mark.slow,
        )
        for one in every
    ]
    return pytest.mark.parametrize(tuple(axes), chosen)
