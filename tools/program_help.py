"""Write the help of the program to a file, so that it is shown without importing the
package.
"""

import click

from dask_simjoin.cli.main import cli
from tools import ROOT

WIDTH = 80


def files():
    """Path -> text of the help."""
    settings = cli.context_settings | {"terminal_width": WIDTH}
    context = click.Context(cli, info_name="dask-simjoin", **settings)
    with context:
        return {
            ROOT / "dask_simjoin" / "cli" / "help.txt": cli.get_help(context) + "\n"
        }
