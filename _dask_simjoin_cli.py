"""Entry point of the program ``dask-simjoin``.

It is outside the package, because importing the package takes a second or more. A
signal during the import ends the program without a traceback.
"""

import os
import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Import the program and run it."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # set by nohup
            signal.signal(number, _leave)
    from dask_simjoin.cli.main import main as run

    run()


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: no work has begun."""
    os._exit(128 + number)
