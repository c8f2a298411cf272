"""Write which verb takes what into docs/reference/options.md: `python -m tests.checks.option_table`."""

from dataclasses import fields
from pathlib import Path

from dask_simjoin.api.verbs import VERBS
from dask_simjoin.metrics import METRICS
from dask_simjoin.request.options import MetricRequest, Partitioning
from dask_simjoin.request.verb import options_of
from dask_simjoin.sets.requests import SetOptions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "options.md"
HEAD = ["| verb | metrics | also takes |", "|---|---|---|"]
SHARED = {"eps", *(option.name for option in fields(MetricRequest))}
"""Options that the text above the table names."""


def option_table():
    """The lines of the table; `plan` takes everything, `with_row_id` only a name, and `index` no chunks."""
    listed = [one for one in VERBS.values() if one.name not in ("plan", "profile", "with_row_id", "index")]
    return [*HEAD, *(_row(verb) for verb in listed if not issubclass(verb.request, SetOptions))]


def names_of(request, shared):
    """The names of a verb's options but the shared ones; those of two tables are one."""
    names = [option.name for option in options_of(request) if option.name not in shared]
    two = [name for name in names if name.startswith(("left_", "right_"))]
    assert two in ([], ["left_on", "right_on", "left_id", "right_id"])
    return [f"`{name}`" for name in names if name not in two] + ["`left_*`, `right_*`"] * bool(two)


def _row(verb):
    request = verb.request
    all_metrics = request.metrics == tuple(METRICS)
    metrics = "all" if all_metrics else ", ".join(request.metrics)
    words = ["`eps` as a column"] * request.radii + names_of(request, SHARED)
    choices = {option.name: option.metadata["choices"] for option in fields(request)}["partitioning"]
    refused = [f'`"{one}"`' for one in Partitioning.__args__ if one not in choices]
    return f"| `{verb.name}` | {metrics} | {', '.join(words)}{'; not ' * bool(refused)}{', '.join(refused)} |"


def written(text, lines):
    """The page with these lines instead of the table that begins with the same two."""
    before, _, rest = text.partition("\n".join(lines[:2]))
    after = rest[rest.index("\n\n") :]
    return before + "\n".join(lines) + after


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), option_table()))
