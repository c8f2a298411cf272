"""Make command-line options from the requests of the verbs, and parse their values."""

from __future__ import annotations

import codecs
import contextlib
import csv
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from dask.utils import parse_bytes

from dask_simjoin.calls.decorators import options_of
from dask_simjoin.catalog import HOME, LIBRARIES
from dask_simjoin.cli.csv_files import CsvFormat
from dask_simjoin.cli.csv_types import (
    DECIMALS,
    POINT,
    CsvColumns,
    Range,
)
from dask_simjoin.cli.messages import TOKENIZERS, in_words
from dask_simjoin.cli.running import SCHEDULERS, THREADS
from dask_simjoin.cli.sources import ERROR, FORMATS, TableReader
from dask_simjoin.metrics.distances import METRICS
from dask_simjoin.metrics.norms import Columns, Frame
from dask_simjoin.request.clusters import WORDS
from dask_simjoin.request.columns import ROW_ID
from dask_simjoin.request.messages import COMMA
from dask_simjoin.request.options import Keep
from dask_simjoin.request.tolerances import is_of_numbers
from dask_simjoin.request.units import parsed
from dask_simjoin.sets.requests import AnyTokenizer
from dask_simjoin.sets.tokens import NAMED, QGrams, Words

KERNELS = "dask_simjoin.engine.cpu.kernels.jit"
"""Name of the logger that says that kernels are compiled."""


class EchoHandler(logging.Handler):
    """Prints log lines to the standard error stream, above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


@contextlib.contextmanager
def log_lines(verbose: bool, quiet: bool) -> Iterator[None]:
    """Print log lines within a block: all, or only that kernels are compiled, or none."""
    if quiet and not verbose:
        yield
        return
    handler = EchoHandler()
    logger = logging.getLogger("dask_simjoin" if verbose else KERNELS)
    if verbose:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class OneOf(click.Choice):  # type: ignore[type-arg]
    """Choices for help and completion. Other values are not refused here, because the
    verb's own error explains more.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        return value


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """Values that a function converts from text. `name`: placeholder of the value in
    the help.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        return self._parse(value) if isinstance(value, str) else value


def split_names(text: str) -> list[str]:
    """Split text at commas. A name with a comma is put in double quotes."""
    # one name may begin with a space
    return next(csv.reader([text], skipinitialspace="," in text), [])


def number(text: str, kind: type[int] | type[float]) -> Any:
    """Return text as a number, or unchanged if it is not a number."""
    try:
        return kind(text)
    except ValueError:
        return text


def parse_radii(text: str) -> Any:
    """Parse one distance, or several separated by commas, as in ``5 km,10 km``.

    A text such as "0,25 km" is returned unchanged, because its comma may be a decimal
    comma.
    """
    some = [number(one, float) for one in text.split(",")]
    several = len(some) > 1 and all(
        isinstance(one, float) or parsed(one) is not None for one in some
    )
    decimal = COMMA.fullmatch(text) is not None and not isinstance(some[-1], float)
    return some if several and not decimal else number(text, float)


def parse_tolerance(text: str) -> tuple[str, Any]:
    """Parse the tolerance of a column, such as ``time=10 min``, or a range, such as
    ``time=-1 h..0 h`` or ``time=..0 h``.
    """
    name, _, value = text.rpartition("=")
    if not name:
        raise click.BadParameter(
            f"{text!r} names no column; use COLUMN=TOLERANCE, such as 'time=10 min', "
            "'price=5 %', or a range such as 'time=-1 h..0 h'."
        )
    low, is_range, high = value.partition("..")
    if is_range:
        ends = (number(end, float) if end.strip() else None for end in (low, high))
        return name, tuple(ends)
    return name, number(value, float)


def parse_box(text: str) -> Any:
    """Parse a length, several separated by commas, or lengths of named columns, such as
    ``x=10,y=20``.
    """
    parts = split_names(text)
    named = any("=" in part for part in parts)
    cells = [part.rpartition("=") if named else ("", "", part) for part in parts]
    lengths = [
        None if one == "none" and not named else number(one, float) for *_, one in cells
    ]
    if any(isinstance(length, str) for length in lengths):
        raise click.BadParameter(
            f"{text!r} has a length that is not a number. Use one length, such as 10, "
            "or one for each column, such as 10,10,none (none: an open column). Or name "
            "columns, as in x=10,y=20."
        )
    if named:
        return {name: length for (name, *_), length in zip(cells, lengths, strict=True)}
    return lengths[0] if len(lengths) == 1 else lengths


NAMES = Parsed("columns", split_names)
TOLERANCES = Parsed("column=tolerance", parse_tolerance)
BOX = Parsed("lengths", parse_box)
RADIUS = Parsed("number|text", lambda text: number(text, float))
"""A number, a number with a unit, or the name of a column."""
RADII = Parsed("numbers|text", parse_radii)
WORD_OR_FALSE = Parsed("text|False", lambda text: False if text == "False" else text)
"""A word, the name of a column, or False."""
COUNT = Parsed("number", lambda text: number(text, int))
"""A number. An option may also stand alone, for one."""
SIZE = Parsed("bytes", lambda text: number(text, int))
"""A number of bytes, or text such as "64 MiB"."""


class MemorySize(click.ParamType):  # type: ignore[type-arg]
    """The memory of a worker in Dask's notation: "auto", or a text such as "4 GB"."""

    name = "bytes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        try:
            is_size = value == "auto" or parse_bytes(value) > 0
        except ValueError:
            is_size = False
        if not is_size:
            self.fail(
                f"{value!r} is not a memory size; use one such as '4 GB'.", param, ctx
            )
        return value


