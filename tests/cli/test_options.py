"""Commands have the options of their verbs' requests, all of them, and read the words
that are given.
"""

import dataclasses
import logging
import re
import typing
from collections.abc import Hashable
from decimal import Decimal
from fractions import Fraction

import click
import pytest

from dask_simjoin.api.verbs import VERBS
from dask_simjoin.cli.main import cli
from dask_simjoin.cli.options import (
    KERNELS,
    flag,
    given,
    log_lines,
    split_names,
    taken_options,
)
from dask_simjoin.engine.cpu.kernels import jit
from dask_simjoin.metrics.norms import Columns
from tools.verb_tables import COMMANDS, of_verbs


@pytest.fixture(params=of_verbs(), ids=lambda name: " ".join(name))
def named(request):
    """A command and the request of its verb."""
    return COMMANDS[request.param], COMMANDS[request.param].request


WORDS = {
    "eps": ("1.5", 1.5),
    "p": ("inf", float("inf")),
    "threshold": ("4/5", Fraction(4, 5)),
    "tokenizer": ("qgrams:3", ("qgrams", 3)),
    "blocksize": ("64 MiB", "64 MiB"),
    "suffixes": (("_a", "_b"), ("_a", "_b")),
    "other": ("a.csv", ("a.csv",)),
    "max_eps": ("2", 2.0),
    "max_distance": ("2", 2.0),
    "cluster_selection_epsilon": ("2", 2.0),
    "within": ("a=b=-1 h..2", {"a=b": ("-1 h", 2.0)}),
    "box": ("1.5,none", [1.5, None]),
}


def words_of(field, hint):
    """Words for an option, and what they stand for."""
    if field.name in WORDS:
        return WORDS[field.name]
    if field.metadata["choices"]:
        return field.metadata["choices"][-1], field.metadata["choices"][-1]
    if hint == Columns:
        return 'x,"a,b"', ["x", "a,b"]
    if field.name == "keep" and hint == Hashable:
        return "False", False
    if hint is bool:
        return (), True
    kinds = {*typing.get_args(hint), hint}
    return (
        ("7", 7) if int in kinds else ("2", 2.0) if float in kinds else ("name", "name")
    )


def test_every_option_of_a_verb_is_reachable(named):
    command, request = named
    hints, words, wanted = typing.get_type_hints(request), ["in.csv"], {}
    for field in taken_options(request).values():
        said, wanted[field.name] = words_of(field, hints[field.name])
        words += [flag(field.name), *([said] if isinstance(said, str) else said)]
    if "output" in {one.name for one in command.params}:
        words += ["-o", "out.csv"]
    ctx = command.make_context("x", words)
    assert given(ctx, request) == wanted
    assert ctx.params["tables"] == ("in.csv",)


def test_what_is_not_given_has_the_default_of_the_verb(named):
    command, request = named
    needed = [
        f for f in dataclasses.fields(request) if f.default is dataclasses.MISSING
    ]
    hints = typing.get_type_hints(request)
    words = [
        word for f in needed for word in (flag(f.name), words_of(f, hints[f.name])[0])
    ]
    output = (
        ["-o", "out.csv"] if "output" in {one.name for one in command.params} else []
    )
    ctx = command.make_context("x", ["in.csv", *words, *output])
    assert set(given(ctx, request)) == {f.name for f in needed}
    for f in needed:
        rest = [
            w for w in words if w not in (flag(f.name), words_of(f, hints[f.name])[0])
        ]
        with pytest.raises(click.MissingParameter):
            command.make_context("x", ["in.csv", *rest, *output])


def test_columns_may_be_named_one_by_one():
    command = cli.commands["count-pairs"]
    ctx = command.make_context(
        "x", ["t.csv", "--eps", "radius", "--on", "x", "--on", "y"]
    )
    assert given(ctx, VERBS["count_pairs"].request) == {
        "eps": "radius",
        "on": ["x", "y"],
    }
    ctx = command.make_context("x", ["t.csv", "--eps", "1,2.5"])
    assert given(ctx, VERBS["count_pairs"].request) == {"eps": [1.0, 2.5]}
    ctx = command.make_context("x", ["t.csv", "--eps", "500 m,2km"])
    assert given(ctx, VERBS["count_pairs"].request) == {"eps": ["500 m", "2km"]}
    ctx = command.make_context("x", ["t.csv", "--eps", "0,25 km"])
    assert given(ctx, VERBS["count_pairs"].request) == {"eps": "0,25 km"}
    ctx = command.make_context("x", ["t.csv", "--eps", "a,1"])
    # the name of a column
    assert given(ctx, VERBS["count_pairs"].request) == {"eps": "a,1"}
    ctx = command.make_context("x", ["t.csv", "--eps", "1", "--on", "embedding"])
    assert given(ctx, VERBS["count_pairs"].request)["on"] == "embedding"


@pytest.mark.parametrize(
    ("words", "value"),
    [("0.1", Decimal("0.1")), ("1/3", Fraction(1, 3)), ("3", Decimal(3))],
)
def test_thresholds_are_taken_as_they_are_written(words, value):
    command = cli.commands["sets"].commands["count-pairs"]
    ctx = command.make_context("x", ["t.csv", "--on", "tags", "--threshold", words])
    assert given(ctx, VERBS["count_set_pairs"].request)["threshold"] == value


def test_thresholds_that_are_none():
    command = cli.commands["sets"].commands["count-pairs"]
    with pytest.raises(click.BadParameter, match="'high' is not a number"):
        command.make_context("x", ["t.csv", "--on", "tags", "--threshold", "high"])


@pytest.mark.parametrize("words", ["10x10", "10,abc", "x=10,y", "x=none"])
def test_lengths_of_a_box_that_are_no_numbers(words):
    command = cli.commands["count-pairs"]
    advice = r"such as 10,10,none \(none: an open column\).* x=10,y=20"
    with pytest.raises(click.BadParameter, match=f"'{words}' has .*{advice}"):
        command.make_context("x", ["t.csv", "--eps", "1", "--box", words])


@pytest.mark.parametrize(
    ("verbose", "quiet", "said"),
    [
        (False, True, ""),
        (False, False, "compiling\n"),
        (True, False, "TIME compiling\nTIME planned\nTIME loaded\n"),
    ],
)
def test_log_lines(verbose, quiet, said, capsys):
    compiler = logging.getLogger(KERNELS)
    with log_lines(verbose, quiet):
        compiler.info("compiling")
        logging.getLogger("dask_simjoin").info("planned")
        compiler.debug("loaded")
    found = re.sub(r"(?m)^\d{4}-\d\d-\d\d [\d:,]+", "TIME", capsys.readouterr().err)
    assert found == said and compiler is jit.LOG


def test_only_keep_takes_false():
    """A column of sets may be called "False", whereas `--keep False` keeps no row of a
    group.
    """
    options = {
        option.name: option for option in cli.commands["sets"].commands["dedup"].params
    }
    assert options["on"].type.convert("False", None, None) == "False"
    assert options["keep"].type.convert("False", None, None) is False


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x", ["x"]),
        ("lat, lon", ["lat", "lon"]),
        (" b ", [" b "]),
        ('"a,b", c', ["a,b", "c"]),
        ("", []),
    ],
)
def test_names_are_separated_by_commas(text, names):
    assert split_names(text) == names
