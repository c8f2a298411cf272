"""The methods by which pairs of sets are found: an entry each, whose fields are its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

AUTO = "auto"
"""The name that leaves the choice to the joiner, which knows the sets."""


class SetMethod(Protocol):
    """A way to find pairs of sets; its docstring's first line is what docs say of it."""


@dataclass(frozen=True, kw_only=True)
class Bitmap:
    """Compare bitmaps of all pairs of sets of admissible sizes, then the tokens of those that are left."""


METHODS: dict[str, SetMethod] = {"bitmap": Bitmap()}
"""All methods by name."""

CHOICES = (AUTO, *METHODS)
"""What the option `method` may be."""