class Separator(click.ParamType):  # type: ignore[type-arg]
    """The character between the cells of a CSV file."""

    name = "character"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        one = {"\\t": "\t", "tab": "\t"}.get(value, value)
        if len(one) != 1 or not one.isascii() or one.isalnum() or one in '"\r\n':
            self.fail(
                f"{value!r} is not a separator; use one character, such as ';' or "
                "'\\t' for a tab.",
                param,
                ctx,
            )
        return one


class Encoding(click.ParamType):  # type: ignore[type-arg]
    """The name of a text encoding that Python knows."""

    name = "name"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        try:
            b"".decode(value)
            return codecs.lookup(value).name
        except LookupError:
            self.fail(
                f"{value!r} is not an encoding; use one such as latin-1, cp1252 or "
                "utf-16.",
                param,
                ctx,
            )


class _Decimal(Decimal):
    """A number that messages show as it was typed."""

    def __repr__(self) -> str:
        return str(self)


class _Fraction(Fraction):
    """A fraction that messages show as it was typed."""

    def __repr__(self) -> str:
        return str(self)


class Exact(click.ParamType):  # type: ignore[type-arg]
    """An exact number: .1 is 1/10, and 1/3 is one third."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        try:
            return _Fraction(value) if "/" in value else _Decimal(value)
        except (InvalidOperation, ValueError, ZeroDivisionError):
            self.fail(
                f"{value!r} is not a number; use one such as 0.8 or 4/5.", param, ctx
            )


class Tokens(click.ParamType):  # type: ignore[type-arg]
    """The name of a tokenizer, followed by its value and by "lower", as in
    "qgrams:3:lower".
    """

    name = "tokenizer"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "[words[:lower]|whitespace|delimiter:TEXT|qgrams:N[:lower]]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        name, colon, rest = value.partition(":")
        if value == "words:lower":
            return Words(lower=True)
        if name == "qgrams" and rest.endswith(":lower"):
            return QGrams(number(rest.removesuffix(":lower"), int), lower=True)
        if colon and name in NAMED:
            self.fail(f"{value!r} is not allowed; use {TOKENIZERS}.", param, ctx)
        return (name, number(rest, int)) if colon else name

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = ("words", "words:lower", "whitespace", "delimiter:", "qgrams:")
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def one_or_all(given: Sequence[Sequence[str]]) -> str | list[str]:
    """Collect the column names from all uses of a repeatable option. A single name is
    returned as text.
    """
    names = [name for some in given for name in some]
    return names[0] if len(names) == 1 else names


TABLE = "other"
"""Name of the option that takes a second table."""

WITHIN = "within"
"""Name of the option that takes tolerances of columns."""


NO_FLAGS = ("storage_options", "threads")
"""Options of verbs that commands do not have. `storage_options` may hold secrets, and
other users can see command lines. `threads` is only for frames in memory, but commands
read lazy tables: their --threads is for Dask.
"""


def taken_options(request: type) -> dict[str, Field[Any]]:
    """Return the options of a verb that its command has, by name."""
    own = {option.name: option for option in fields(request)}
    names = (one.name for one in options_of(request))
    return {name: own[name] for name in names if name not in NO_FLAGS}


def options_for(request: type) -> list[click.Option]:
    hints = get_type_hints(request)
    return [_option(own, hints[name]) for name, own in taken_options(request).items()]


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def given(ctx: click.Context, request: type) -> dict[str, Any]:
    """Return the options that the command line sets; the others keep the defaults of
    the request.
    """
    found: dict[str, Any] = {}
    hints = get_type_hints(request)
    for name in taken_options(request):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            value = ctx.params[name]
            if name == WITHIN:
                found[name] = _tolerances(value)
            else:
                found[name] = one_or_all(value) if hints[name] in LISTED else value
    return found


def _tolerances(given: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the tolerances by column; refuse a column that is named twice."""
    found: dict[str, Any] = {}
    for name, value in given:
        if name in found:
            raise click.BadParameter(
                f"--within names {name!r} twice; give each column one tolerance, or a "
                f"range such as '{name}=-1..2'."
            )
        found[name] = value
    return found


