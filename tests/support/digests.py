"""Digests of results, for comparing two runs or two versions of the package."""

from __future__ import annotations

import hashlib
from typing import Any


class Digests:
    """Digests of all results so far, and of those since the last call of `take`."""

    def __init__(self) -> None:
        self._all, self._recent = hashlib.sha256(), hashlib.sha256()

    def add(self, *values: Any) -> None:
        """Add values of plain Python, whose `repr` shows every bit."""
        for digest in (self._all, self._recent):
            digest.update(repr(values).encode())

    def take(self) -> str:
        """Return the digest of the values since the last call."""
        taken, self._recent = self._recent.hexdigest()[:16], hashlib.sha256()
        return taken

    def total(self) -> str:
        """Return the digest of all values."""
        return self._all.hexdigest()[:16]
