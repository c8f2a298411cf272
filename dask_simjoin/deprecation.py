"""Deprecate public functions and options; docs/reference/promises.md says how long they still work."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

from dask_simjoin.errors import DeprecatedWarning, OptionTypeError

P = ParamSpec("P")
R = TypeVar("R")


class Deprecation(NamedTuple):
    """A deprecated name, the release that deprecated it, the release that removes it, and its replacement."""

    name: str
    since: str
    removed_in: str
    use: str

    def __str__(self) -> str:
        return (
            f"{self.name} is deprecated since dask-simjoin {self.since} and will be removed in "
            f"{self.removed_in}; use {self.use}."
        )


DEPRECATIONS: list[Deprecation] = []
"""All deprecated names: a test fails if a name is still here in the release that should remove it."""


def deprecated(*, since: str, removed_in: str, use: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: the function warns at each call, and the warning names the line of the caller.

    Parameters
    ----------
    since, removed_in : str
        The first release that warns, and the release that removes the function.
    use : str
        The replacement, in the form that users write.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        entry = Deprecation(f"{function.__name__}()", since, removed_in, use)
        DEPRECATIONS.append(entry)

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            warnings.warn(str(entry), DeprecatedWarning, stacklevel=2)
            return function(*args, **options)

        summary, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        call.__doc__ = f"{summary}\n\n.. deprecated:: {since}\n    Use {use}.\n\n{rest}".rstrip() + "\n"
        return call

    return decorate


def renamed_option(
    old: str, new: str, *, since: str, removed_in: str
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator: the function also accepts the old name of a keyword, and warns.

    Both names in one call raise `OptionTypeError`.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        entry = Deprecation(f"The option {old}= of {function.__name__}()", since, removed_in, f"{new}=")
        DEPRECATIONS.append(entry)

        @functools.wraps(function)
        def call(*args: object, **options: object) -> R:
            if old in options:
                if new in options:
                    raise OptionTypeError(f"{old}= is the old name of {new}=; pass {new}= only.")
                warnings.warn(str(entry), DeprecatedWarning, stacklevel=2)
                options[new] = options.pop(old)
            return function(*args, **options)

        return call

    return decorate
