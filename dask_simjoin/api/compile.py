"""Compile kernels when an image is built: ``python -m dask_simjoin.api.compile``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dask_simjoin.api.compile_kernels import DIMS, OPTIONS, compile_kernels
from dask_simjoin.engine.base import LIBRARIES


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile what the command line asks for, and print how long it took."""
    parser = argparse.ArgumentParser(prog="python -m dask_simjoin.api.compile", description=__doc__)
    parser.add_argument("--verbs", nargs="*", choices=list(OPTIONS), help="default: all")
    parser.add_argument("--dims", nargs="*", type=int, default=list(DIMS), help="numbers of columns")
    parser.add_argument("--metric", default="euclidean")
    parser.add_argument("--backend", choices=LIBRARIES, default="pandas")
    parser.add_argument("--processes", type=int, default=1, help="each compiles for other numbers of columns")
    print(compile_kernels(**vars(parser.parse_args(arguments))).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
