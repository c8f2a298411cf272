"""Make options of the command line of the requests that verbs take: there is no second list of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from decimal import Decimal
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from dask_simjoin.api.cli.values import Exact, Kept, Names, OneOf, Radii, Radius, Size, Tokens, one_or_all
from dask_simjoin.metrics.types import Columns
from dask_simjoin.options.calls import options_of
from dask_simjoin.sets.requests import AnyTokenizer

TABLE = "other"
"""The option that is a table: a file."""


def options_for(request: type) -> list[click.Option]:
    """The options of a request, in the order in which they are listed."""
    hints, own = get_type_hints(request), {option.name: option for option in fields(request)}
    return [_option(own[one.name], hints[one.name]) for one in options_of(request)]


def flag(name: str) -> str:
    """What an option is called on the command line."""
    return f"--{name.replace('_', '-')}"


def given(ctx: click.Context, request: type) -> dict[str, Any]:
    """The options of a request that the command line gives; the others have the verb's defaults."""
    found: dict[str, Any] = {}
    for option in fields(request):
        if ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            value = ctx.params[option.name]
            found[option.name] = one_or_all(value) if _is_columns(request, option.name) else value
    return found


def _is_columns(request: type, name: str) -> bool:
    return bool(get_type_hints(request)[name] == Columns)


def _option(field: Field[Any], hint: Any) -> click.Option:
    about: Mapping[str, Any] = field.metadata
    how: dict[str, Any] = {"help": f"{about['help'][0].upper()}{about['help'][1:]}."}
    if field.default is MISSING:
        how["required"] = True
    else:
        how |= {"default": field.default, "show_default": field.default not in (None, False)}
    if hint is bool:
        how |= {"is_flag": True}
    elif hint == Columns or field.name == TABLE:
        how |= {"type": Names() if hint == Columns else click.Path(), "multiple": True}
    elif hint == tuple[str, str]:
        how |= {"nargs": 2}
    else:
        how |= {"type": _kind(hint, about["choices"])}
    short = [f"-{field.name}"] if len(field.name) == 1 else []
    return click.Option([flag(field.name), *short, field.name], **how)


def _kind(hint: Any, choices: tuple[str, ...]) -> Any:
    """How the words of an option of this type are read."""
    kinds = set(get_args(hint)) or {hint}
    if choices:
        return OneOf(choices)
    if hint == AnyTokenizer:
        return Tokens()
    if Decimal in kinds:
        return Exact()
    if {float, str} <= kinds:
        return Radii() if Sequence[float] in kinds else Radius()
    if float in kinds and any(get_origin(kind) is Literal for kind in kinds):
        return Radius()
    if hint == Hashable:
        return Kept()
    if {int, str} <= kinds:
        return Size()
    return next((kind for kind in (int, float) if kind in kinds), str)