LISTED = (Columns, Keep)
"""Types of options that name columns."""

ON = ("on", "left_on", "right_on")
"""Options that name columns of coordinates or texts."""

IDS = ("id", "left_id", "right_id")
"""Options that name columns of row ids."""

GROUPS = ("by", "different")
"""Options that name columns whose values are only equal or different."""

PAIRED = ("by", "different", WITHIN)
"""Options whose columns may have different names in two tables, as in ``a=b``."""

NAMING = (*ON, *IDS, *GROUPS, "keep", "eps")
"""Options whose texts may name columns."""

LEFT, RIGHT = "left_", "right_"
"""How the names of options for one table begin."""

OTHER_NAME = (
    "In a join of two tables, LEFT=RIGHT names a column with different names in them."
)


def csv_columns(
    options: Mapping[str, Any], whole: bool, request: type, other: str = "none"
) -> CsvColumns:
    """Return the columns that a verb with these options uses.

    `whole`: whether the result has all columns. `request`: the request of the verb.
    `other`: how the names of options for the other table begin.
    """
    named = {
        option: {value} if isinstance(value, str) else set(value)
        for option, value in options.items()
        if _names_columns(option, value, request) and not option.startswith(other)
    }
    if WITHIN in options:
        named[WITHIN] = {*options[WITHIN]}
    for option in PAIRED:
        if option in named:
            named[option] = _in_table(named[option], other)
    times = frozenset(named.get(WITHIN, ()))
    tolerances = options.get(WITHIN, {})
    of_times = {name for name, one in tolerances.items() if not is_of_numbers(one)}
    durations = frozenset(_in_table(of_times, other))
    ids = set() if whole else {ROW_ID}
    for option in (*IDS, *GROUPS):
        ids |= named.pop(option, set())
    points = next((options[name] for name in ON if name in named), ())
    ranges = ranges_of(options.get("metric"))
    # every numeric column is a coordinate
    if not points:
        return CsvColumns(
            ids=frozenset(ids), times=times, durations=durations, ranges=ranges
        )
    # `keep` names columns of pairs, or the column whose largest value is kept
    kept = named.pop("keep", set()) if _carries_columns(request) else set()
    compares_texts = not hasattr(request, "metric")
    texts: set[str] = set()
    if compares_texts:
        texts = texts.union(*(named.pop(name, set()) for name in ON))
    numbers = [
        names
        for option, names in named.items()
        if option not in ("keep", WITHIN) and not compares_texts
    ]
    inferred = frozenset().union(*named.values())
    return CsvColumns(
        inferred,
        frozenset(ids - texts),
        None if whole else inferred | ids | kept | texts,
        frozenset().union(*numbers),
        points=(points,) if isinstance(points, str) else tuple(points),
        ranges=ranges,
        times=times,
        durations=durations,
    )


def _in_table(names: set[str], other: str) -> set[str]:
    """Add the names in one table to names such as ``yob=birth_year``. `other`: see
    `csv_columns`.
    """
    pairs = [pair for name in names for pair in _cuts(name)]
    return names | {right if other == LEFT else left for left, right in pairs}


def _names_columns(option: str, value: Any, request: type) -> bool:
    """Return whether a value of an option is the name of a column, or a list of names."""
    if option == "keep" and value in WORDS and not _carries_columns(request):
        return False
    return option in NAMING and isinstance(value, (str, list))


def _carries_columns(request: type) -> bool:
    """Return whether `keep` names columns of pairs. Otherwise it says which row to keep
    of several near rows.
    """
    return bool(get_type_hints(request).get("keep") == Keep)


