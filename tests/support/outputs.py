"""Python blocks of the pages in docs/, and the output that a page shows under them.

A block's output is what it prints and, as in a notebook, the value of its last line. A
page shows it in a text block behind a mark that no reader sees::

    <!-- output -->
    ```text
    14092
    ```

`<!-- output: numbers vary -->` marks output whose measurements depend on the machine. Its
words and integers are compared. Decimal numbers, numbers with a unit of time or bytes,
and progress bars are not. `<!-- output: one run -->` marks output whose lines depend on
the run: only its first line is compared, in the same way.

`python -m tests.support.outputs --write PAGE ...` runs the pages and writes the output
under each block.
"""

import argparse
import ast
import contextlib
import importlib
import importlib.util
import io
import re
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tests.support.paths import ROOT

NEEDS = re.compile(r"<!-- needs: (\w+) -->")
OUTPUT = re.compile(r"<!-- output(?:: (numbers vary|one run))? -->")
MEASURED = re.compile(
    r"(?<![\d.,])\d[\d,]*(?:\.\d+(?: UNIT)?| UNIT)".replace(
        "UNIT", r"(?:[mu]?s|[kMGT]?i?B)\b"
    )
)
"""Matches a decimal number, or a number with a unit of time or bytes."""

WIDTH = 72
"""Width of shown output; longer lines are wrapped."""


@dataclass(frozen=True)
class Block:
    """A Python block of a page. Lines are counted from 1, as editors do."""

    needs: str | None
    """The library that the block needs."""
    start: int
    """Line of the fence above the code."""
    text: str
    end: int
    """Line of the fence below the code."""
    output: str | None = None
    """Output that the page shows under the block, or None."""
    varies: str | None = None
    """How the output depends on the machine: "numbers vary", "one run", or not at all.
    """
    output_end: int = 0
    """Line of the fence below the output, or below the code if there is no output."""


def blocks(page):
    """Return the Python blocks of a page."""
    lines = page.read_text().splitlines()
    found, needs, at = [], None, 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if marked := NEEDS.fullmatch(line):
            needs = marked[1]
        if line.startswith("```"):
            start, at = at, _end(page, lines, at)
            if line == "```python":
                found.append(_block(page, lines, needs, start, at))
            needs = None
    return found


def _end(page, lines, start):
    """Return the line of the fence that ends the block whose first fence is in line
    `start`.
    """
    for number in range(start, len(lines)):
        if lines[number] == "```":
            return number + 1
    raise AssertionError(f"{page.name}: the block from line {start} on has no end")


def _block(page, lines, needs, start, end):
    text = "\n".join(lines[start : end - 1])
    mark = next((at for at in range(end, min(end + 2, len(lines))) if lines[at]), end)
    marked = OUTPUT.fullmatch(lines[mark]) if mark < len(lines) else None
    if not marked:
        return Block(needs, start, text, end, output_end=end)
    fence = mark + 1
    assert lines[fence : fence + 1] == ["```text"], (
        f"{page.name}, line {mark + 1}: a text block must follow"
    )
    last = _end(page, lines, fence + 1)
    shown = "\n".join(lines[fence + 1 : last - 1])
    return Block(needs, start, text, end, shown, marked[1], last)


def run(page, block, names):
    """Run a block with these global names. Return its output as a narrow terminal shows
    it.
    """
    # empty lines come first, so that line numbers in a traceback match the page
    tree = ast.parse("\n" * block.start + block.text, str(page))
    last = (
        tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pd.option_context("display.width", WIDTH):
        exec(compile(tree, str(page), "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), str(page), "eval"), names)
            if value is not None:
                print(value if isinstance(value, str) else repr(value))
    # a terminal shows only the text after the last carriage return in a line
    lines = (
        line.rstrip().rpartition("\r")[2] for line in printed.getvalue().split("\n")
    )
    return "\n".join(_wrapped(line.rstrip()) for line in lines).strip("\n")


def _wrapped(line):
    """Return a long line as several: the second begins below the value of a line such
    as `rows    3`.
    """
    label = re.match(r"  \S+(?: \S+)*  +", line)
    return textwrap.fill(
        line,
        WIDTH,
        subsequent_indent=" " * len(label[0]) if label else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def prints_alike():
    """Return whether this pandas prints lists and dates in tables as the pages show
    them.
    """
    return tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1)


def same(block, output):
    """Return whether the page shows this output."""
    if block.varies == "one run":
        return _words(block.output.partition("\n")[0]) == _words(
            output.partition("\n")[0]
        )
    if block.varies:
        return _words(block.output) == _words(output)
    return (block.output or "") == output


def _words(output):
    output = re.sub(r"^\[[# ]*\] \|.*$", "", output, flags=re.MULTILINE)
    output = MEASURED.sub("#", output)
    return re.sub(r"\s+", " ", output).strip()


def written(page, outputs):
    """Return a page's text with these outputs, {block: output}, under their blocks."""
    lines = page.read_text().splitlines()
    for block, output in sorted(outputs.items(), key=lambda one: -one[0].start):
        varies = f": {block.varies}" if block.varies else ""
        shown = (
            ["", f"<!-- output{varies} -->", "```text", *output.splitlines(), "```"]
            if output
            else []
        )
        if not (block.varies and block.output and same(block, output)):
            lines[block.end : block.output_end] = shown
    return "\n".join(lines) + "\n"


def outputs_of(page):
    """Run a page in an empty folder. Return {block: output} of the blocks whose library
    is there.
    """
    names, found = {"__name__": "__main__"}, {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("examples").symlink_to(ROOT / "examples")
        every = sorted(blocks(page), key=lambda block: block.needs is not None)
        for block in every:
            if block.needs is None or importlib.util.find_spec(block.needs):
                if block.needs == "matplotlib":
                    importlib.import_module("matplotlib").use("Agg")
                found[block] = run(page, block, names)
    return found


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the outputs instead of printing the page",
    )
    options = parser.parse_args(arguments)
    for page in map(Path.resolve, options.pages):
        text = written(page, outputs_of(page))
        if options.write:
            page.write_text(text)
        else:
            print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
