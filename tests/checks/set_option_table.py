"""Write the options of verbs of sets into options.md: `python -m tests.checks.set_option_table`."""

from dask_simjoin.api.verbs import VERBS
from dask_simjoin.options.calls import options_of
from dask_simjoin.sets.requests import OneTable, SetOptions
from tests.checks.option_table import PAGE

HEAD = ["| verb of sets | also takes |", "|---|---|"]
SHARED = {option.name for option in options_of(OneTable)}
"""Options that the text above the table names."""


def set_option_table():
    """The lines of the table."""
    return [*HEAD, *(_row(verb) for verb in VERBS.values() if issubclass(verb.request, SetOptions))]


def _row(verb):
    names = [option.name for option in options_of(verb.request) if option.name not in SHARED]
    two = [name for name in names if name.startswith(("left_", "right_"))]
    assert two in ([], ["left_on", "right_on", "left_id", "right_id"])
    words = [f"`{name}`" for name in names if name not in two] + ["`left_*`, `right_*`"] * bool(two)
    return f"| `{verb.name}` | {', '.join(words) or 'nothing'} |"


def written(text, lines):
    """The page with these lines instead of its table."""
    before, _, rest = text.partition("\n".join(HEAD))
    after = rest[rest.index("\n\n") :]
    return before + "\n".join(lines) + after


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), set_option_table()))
