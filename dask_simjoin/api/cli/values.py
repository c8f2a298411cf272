"""Read the values of options from the command line's words."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import click
from dask.utils import parse_bytes

from dask_simjoin.options.units import parsed


class OneOf(click.Choice):  # type: ignore[type-arg]
    """Offer choices to help and to completion; the verb refuses what is none, and says more of it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value


class Names(click.ParamType):  # type: ignore[type-arg]
    """Columns, separated by commas; one whose name has a comma stands in double quotes."""

    name = "columns"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return next(csv.reader([value], skipinitialspace=True), []) if isinstance(value, str) else value


class Radius(click.ParamType):  # type: ignore[type-arg]
    """A number, or what is none: a word, or the name of a column."""

    name = "number|text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return number(value, float)


class Radii(Radius):
    """The same, or several distances, separated by commas: numbers, or such as "5 km"."""

    name = "numbers|text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        some = [number(text, float) for text in value.split(",")]
        several = len(some) > 1 and all(isinstance(one, float) or parsed(one) is not None for one in some)
        return some if several else number(value, float)


class Kept(click.ParamType):  # type: ignore[type-arg]
    """A word or the name of a column; or False."""

    name = "text|False"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return False if value == "False" else value


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, or text such as "64 MiB"."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return number(value, int)


class Memory(click.ParamType):  # type: ignore[type-arg]
    """The memory of a worker, as Dask reads it: text such as "4 GB", or "auto"."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            fits = value == "auto" or parse_bytes(value) > 0
        except ValueError:
            fits = False
        return value if fits else self.fail(f"{value!r} is no memory; use such as '4 GB'.", param, ctx)


class Exact(click.ParamType):  # type: ignore[type-arg]
    """A number that is taken as it is written: .1 is 1/10, and 1/3 a third."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return Fraction(value) if "/" in value else Decimal(value)
        except (InvalidOperation, ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number; use one such as 0.8 or 4/5.", param, ctx)


class Tokens(click.ParamType):  # type: ignore[type-arg]
    """The name of a tokenizer; after a colon its value, as in "qgrams:3"."""

    name = "tokenizer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, colon, rest = value.partition(":")
        return (name, number(rest, int)) if colon else name


def number(text: Any, kind: type[int] | type[float]) -> Any:
    """Text as a number, if it is one."""
    try:
        return kind(text)
    except ValueError:
        return text


def one_or_all(given: Sequence[Sequence[str]]) -> str | list[str]:
    """Columns of an option that may be repeated: a name alone if there is but one."""
    names = [name for some in given for name in some]
    return names[0] if len(names) == 1 else names
