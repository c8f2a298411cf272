"""Texts of the program: messages in the words of the command line, suggested commands,
and examples.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import click

from dask_simjoin.cli.csv_files import HEAD_ROWS
from dask_simjoin.cli.csv_types import TIMES, decimal_hint
from dask_simjoin.cli.sources import TableReader
from dask_simjoin.errors import (
    ColumnError,
    CoordinateError,
    DuplicateIdError,
    OptionTypeError,
)
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.columns import ROW_ID

TOKENIZERS = (
    "words, whitespace, delimiter:TEXT (such as 'delimiter:;') or qgrams:N (such as "
    "qgrams:3); words:lower "
    "and qgrams:N:lower ignore case"
)
"""Values of --tokenizer."""


def _variable(found: re.Match[str]) -> str:
    """Return the environment variable for a configuration value. If the match has a new
    value, return an assignment.
    """
    name, *value = found.groups()
    text = f"the environment variable DASK_SIMJOIN__{name.replace('-', '_').upper()}"
    return f"{text}={value[0]!r}" if value else text


PHRASES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"dask\.config\.set\(\{'simjoin\.([\w-]+)': '([^']*)'\}\)"), _variable),
    (re.compile(r" of dask\.config\.set\b(?!\()"), ""),
    (
        re.compile(r"LocalCluster\(n_workers=(\d+), memory_limit='([^']*)'\)"),
        r"--workers \1 --memory-limit '\2'",
    ),
    (
        re.compile(r"For example, eps=numpy\.median\(.*?\)\) gives"),
        "The command k-distances -k 10 shows distances; their median as eps= gives",
    ),
    (
        re.compile(r"count_pairs\(\) or neighbor_counts\(\)"),
        "the commands count-pairs or counts",
    ),
    (
        re.compile(r"count_set_pairs\(\) or set_neighbor_counts\(\)"),
        "the commands sets count-pairs or sets counts",
    ),
    (
        re.compile(r"\bOnly join\(\) and knn_join\(\) compare"),
        "Only the commands join and knn compare",
    ),
    (
        re.compile(r"use a length, a list with .*? or a dict\. Lengths .*?\}\."),
        "use one length, or one for each column, such as --box 10,10,none (none: an "
        "open column). Or name columns, as in --box x=10,y=20.",
    ),
    (re.compile(r"or None for a column that"), "or none for a column that"),
    (
        re.compile(r"To wrap them: df\[.*?\] %= .*?\.$"),
        "Correct these values in the file, or use a box that contains them.",
    ),
    (re.compile(r"use k_distances\(\)"), "use the command k-distances"),
    (re.compile(r"within=\{'([^']*)': '?([^'}]*)'?\}"), r"--within '\1=\2'"),
    (
        re.compile(r"within=\{\('(.*?)', '(.*?)'\): \.\.\.\}"),
        r"--within \1=\2=TOLERANCE",
    ),
    (re.compile(r"\b(by|different)=\[\('(.*?)', '(.*?)'\)\]"), r"--\1 \2=\3"),
    (
        re.compile(r"Convert texts of times with pandas\.to_datetime\(\)\."),
        "In CSV files, times look like 2024-01-31 10:00 or 2024-01-31T10:00Z. In Parquet "
        "files, they need a type for times.",
    ),
    (
        re.compile(r"To use the times in seconds: .*total_seconds\(\)\."),
        "For rows that are near in time, use within= with this column, such as "
        "--within 'time=10 min', and name other columns with on=.",
    ),
    (
        re.compile(r"This makes other values missing(?:, .*?)?\.(?= |$)"),
        "Numbers in files have no unit, currency or separator of thousands.",
    ),
    (
        re.compile(r"Leave out id to name rows by their index labels\."),
        "Leave out id= to number the rows from 0.",
    ),
    (re.compile(r"\bWords\(lower=True\)"), "--tokenizer words:lower"),
    (re.compile(r"use \('(\w+)', (?:'(.*?)'|(\d+))\)"), r"use \1:\2\3"),
    (
        re.compile(r"'whitespace', 'words', \('delimiter'.*?one of dask_simjoin\.sets"),
        TOKENIZERS,
    ),
    (re.compile(r"\bQGrams\(q=(.*?)\)"), r"--tokenizer qgrams:\1"),
    (re.compile(r"\bDelimiter\((?:\w+=)?'(.*?)'\)"), r"--tokenizer delimiter:\1"),
    (re.compile(r"\b\w+\(\.\.\., (\w+=[\w.]+)\)"), r"\1"),
    (
        re.compile(r"(?:Or u|U)se id= with (?:a|another) column.*?then id='row_id'\."),
        "Correct these ids, or use id= with a column of unique values.",
    ),
    (re.compile(r"or make the index with dropna=True"), "or add dropna=True"),
    (re.compile(r"\bset_self_join\([^()]*\)"), "dask-simjoin sets self-join"),
    (
        re.compile(r"\b(?:count_edit_pairs|edit_\w+)\(.*?k=2\), or similarity=0.9"),
        "-k 2, or --similarity 0.9",
    ),
    (re.compile(r"\bFraction\((\d+), (\d+)\)"), r"\1/\2"),
    (re.compile(r"\b(?:Decimal|Fraction)\('([^']*)'\)"), r"\1"),
    (
        re.compile(r"\(lists in a pandas column, or Arrow's list<int64>\)"),
        "(in Parquet)",
    ),
)
"""Phrases about Python in messages, and what to say on the command line instead."""

CODE = re.compile(
    r"\w\(\S*['\[]|\.\w+\(|\bpd\.|\bdd\.|\bdf\[|(?<!/)\bdask\.\w|\bframe\.|(?<!/)\bdask_simjoin\."
)
"""Matches Python code in advice; clauses with a match are dropped, because they do not
help in a shell.
"""

QUOTES = " '"

CLAUSES = re.compile(r"(?<=[.;])\s+")


NO_VALUE = "(?<!--by )(?<!--different )(?<!--within )(?<!--within ')"
"""Does not match after these options, whose columns may be named like options."""


def in_words(text: str, names: Iterable[str]) -> str:
    """Rewrite a message of the package for the shell: options become flags, and advice
    in Python is dropped.

    `names`: the options of the command, by their names in Python.
    """
    for pattern, words in PHRASES:
        text = pattern.sub(words, text)
    first, *rest = CLAUSES.split(text)
    kept = [first, *(clause for clause in rest if not CODE.search(clause))]
    text = " ".join(kept)
    if text.endswith((";", ",")):
        text = f"{text[:-1]}."
    alternatives = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    if not alternatives:
        return text
    return re.sub(
        rf"{NO_VALUE}(?<![\w.-])({alternatives})=(\[[^\]]*\]|'[^']*'|[\w.+-]*[\w])?",
        _flag,
        text,
    )


def _flag(found: re.Match[str]) -> str:
    name, value = f"--{found[1].replace('_', '-')}", found[2]
    if value is None or value == "True":
        return name
    if value == "[...]":
        return f"{name} COLUMN,COLUMN"
    if value[0] == "[":
        return f"{name} {','.join(one.strip(QUOTES) for one in value[1:-1].split(','))}"
    plain = value.strip(QUOTES)
    return f"{name} {value if ' ' in plain else plain}"


WRONG_COLUMN = re.compile(r" \(did you mean [^()]*\?\)")
"""The suggestion of a similar column, which is a whole header if it was not split."""

NO_NUMBERS = re.compile(r"on= names '(.*?)' of dtype")
"""The package's message for a column of coordinates that are not numbers."""

NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
"""Matches the text of a number."""


@contextlib.contextmanager
def columns_of_files(
    files: Sequence[Frame],
    reader: TableReader,
    read_from: tuple[Sequence[str], Sequence[str]],
) -> Iterator[None]:
    """Reword errors about columns for tables read from files.

    Added row numbers are not listed as columns, and a likely separator is named if the
    header was not split. The first value that is not a number is named. `files`: the
    tables as they were read. `read_from`: their paths.
    """
    try:
        yield
    except (ColumnError, OptionTypeError) as error:
        text = str(error)
        if not any(ROW_ID in file.columns for file in files):
            text = text.replace(f", {ROW_ID!r}", "")
        if hint := reader.separator_hint(*read_from):
            text = f"{WRONG_COLUMN.sub('', text)} {hint}"
        text = text.replace(
            "must be numbers.", f"must be numbers.{_first_text(text, files)}"
        )
        error.args = (text,)
        raise


MISSING_CELLS = re.compile(r"column '(.*?)' has [\d,]+ missing|missing values: '(.*?)'")
"""Messages about a column with missing cells."""

INFINITE_CELLS = re.compile(r"column '(.*?)' has [\d,]+ infinite")
"""Messages about a column with infinite cells."""

REPEATED = re.compile(r"ids in column '(.*?)' are not unique: '?(.*?)'? repeats")
"""The message about an id that is not unique."""

