"""Compiled kernels that no longer are what their texts say.

Numba keeps what it compiles beside a module, as long as that module's text does not change.  But a kernel has
in it what its module imports as well.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

HERE = Path(__file__).parent
ENGINE = HERE.parents[1]


def sources() -> list[Path]:
    """Return the texts that a kernel may be made of: theirs, of indexes and filters, and of norms."""
    folders = HERE, ENGINE / "index", ENGINE / "filters", ENGINE.parent / "metrics"
    return [path for folder in folders for path in folder.glob("*.py")]


def forget_stale(compiled: Path | None = None, texts: list[Path] | None = None) -> bool:
    """Remove all kernels from a folder if one is older than one of the texts; whether it did.

    Without arguments: the kernels of this package, and all texts that they may be made of.
    """
    compiled = compiled or HERE / "__pycache__"
    texts = texts or sources()
    with contextlib.suppress(OSError):  # nothing can be written, or others are at it: Numba copes
        kernels = [path for path in compiled.glob("*.nb?") if path.suffix in (".nbi", ".nbc")]
        newest = max(text.stat().st_mtime for text in texts)
        # a text of the future, by a clock that was wrong, would make all kernels stale for ever
        if newest < time.time() and any(kernel.stat().st_mtime < newest for kernel in kernels):
            for kernel in kernels:
                kernel.unlink(missing_ok=True)
            return True
    return False
