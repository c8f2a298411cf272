"""Entry point of the program ``dask-simjoin``.

It is outside the package, because importing the package takes a second or more.
``--version`` and ``--help`` do not import it. A signal during the import ends the
program without a traceback.
"""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Import the program and run it; answer ``--version`` and ``--help`` at once."""
    begin = time.perf_counter()
    if sys.argv[1:] == ["--version"]:
        print(f"dask-simjoin, version {version('dask-simjoin')}")
        return
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(_help(), end="")
        return
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # set by nohup
            signal.signal(number, _leave)
    _program()(begin)


def _program() -> Callable[[float], None]:
    """Import the program.

    The import makes many objects and no garbage. So they are kept out of all garbage
    collections, which would take a third of the CPU time of a short command.
    """
    gc.disable()
    try:
        from dask_simjoin.cli.main import main as run
    finally:
        gc.freeze()
        gc.enable()
    return run


def _help() -> str:
    """Return the help of the program, which `python -m tools.generate` writes."""
    package = find_spec("dask_simjoin")
    assert package is not None and package.origin is not None
    return (Path(package.origin).parent / "cli" / "help.txt").read_text()


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: no work has begun."""
    os._exit(128 + number)
