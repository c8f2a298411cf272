"""Stop the program by signals as by Ctrl-C: unfinished files go, and the exit code names the signal."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

TOGETHER = 5.0
"""Seconds in which several signals are one."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Take signals, of which the first stops the program.

    Attributes
    ----------
    number : int
        The signal that stopped it, or 0.
    """

    def __init__(self) -> None:
        self.number, self._finishing, self._since = 0, False, -TOGETHER

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Stop, unless the output gets its name now, or files that were begun are removed.

        A closed terminal sends several signals, which are one; Ctrl-C again ends the wait for running tasks.
        """
        now = time.monotonic()
        if self._finishing or (now - self._since < TOGETHER and number != signal.SIGINT):
            return
        self.number, self._since = self.number or number, now
        raise KeyboardInterrupt

    def finish(self) -> None:
        """Do the rest without being stopped."""
        self._finishing = True


_current = Stop()


def finish() -> None:
    """Ignore signals until the program ends, which is soon: what is done now must be done as a whole."""
    _current.finish()


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Handle signals meanwhile, except ignored ones (``nohup``), and exit with 128 + the signal's number."""
    global _current
    _current = stop = Stop()
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {one: signal.getsignal(one) for one in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        stop.finish()
        for number, handler in before.items():
            signal.signal(number, handler)
        if stop.number:
            sys.exit(128 + stop.number)