LISTS = re.compile(
    r"^(In the \w+ table, )?.*?column '(.*?)' must "
    r"(?:hold lists of numbers|be of equal length)",
    re.IGNORECASE,
)
"""The message about lists that differ in length."""

OUTSIDE = re.compile(
    r"(?P<before>[Cc]olumn '(?P<column>[^']*)' has [^:]* outside [^:]*: for example "
    r"""(?P<value>\S+)) at label (?:'[^']*'|"[^"]*"|\S+?)(?: in partition \d+)?\."""
)
"""The message about a number that is not allowed, such as a latitude of 99.5."""

SKIPPING = "Correct the row, or leave out such rows with --bad-rows skip."

LABELS = re.compile(r" Labels often repeat in a table of several files.*$", re.S)


@contextlib.contextmanager
def naming_places(reader: TableReader) -> Iterator[None]:
    """Add the file and the line or row to errors about missing cells, numbers that are
    not allowed, and repeated ids. Name damaged files.
    """
    try:
        with reader.naming_damaged_files():
            yield
    except (CoordinateError, DuplicateIdError) as error:
        text = str(error)
        places = []
        if found := REPEATED.search(text):
            text = LABELS.sub("", text)
            places = reader.places(found[1], found[2])
        elif found := LISTS.search(text):
            if other := reader.other_list(found[2]):
                begin = f"{found[1]}lists" if found[1] else "Lists"
                text = (
                    f"{begin} of column {found[2]!r} must be of equal length. {other}. "
                    f"{SKIPPING}"
                )
        elif found := MISSING_CELLS.search(text):
            places = reader.places(next(filter(None, found.groups())), None)[:1]
        elif found := INFINITE_CELLS.search(text):
            either = (reader.places(found[1], one)[:1] for one in (math.inf, -math.inf))
            places = [place for some in either for place in some][:1]
        elif found := OUTSIDE.search(text):
            for place in reader.places(found["column"], float(found["value"]))[:1]:
                text = OUTSIDE.sub(rf"\g<before> in {place}.", text)
                text += f" {SKIPPING}" * (" in degrees" in text)
        if places:
            text = f"{text} See {_in_words(places)}."
        error.args = (text,)
        raise


def _in_words(places: Sequence[str]) -> str:
    """Join places of one file or two, such as "a.csv, line 2" or "a.parquet, row 2".

    Examples
    --------
    >>> _in_words(["a.csv, line 2", "a.csv, line 9"])
    'lines 2 and 9 of a.csv'
    >>> _in_words(["a.csv, line 2", "b.csv, line 9"])
    'a.csv, line 2 and b.csv, line 9'
    """
    names, _, ends = zip(*(one.rpartition(", ") for one in places), strict=True)
    if len(names) == 2 and names[0] == names[1]:
        (unit, first), (_, second) = (end.split() for end in ends)
        return f"{unit}s {first} and {second} of {names[0]}"
    return " and ".join(places)


