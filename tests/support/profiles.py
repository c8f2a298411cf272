"""How many examples and combinations tests try: a few, the same each time, or all with
`pytest --all`.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

WHOLE = 100
"""Examples of a test without a number of its own; other numbers scale with the profile.
"""

QUICK = 4
"""The same by default, and the fewest of any test."""

COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
# derandomize: a tree always gives one answer; `--all` and tests/checks/random_cases.py
# find new cases
settings.register_profile("quick", max_examples=QUICK, derandomize=True, **COMMON)
settings.register_profile("full", max_examples=WHOLE, derandomize=False, **COMMON)


def examples(number: int) -> int:
    """Return the number of examples for the profile: a share of `number`, but at least
    `QUICK`.

    Parameters
    ----------
    number
        Examples in the profile ``full``.
    """
    return max(min(number, QUICK), number * settings().max_examples // WHOLE)


def everything() -> bool:
    """Return whether all cases are tried."""
    return settings().max_examples >= WHOLE


def chosen(every: list, few: list) -> list:
    """Choose values of parameters that are compiled for: all in the profile ``full``,
    few in others.
    """
    assert set(few) <= set(every)
    return every if everything() else few


def every_nth(step: int, values: Iterable[Any]) -> list[Any]:
    """Return all values of a parameter in the profile ``full``, else every `step`-th."""
    return [*values][:: 1 if everything() else step]


def pairwise(
    where: Callable[..., bool] | None = None, /, **axes: Sequence[Any]
) -> pytest.MarkDecorator:
    """Parametrize by all combinations of values, or by those that pairs of values need.

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
    every = _combinations(where, axes)
    pairs = {one: set(itertools.combinations(enumerate(one), 2)) for one in every}
    missing, few = set().union(*pairs.values()), set()
    while missing:
        best = max(every, key=lambda one: len(pairs[one] & missing))
        few.add(best)
        missing -= pairs[best]
    return _parametrize(axes, every, few)


def in_turns(
    times: int, where: Callable[..., bool] | None = None, /, **axes: Sequence[Any]
) -> pytest.MarkDecorator:
    """Parametrize by all combinations of values, or by those that have a turn.

    Each value of the longest axis has so many turns, which those of the other axes take
    part in one after the other: where a test is of one code whatever they are, and
    pairs of them tell little more.

    Parameters
    ----------
    times
        Turns of each value of the longest axis, or as many as there are combinations
        with it.
    where, **axes
        As `pairwise` takes them.

    Returns
    -------
    pytest.MarkDecorator
        Decorates a test.
    """
    every = _combinations(where, axes)
    lengths = [len(values) for values in axes.values()]
    longest = lengths.index(max(lengths))
    few, seen = set(), set()
    for value in range(max(lengths)):
        rest = [one for one in every if one[longest] == value]
        for turn in range(min(times, len(rest))):
            # of those with most values that had no turn, another each time
            fresh = [
                len(set(enumerate(one)) - seen) if one not in few else -1
                for one in rest
            ]
            best = [
                one
                for one, number in zip(rest, fresh, strict=True)
                if number == max(fresh)
            ]
            few.add(best[(value * times + turn) % len(best)])
            seen |= set(enumerate(best[(value * times + turn) % len(best)]))
    assert seen == set().union(*map(enumerate, every)), (
        "some values have no turn: use more"
    )
    return _parametrize(axes, every, few)


def _combinations(
    where: Callable[..., bool] | None, axes: dict[str, Sequence[Any]]
) -> list[tuple[int, ...]]:
    """Return all combinations, as positions of their values."""
    return [
        one
        for one in itertools.product(*(range(len(values)) for values in axes.values()))
        if where is None
        or where(**{name: axes[name][k] for name, k in zip(axes, one, strict=True)})
    ]


def _parametrize(
    axes: dict[str, Sequence[Any]],
    every: list[tuple[int, ...]],
    few: set[tuple[int, ...]],
) -> pytest.MarkDecorator:
    """Parametrize by every combination in the profile ``full``, else by a few."""
    chosen = [
        tuple(values[k] for values, k in zip(axes.values(), one, strict=True))
        for one in every
        if one in few or everything()
    ]
    return pytest.mark.parametrize(tuple(axes), chosen)
