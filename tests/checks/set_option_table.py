"""Write the options of verbs of sets into options.md: `python -m tests.checks.set_option_table`."""

from dask_simjoin.api.verbs import VERBS
from dask_simjoin.request.verb import options_of
from dask_simjoin.sets.requests import OneTable, SetOptions
from tests.checks.option_table import PAGE, names_of, written

HEAD = ["| verb of sets | also takes |", "|---|---|"]
SHARED = {option.name for option in options_of(OneTable)}
"""Options that the text above the table names."""


def set_option_table():
    """The lines of the table."""
    return [*HEAD, *(_row(verb) for verb in VERBS.values() if issubclass(verb.request, SetOptions))]


def _row(verb):
    return f"| `{verb.name}` | {', '.join(names_of(verb.request, SHARED)) or 'nothing'} |"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), set_option_table()))