def _first_text(text: str, files: Sequence[Frame]) -> str:
    """Return a sentence with the first value that is not a number, if an error is about
    a column of texts.
    """
    found = NO_NUMBERS.match(text)
    for file in files:
        if found and found[1] in file.columns:
            values = file[found[1]].head(HEAD_ROWS)
            bad = [
                one
                for one in values.dropna()
                if isinstance(one, str) and not NUMBER.fullmatch(one)
            ]
            if not bad:
                return ""
            shown = f"{bad[0]!r}{decimal_hint(bad[0])}"
            if any(re.fullmatch(pattern, bad[0]) for pattern in TIMES.values()):
                shown += " (for rows that are near in time, use --within)"
            return f" Its first value that is not a number is {shown}."
    return ""


def listing_columns(work: Callable[[bool], Any], whole: bool) -> Any:
    """Call `work` with `whole`; after an error about columns, call it with True."""
    try:
        return work(whole)
    except (ColumnError, OptionTypeError):
        if whole:
            raise
        return work(True)


def options_of_command(command: click.Command | None) -> list[str]:
    found = [] if command is None else command.params
    return [str(one.name) for one in found if isinstance(one, click.Option)]


SYNONYMS = {
    "cluster": "dbscan",
    "clusters": "dbscan",
    "knn-join": "knn",
    "nearest": "knn",
    "duplicates": "dedup",
    "deduplicate": "dedup",
    "drop-near-duplicates": "dedup",
    "count": "count-pairs",
    "neighbors": "counts",
    "neighbor-counts": "counts",
    "texts": "sets self-join",
    "text": "sets self-join",
    "set-self-join": "sets self-join",
    "set-join": "sets join",
    "similar": "sets self-join",
    "edit-self-join": "strings self-join",
    "edit-join": "strings join",
    "fuzzy": "strings join",
    "levenshtein": "strings self-join",
    "names": "strings self-join",
    "delete": "update",
    "remove": "update",
    "add": "update",
    "radius": "self-join",
    "pairs": "self-join",
    "explain": "plan",
    "profile": "plan",
}
"""A word that users may type -> the command that they probably want."""


def near_commands(name: str, names: Iterable[str]) -> str:
    """Return a question that suggests commands with similar names or meanings; "" if
    there are none.
    """
    words, key = list(names), name.lower().replace("_", "-")
    found = get_close_matches(key, words, 3, 0.6)
    near = [key, *get_close_matches(key, SYNONYMS, 1, 0.6)] if not found else [key]
    meant = next((SYNONYMS[one] for one in near if one in SYNONYMS), None)
    if meant in words and meant not in found:
        found.insert(0, str(meant))
    return f" Did you mean {' or '.join(found)}?" if found else ""


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """Return the commands of a group and of its subgroups. A key has the words of a
    command: "index make".
    """
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= {f"{name} {own}": one for own, one in command.commands.items()}
        else:
            found[name] = command
    return found


class NamedCommands(click.Group):
    """A group of commands that suggests similar commands if a command is unknown."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            group = "" if ctx.parent is None else f"{self.name} "
            near = near_commands(name, commands_of(self))
            raise click.UsageError(f"There is no command {group}{name}.{near}", ctx)
        return super().resolve_command(ctx, args)


OTHER_EXAMPLES = {
    "compile": "--verbs self_join,dbscan --dims 2,3",
    "index make": "places.csv --eps 0.5 --on x,y --id id --path grown",
    "index update": "grown tonight.csv --if-exists replace -o changes.parquet",
    "index pairs": "grown -o pairs.parquet",
    "index changes": "grown --since 1 -o changes.parquet",
    "index history": "grown",
    "index check": "grown",
}
"""Commands that belong to no verb -> the arguments in their example, which the help
shows.
"""