def with_pairs(options: dict[str, Any], tables: Sequence[Frame]) -> dict[str, Any]:
    """Return the options with pairs of names instead of texts such as
    ``yob=birth_year``. A text that names a column stays.
    """
    left, right = ({*table.columns} for table in (tables[0], tables[-1]))

    def paired(name: str) -> Any:
        cuts = _cuts(name)
        if name in left | right or not cuts:
            return name
        fitting = (cut for cut in cuts if cut[0] in left and cut[1] in right)
        return next(fitting, cuts[0])

    found = dict(options)
    for option in PAIRED:
        value = options.get(option)
        if isinstance(value, Mapping):
            found[option] = {paired(name): one for name, one in value.items()}
        elif value is not None:
            names = [value] if isinstance(value, str) else value
            found[option] = [paired(name) for name in names]
    return found


def pairs_of(options: Mapping[str, Any], some: Sequence[str]) -> list[tuple[Any, Any]]:
    """Return the columns of some options in the left and the right table. `options`:
    with pairs of names.
    """
    names = [name for option in some for name in options.get(option, ())]
    return [name if isinstance(name, tuple) else (name, name) for name in names]


def _cuts(name: str) -> list[tuple[str, str]]:
    """Return the texts before and after each ``=`` in a name."""
    ends = [k for k, letter in enumerate(name) if letter == "="]
    return [(name[:k], name[k + 1 :]) for k in ends]


def ranges_of(metric: str | None) -> tuple[Range, ...]:
    """Return the allowed values of the coordinates, if the metric limits them."""
    kind = METRICS.get(metric or "")
    if kind is None:
        return ()
    return tuple(
        Range(name, *limits)
        for name, limits in zip(kind.columns, kind.limits, strict=False)
    )


HELP = {
    "by": f"Columns that must be equal in both rows. {OTHER_NAME}",
    "different": f"Columns that must differ in both rows. {OTHER_NAME}",
    "tokenizer": "How texts become sets of tokens; default: words, for a column of texts.",
    WITHIN: "How far apart both rows may be in a further column, such as 'time=10 min' "
    "or 'price=5 %'. A range such as 'time=-1 h..0 h' is for the right row's value minus "
    "the left row's. In 'time=..0 h' the lower side is open. Repeat the option for several "
    "columns. In a join of two tables, LEFT=RIGHT=TOLERANCE names a column with "
    "different names in them.",
    "box": "Length of a periodic box for all columns of coordinates. Or lengths such as "
    "10,10,none, where none is an open column, or x=10,y=20.",
}
"""Option -> its help, if it differs from the help in Python."""

MENTIONED_OPTIONS = ("method", "tokenizer", "pairs", "how", "metric")
"""Options that the help of other options mentions; the mentions are rewritten as flags.
"""


def _option(field: Field[Any], hint: Any) -> click.Option:
    about: Mapping[str, Any] = field.metadata
    text = HELP.get(field.name) or in_words(
        f"{about['help'][0].upper()}{about['help'][1:]}.", MENTIONED_OPTIONS
    )
    how: dict[str, Any] = {"help": text}
    if field.default is MISSING:
        how["required"] = True
    else:
        how |= {
            "default": field.default,
            "show_default": field.default not in (None, False),
        }
    if hint is bool:
        how |= {"is_flag": True}
    elif hint == bool | int:
        how |= {"is_flag": False, "flag_value": True, "type": COUNT}
    elif hint in LISTED or field.name == TABLE:
        how |= {"type": NAMES if hint in LISTED else click.Path(), "multiple": True}
    elif hint == tuple[str, str]:
        how |= {"nargs": 2}
    elif field.name == WITHIN:
        how |= {"type": TOLERANCES, "multiple": True}
    elif field.name == "box":
        how |= {"type": BOX}
    else:
        how |= {
            "type": WORD_OR_FALSE
            if field.name == "keep"
            else _kind(hint, about["choices"])
        }
    short = [f"-{field.name}"] if len(field.name) == 1 else []
    return click.Option([flag(field.name), *short, field.name], **how)


