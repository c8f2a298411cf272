"""Compile kernels when an image is built: ``dask-simjoin compile``."""

from __future__ import annotations

import click

from dask_simjoin.api.cli.values import Names
from dask_simjoin.api.compile_kernels import DIMS, OPTIONS, compile_kernels
from dask_simjoin.engine.base import HOME, LIBRARIES


@click.command("compile", short_help="Compile kernels before they are needed, as when an image is built.")
@click.option("--verbs", type=Names(), help=f"Of {', '.join(OPTIONS)}.  [default: all]")
@click.option(
    "--dims", type=Names(), default=",".join(map(str, DIMS)), show_default=True, help="Numbers of columns."
)
@click.option("--metric", default="euclidean", show_default=True)
@click.option("--backend", type=click.Choice(LIBRARIES), default=HOME, show_default=True)
@click.option(
    "--processes", type=click.IntRange(1), default=1, show_default=True, help="Compile side by side."
)
@click.option("--json", "as_json", is_flag=True, help="Print the seconds as JSON.")
def compiled(
    verbs: list[str] | None, dims: list[str], metric: str, backend: str, processes: int, as_json: bool
) -> None:
    """Compile the kernels of verbs, and print how long each took."""
    wrong = [one for one in dims if not one.strip().isdigit()]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not a whole number.", param_hint="--dims")
    took = compile_kernels(verbs, map(int, dims), metric=metric, backend=backend, processes=processes)
    click.echo(took.to_json(orient="records") if as_json else took.round(2).to_string(index=False))
