"""Check requests for joins of sets against the frames that they are of, and resolve them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from dask_simjoin.engine.base import library
from dask_simjoin.errors import TABLES, ColumnError, OptionError, OptionTypeError, in_table
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.columns import as_names, check_column_exists, check_columns, has_column
from dask_simjoin.options.messages import shown
from dask_simjoin.options.resolve import check_choices, check_flag, id_dtype
from dask_simjoin.options.settings import current_settings, on_cluster, parse_size
from dask_simjoin.sets.columns import check_holds
from dask_simjoin.sets.methods import METHODS
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.spec import SetSpec
from dask_simjoin.sets.tokens import Tokenizer, tokenizer_of

BETWEEN = "a number above 0 and up to 1, such as 0.8 or Fraction(1, 3)"

FAR = 99
"""Powers of 10 beyond which a threshold is less than any similarity of sets, or more than any overlap."""


def is_set_method(value: object) -> bool:
    """Tell whether it is a method as an object, not as a name."""
    return type(value) in map(type, METHODS.values())


def check_threshold(value: Any, similarity: str) -> Fraction:
    """Return a threshold as the fraction that its text is; refuses what is none."""
    allowed = "a whole number of tokens above 0, such as 2" if similarity == "overlap" else BETWEEN
    # NumPy counts timedelta64 among its integers
    allowed_kind = isinstance(value, (numbers.Real, Decimal)) and not isinstance(
        value, (bool, np.bool_, np.timedelta64)
    )
    if not allowed_kind:
        raise OptionTypeError(f"threshold={shown(value)} is not a number; use {allowed}{_of_text(value)}.")
    exact = isinstance(value, numbers.Rational)
    # Decimal's signaling NaN can only be asked by its own method
    finite = exact or (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value))
    if not finite:
        raise OptionError(f"threshold={shown(value)} is not allowed; use {allowed}.")
    number = value
    if isinstance(value, Decimal) and value and abs(value.adjusted()) > FAR:
        # write out no billion digits: this far from 1 all decide alike
        number = Decimal((int(value < 0), (1,), FAR if value.adjusted() > 0 else -FAR))
    elif isinstance(value, Decimal) and not value:
        number = 0
    found = Fraction(int(value.numerator), int(value.denominator)) if exact else Fraction(str(number))
    percent = "" if similarity == "overlap" or not 1 < found <= 100 else " (of percents: divide by 100)"
    whole = found.denominator == 1
    if found <= 0 or (not whole if similarity == "overlap" else found > 1):
        raise OptionError(
            f"threshold={shown(value)} is not allowed with similarity={similarity!r}; use {allowed}{percent}."
        )
    return found


def _of_text(value: object) -> str:
    percent = isinstance(value, str) and value.strip().endswith("%")
    return " (of percents: divide by 100)" if percent else ""


def resolve(asked: Any, meta: Frame, on: object, id: Hashable | None) -> SetSpec:
    """Check the options of a request for one frame like `meta` (its empty example), but for `keep`."""
    settings, name = current_settings(on_cluster()), library(meta)
    check_choices(asked, is_set_method)
    if isinstance(on, (int, float)) and isinstance(asked.threshold, str) and not has_column(meta.columns, on):
        raise OptionTypeError(
            f"on={shown(on)} is no column, and threshold={shown(asked.threshold)} is not a number: the "
            "column comes first, as in set_self_join('text', 0.8)."
        )
    threshold = check_threshold(asked.threshold, asked.similarity)
    tokenizer = tokenizer_of(asked.tokenizer)
    flags = {
        name: check_flag(name, getattr(asked, name))
        for name in ("allow_empty", "allow_missing", "return_similarity")
        if hasattr(asked, name)
    }
    if flags["allow_empty"] and asked.similarity == "overlap":
        raise OptionError(
            "allow_empty=True is not allowed with similarity='overlap': empty sets have no token in common, "
            "and a threshold is at least 1; leave it out."
        )
    blocksize = None if asked.blocksize is None else parse_size("blocksize", asked.blocksize)
    check_columns(meta)
    dtype = id_dtype(meta, id)
    column = check_sets(meta, on, tokenizer)
    spec = SetSpec(
        (column,), Rule(asked.similarity, threshold, asked.comparison), shown(asked.threshold), tokenizer,
        asked.method, flags["allow_empty"], flags["allow_missing"], flags.get("return_similarity", False),
        id=id, id_dtype=dtype, blocksize=blocksize, settings=settings, library=name,
    )  # fmt: skip
    return spec if asked.names_rows else without_names(spec)


def check_sets(meta: Frame, on: object, tokenizer: Tokenizer | None) -> Hashable:
    """Return the column of sets that `on` names; refuses what cannot be one."""
    names = [on] if isinstance(on, tuple) and has_column(meta.columns, on) else as_names(on)
    if len(names) != 1 or on is None:
        raise ColumnError(
            f"on={shown(on)} names {len(names) if on is not None else 'no'} columns; name the one that holds "
            "sets."
        )
    (name,) = names
    check_column_exists("on", name, [meta])
    check_holds(name, meta[name].dtype, tokenizer)
    return name


def resolve_two(asked: Any, left: Frame, right: Frame, columns: tuple[Any, Any, Any],
                ids: tuple[Any, Any, Any]) -> SetSpec:  # fmt: skip
    """Check the options of a request for two frames like these, but for `keep`.

    `columns`, `ids`: what was named of both tables, of the left one and of the right one.
    """
    both, *own = columns
    if asked.threshold is None:
        raise OptionTypeError("threshold= is missing: use set_join(other, on, threshold, ...).")
    if both is not None and any(side is not None for side in own):
        raise OptionError("on= names the column of both tables; use it, or left_on= and right_on=, not both.")
    if both is None and None in own:
        which = "on" if own == [None, None] else "left_on" if own[0] is None else "right_on"
        raise OptionError(f"{which}= is missing; name the columns of both tables, or use on= for both.")
    specs = []
    for which, table, on, id in zip(TABLES, (left, right), own, ids[1:], strict=True):
        with in_table(which):
            specs.append(resolve(asked, table, both if on is None else on, ids[0] if id is None else id))
    return replace(specs[0], other=specs[1])


def without_names(spec: SetSpec) -> SetSpec:
    """Leave out what names rows, and what is kept of them: a result that has neither does not read it."""
    other = None if spec.other is None else without_names(spec.other)
    return replace(spec, id=None, id_dtype=None, keep=(), names=(), other=other)
