"""How messages show values and names."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

MOST_SHOWN = 100
"""Characters of a value that a message shows."""


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    try:
        text = repr(value)
    except ValueError:  # an int of very many digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def listed(names: Any, most: int = 12) -> str:
    names = [repr(name) for name in names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(name: Any, known: Any, cutoff: float = 0.6) -> str:
    names = [other for other in known if isinstance(other, str)]
    close = get_close_matches(name, names, n=1, cutoff=cutoff) if isinstance(name, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""
