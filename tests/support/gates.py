"""Gates that hold up runs on clusters, so that tests may act in their middle."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 120
"""Most seconds that anything takes, on a machine with other work too."""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition; `what` is in the error if it does not happen."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@dataclass(frozen=True)
class Gate:
    """Files that processes see: a partition was read for the plan, and may be read for
    the run.
    """

    folder: Path

    def close(self) -> None:
        """Let a task pass once, for a plan, and no more."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()

    def open(self) -> None:
        """Let all waiting tasks and all later ones pass."""
        (self.folder / "open").touch()

    def pass_through(self) -> None:
        """Wait, unless this is the first time."""
        if (self.folder / "planned").exists():
            until((self.folder / "open").exists, "the gate stayed closed")
        (self.folder / "planned").touch()
