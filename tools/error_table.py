"""Tables of errors and their remedies in docs/reference/errors.md."""

import inspect
import re

from dask_simjoin import errors
from tools import ROOT

PAGE = ROOT / "docs" / "reference" / "errors.md"
HEAD = ["| class | also | when | what to do |", "|---|---|---|---|"]
WARNINGS = ["| class | when | what to do |", "|---|---|---|"]


def classes(base):
    """The classes of this kind, but for their base, in the order of the module."""
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, base)
    ]
    return [kind for kind in kinds if kind is not base]


def told(kind):
    """When a class is raised, and what to do, from its documentation."""
    when, _, remedy = " ".join(inspect.getdoc(kind).split()).partition(" Remedy: ")
    code = re.sub(
        r"``(.*?)``|`(.*?)`",
        lambda match: f"`{match[1] or match[2]}`",
        f"{when}|{remedy}",
    )
    return [part.strip() for part in code.split("|")]


def error_table():
    """The lines of the table of errors."""
    rows = []
    for kind in classes(errors.SimJoinError):
        built_in = next(one for one in kind.__mro__ if one.__module__ == "builtins")
        rows.append([f"`{kind.__name__}`", f"`{built_in.__name__}`", *told(kind)])
    return HEAD + [f"| {' | '.join(row)} |" for row in rows]


def warning_table():
    """The lines of the table of warnings."""
    rows = [
        [f"`{kind.__name__}`", *told(kind)] for kind in classes(errors.SimJoinWarning)
    ]
    return WARNINGS + [f"| {' | '.join(row)} |" for row in rows]


def written(text):
    """The page with these tables instead of those that begin with the same lines."""
    for lines in (error_table(), warning_table()):
        before, head, rest = text.partition("\n".join(lines[:2]))
        assert head, f"no table begins with {lines[0]}"
        text = before + "\n".join(lines) + rest[rest.index("\n\n") :]
    return text


def files():
    """Path -> text of the page."""
    return {PAGE: written(PAGE.read_text())}