def _kind(hint: Any, choices: tuple[str, ...]) -> Any:
    kinds = set(get_args(hint)) or {hint}
    if choices:
        return OneOf(choices)
    if hint == AnyTokenizer:
        return Tokens()
    if Decimal in kinds:
        return Exact()
    if {float, str} <= kinds:
        return RADII if Sequence[float] in kinds else RADIUS
    if float in kinds and any(get_origin(kind) is Literal for kind in kinds):
        return RADIUS
    if {int, str} <= kinds:
        return SIZE
    return next((kind for kind in (int, float) if kind in kinds), str)


WRITTEN = [
    click.Option(
        ["-o", "--output"],
        required=True,
        help="Path of the output: NAME.parquet, NAME.csv or NAME.tsv for one file, NAME for a folder of "
        "files, - for standard output.",
    ),
    click.Option(
        ["--format"],
        type=click.Choice(FORMATS),
        help="Format of the output; default: by the ending of its name.",
    ),
    click.Option(
        ["--overwrite"],
        is_flag=True,
        help="Replace an existing output: a file, or a folder that this program wrote.",
    ),
    click.Option(
        ["--csv-safe"],
        is_flag=True,
        help="Put ' before CSV texts that a spreadsheet would run as formulas.",
    ),
]

READ = [
    click.Option(
        ["--input-format"],
        type=click.Choice(FORMATS),
        help="Format of the input tables; default: by the endings of their names.",
    ),
    click.Option(
        ["--separator"],
        type=Separator(),
        help="Character between the cells of CSV input, such as ';' or '\\t'; default: a comma, and in .tsv "
        "files a tab.",
    ),
    click.Option(
        ["--encoding"],
        type=Encoding(),
        default="utf-8",
        show_default=True,
        help="Encoding of CSV input, such as latin-1.",
    ),
    click.Option(
        ["--decimal"],
        type=click.Choice(DECIMALS),
        default=POINT,
        show_default=True,
        help="Decimal mark of numbers in CSV input.",
    ),
    click.Option(
        ["--bad-rows"],
        metavar="[error|skip|FILE]",
        default=ERROR,
        show_default=True,
        help="Treatment of rows with texts among numbers, with an impossible latitude or longitude, or, in "
        "CSV files, with too many or too few cells. A file lists these rows, and the rows that --dropna "
        "leaves out.",
    ),
]


OTHER_READ = [
    click.Option(
        ["--other-separator"],
        type=Separator(),
        help="Separator of the CSV table of --other; default: as --separator.",
    ),
    click.Option(
        ["--other-encoding"],
        type=Encoding(),
        help="Encoding of the CSV table of --other; default: as --encoding.",
    ),
    click.Option(
        ["--other-decimal"],
        type=click.Choice(DECIMALS),
        help="Decimal mark of the CSV table of --other; default: as --decimal.",
    ),
]


def table_reader(params: Mapping[str, Any]) -> TableReader:
    """Return the reader for the options of `READ` and `OTHER_READ`."""
    written = CsvFormat(
        params["separator"],
        params["encoding"],
        params["decimal"],
        skips=params["bad_rows"] != ERROR,
    )
    other = {
        name: params[f"other_{name}"]
        for name in ("separator", "encoding", "decimal")
        if params.get(f"other_{name}") is not None
    }
    return TableReader(params["input_format"], written, replace(written, **other))


SHARED = [
    click.Option(["-y", "--yes"], is_flag=True, help="Run large joins without asking."),
    click.Option(
        ["--scheduler"],
        type=OneOf(SCHEDULERS),
        default=THREADS,
        show_default=True,
        help="Name of a Dask scheduler, or address of a running scheduler, such as tcp://host:8786.",
    ),
    click.Option(
        ["--workers"],
        type=click.IntRange(1),
        help="Number of worker processes. Starts a cluster on this machine.",
    ),
    click.Option(
        ["--memory-limit"],
        type=MemorySize(),
        help="Memory of each worker process, such as '4 GB'. Starts a cluster on this machine.",
    ),
    click.Option(
        ["--threads"],
        type=click.IntRange(1),
        help="Number of threads; on a cluster that starts, of each worker. By default, all cores are used.",
    ),
    click.Option(
        ["--backend"],
        type=click.Choice(LIBRARIES),
        default=HOME,
        show_default=True,
        help="Library that holds the tables: pandas for CPUs, cudf for GPUs.",
    ),
    click.Option(["--json"], is_flag=True, help="Print plan and report as JSON."),
    click.Option(
        ["-q", "--quiet"], is_flag=True, help="Print only the result and errors."
    ),
    click.Option(
        ["-v", "--verbose"], is_flag=True, help="Show log lines of this package."
    ),
]
