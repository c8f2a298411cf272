"""Advice to convert a column to numbers, for messages."""

from __future__ import annotations

from collections.abc import Hashable


def as_floats(name: Hashable) -> str:
    """Return the code that converts a column of numbers to float64."""
    column = f"df[{name!r}]"
    return f"{column} = {column}.astype('float64')"


def if_numbers(name: Hashable) -> str:
    """Return a sentence for a column of objects that may be numbers."""
    return (
        f"If the values are numbers, such as Decimal, convert them: {as_floats(name)}."
    )


def as_numbers(name: Hashable) -> str:
    """Return the code that converts texts to numbers, and a sentence about others."""
    column = f"df[{name!r}]"
    return (
        f"{column} = pd.to_numeric({column}, errors='coerce'). This makes other values "
        "missing, also numbers with a decimal comma."
    )
