"""Digests of results, by which two runs or two versions of the package are compared."""

from __future__ import annotations

import hashlib
from typing import Any


class Digests:
    """Digest of all results so far, and of those since the last call of `take`."""

    def __init__(self) -> None:
        self._all, self._recent = hashlib.sha256(), hashlib.sha256()

    def add(self, *values: Any) -> None:
        """Add values of plain Python, whose `repr` has every bit of them."""
        for digest in (self._all, self._recent):
            digest.update(repr(values).encode())

    def take(self) -> str:
        """Digest of what was added since the last call."""
        taken, self._recent = self._recent.hexdigest()[:16], hashlib.sha256()
        return taken

    def total(self) -> str:
        """Digest of everything."""
        return self._all.hexdigest()[:16]
