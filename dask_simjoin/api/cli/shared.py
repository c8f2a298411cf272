"""Options that commands have besides those of their verbs: how to read, write, compute and tell."""

from __future__ import annotations

import click

from dask_simjoin.api.cli.running import SCHEDULERS, THREADS
from dask_simjoin.api.cli.sources import FORMATS
from dask_simjoin.api.cli.values import Memory, OneOf
from dask_simjoin.engine.base import HOME, LIBRARIES

WRITTEN = [
    click.Option(
        ["-o", "--output"], required=True,
        help="Where to write: NAME.parquet and NAME.csv are one file, other names folders of a file for each "
        "partition.",
    ),
    click.Option(["--format"], type=click.Choice(FORMATS), help="Format of the output, if not by its name."),
    click.Option(
        ["--overwrite"], is_flag=True,
        help="Replace the output if it is there: a file, or a folder that this program wrote.",
    ),
    click.Option(
        ["--csv-safe"], is_flag=True,
        help="Write ' before texts in CSV that a spreadsheet would run as formulas.",
    ),
]  # fmt: skip

SHARED = [
    click.Option(["-y", "--yes"], is_flag=True, help="Compute large plans without asking."),
    click.Option(["--input-format"], type=click.Choice(FORMATS), help="Format of tables, if not by name."),
    click.Option(
        ["--scheduler"], type=OneOf(SCHEDULERS), default=THREADS, show_default=True,
        help="What computes; also the address of a scheduler, such as tcp://host:8786.",
    ),
    click.Option(
        ["--workers"], type=click.IntRange(1), help="Threads, or processes of a cluster; default: all cores."
    ),
    click.Option(
        ["--memory-limit"], type=Memory(),
        help="Of each worker, such as '4 GB'; computes on a cluster of this machine.",
    ),
    click.Option(
        ["--backend"], type=click.Choice(LIBRARIES), default=HOME, show_default=True,
        help="Library of the frames: CPUs or GPUs.",
    ),
    click.Option(["--json"], is_flag=True, help="Print plan and report as JSON."),
    click.Option(["-q", "--quiet"], is_flag=True, help="Tell nothing but errors."),
    click.Option(["-v", "--verbose"], is_flag=True, help="Show log lines of this package."),
]  # fmt: skip
