"""What README.md and the pages in docs/ show runs as it stands, links lead somewhere,
and tables are true.
"""

import ast
import dataclasses
import importlib.util
import inspect
import json
import os
import re
import runpy
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from benchmarks import tables
from benchmarks.papers import picture
from benchmarks.tables import charts
from benchmarks.tables.comparisons import Comparison
from dask_simjoin import errors
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.cli.main import CODES
from tests.cli import test_commands as commands
from tests.support import outputs
from tests.support.outputs import blocks
from tests.support.paths import ROOT
from tools import error_table
from tools.generate import stale

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = [page for page in PAGES if "explanation" not in page.parts]
"""Pages that show the output of each block."""

RUN_SLOWLY = (
    "docs/guide/hdbscan.md with matplotlib",
    "docs/guide/nightly.md",
)
"""Pictures of thousands of bars, whose plots `tests/cluster/test_plots.py` tests; and
commands in processes of their own, as `tests/cli/test_indexes.py` runs them in one.
"""

LINK = re.compile(r"\]\(([^)\s]+)\)")


def cases():
    """Each page as it is, and once more for each library that some of its blocks need."""
    for page in PAGES:
        libraries = dict.fromkeys(block.needs for block in blocks(page))
        for needs in libraries:
            marks = [pytest.mark.gpu] if needs == "gpu" else []
            name = str(page.relative_to(ROOT)) + (f" with {needs}" if needs else "")
            if name in RUN_SLOWLY:
                marks.append(pytest.mark.slow)
            yield pytest.param(page, needs, id=name, marks=marks)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function: run the blocks of a page that need a library, after those that need
    none (None).

    It returns the page's global names, and what is wrong with outputs that the page
    shows.
    """
    ran = {}

    def run(page, library):
        if (page, library) in ran:
            return ran[page, library]
        names = {"__name__": "__main__"} if library is None else run(page, None)[0]
        folder = ran.setdefault(page, tmp_path_factory.mktemp(page.stem))
        if library is None:
            (folder / "examples").symlink_to(ROOT / "examples")
        wrong, shows = [], page in SHOWN and library != "gpu" and outputs.prints_alike()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            for block in blocks(page):
                if block.needs == library:
                    output = outputs.run(page, block, names)
                    if shows and not outputs.same(block, output):
                        wrong.append(
                            f"{page.name}, block of line {block.start}:\n{output}"
                        )
        ran[page, library] = names, wrong
        return ran[page, library]

    return run


@pytest.mark.parametrize(("page", "library"), list(cases()))
def test_code(page, library, run):
    if library not in (None, "gpu"):
        pytest.importorskip(library)
    if library == "matplotlib":
        importlib.import_module("matplotlib").use("Agg")
    _, wrong = run(page, library)
    assert wrong == [], (
        f"python -m tests.support.outputs --write {page.relative_to(ROOT)}"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_with_output_are_narrow(page):
    found = [
        block
        for block in blocks(page)
        if any(one.output is not None for one in blocks(page))
    ]
    lines = [
        line for block in found for line in f"{block.text}\n{block.output}".splitlines()
    ]
    assert [line for line in lines if len(line) > outputs.WIDTH] == []


def test_workers_that_import_an_example_write_no_files():
    heads = [
        block.text.split("if __name__")[0]
        for page in PAGES
        for block in blocks(page)
        if "if __name__" in block.text
    ]
    assert len(heads) > 1 and [head for head in heads if ".to_" in head] == []


def anchors(page):
    """What headings are called in links, as GitHub does it."""
    heads = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M
    )
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "CONTRIBUTING.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links(page):
    for link in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.S)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = Path(os.path.normpath(page.parent / path)) if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert ROOT in (target, *target.parents), (
            f"{page.name} links out of the repository: {link}"
        )
        if anchor:
            assert anchor in anchors(target), (
                f"{page.name} links to {link}, which has no such heading"
            )


def test_every_page_is_in_a_table_of_contents():
    """Else the site has no way to it."""
    index = ROOT / "docs" / "index.md"
    seen = {str(index)}
    for page in PAGES[1:]:
        for named in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.S):
            entries = [line for line in named.splitlines() if line and line[0] != ":"]
            seen |= {os.path.normpath(page.parent / f"{entry}.md") for entry in entries}
    assert [str(page) for page in PAGES[1:] if str(page) not in seen] == []


def test_readme_and_the_first_page_have_the_same_first_command():
    pages = (ROOT / "README.md", ROOT / "docs" / "index.md")
    commands = [
        re.search(r"```sh\n(.*?)```", page.read_text(), re.S)[1] for page in pages
    ]
    assert commands[0] == commands[1]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 140


def test_pictures_are_small():
    pictures = list((ROOT / "docs" / "images").rglob("*.png"))
    assert pictures and all(picture.stat().st_size < 150_000 for picture in pictures)


def rows(page, title):
    """The rows of the table whose first line is this: lists of cells."""
    table = re.search(rf"^{re.escape(title)}\n((?:\|.*\n)+)", page.read_text(), re.M)[
        1
    ].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def calls(page):
    """The calls that a table of verbs shows: name -> parameters as text."""
    shown = " ".join(row[0] for row in rows(ROOT / page, "| verb | gives |"))
    return dict(re.findall(r"`(\w+)\((.*?)\)`", shown))


@pytest.mark.parametrize("page", ["README.md", "docs/reference/verbs.md"])
def test_calls_in_the_table_of_verbs_are_those_of_the_functions(page):
    for name, text in calls(page).items():
        parameters = list(inspect.signature(VERBS[name].function).parameters.values())[
            1:
        ]
        needed = [one.name for one in parameters if one.default is one.empty]
        shown = [
            one.strip() for one in text.replace("...", "").split(",") if one.strip()
        ]
        assert [one for one in shown if "=" not in one and one in needed] == needed, (
            name
        )
        defaults = {one.name: one.default for one in parameters}
        for option, _, default in (one.partition("=") for one in shown if "=" in one):
            assert ast.literal_eval(default) == defaults[option], f"{name}: {option}"
        assert {one.partition("=")[0] for one in shown} <= set(defaults), name


def test_what_is_made_from_the_tables_of_the_package_is_up_to_date():
    """The stubs, and tables of verbs, options, commands and errors in the
    documentation.
    """
    assert sorted(map(str, stale())) == [], "python -m tools.generate"
    assert set(calls("docs/reference/verbs.md")) == set(VERBS)


def test_exit_codes_are_those_of_the_program():
    codes = rows(ROOT / "docs" / "guide" / "command-line.md", "| exit code | means |")
    assert codes == [[str(code), text] for code, text in CODES.items()]


def test_errors_have_remedies():
    kinds = [
        *error_table.classes(errors.SimJoinError),
        *error_table.classes(errors.SimJoinWarning),
    ]
    assert [
        kind.__name__ for kind in kinds if "\n\nRemedy: " not in inspect.getdoc(kind)
    ] == []


@pytest.mark.parametrize(
    "page", tables.PAGES, ids=lambda page: str(page.relative_to(ROOT))
)
def test_tables_of_measurements_are_those_of_the_results(page):
    text = page.read_text()
    assert tables.written(text) == text, "python -m benchmarks.tables"


def test_tables_of_measurements_are_made():
    text = (ROOT / "docs" / "benchmarks" / "joins.md").read_text()
    pages = [page.read_text() for page in tables.PAGES]
    shown = {match["name"] for one in pages for match in tables.MARKED.finditer(one)}
    told = {name for one in pages for name in re.findall(r'cells\("([^"]+)"', one)}
    assert shown | told == set(tables.TABLES)
    assert tables.written(text.replace("| 29x |", "| 290x |")) == text
    assert "| 29x |" in text
    with pytest.raises(FileNotFoundError):
        tables.written(text.replace("joins/2026", "joins/1026"))


CHARTED = [page for page in tables.PAGES if charts.MARKED.search(page.read_text())]


@pytest.mark.parametrize("page", CHARTED, ids=lambda page: page.name)
def test_charts_of_measurements_are_those_of_the_results(page):
    text = page.read_text()
    drawn = charts.charts(text, tables.read)
    assert drawn and all(
        path.read_text() == picture for path, picture in drawn.items()
    ), "python -m benchmarks.tables"
    assert all(f"/images/benchmarks/{path.name})" in text for path in drawn)


def test_the_picture_of_a_paper_is_that_of_its_points():
    assert picture.PICTURE.read_text() == picture.drawn(), (
        "python -m benchmarks.papers.picture"
    )


def test_all_charts_are_shown():
    pages = "".join(page.read_text() for page in tables.PAGES)
    shown = {name for name, _ in charts.MARKED.findall(pages)}
    assert (
        shown == set(charts.CHARTS) == {path.stem for path in charts.FOLDER.iterdir()}
    )


def test_a_chart_has_a_row_for_each_measurement():
    found = [
        Comparison("a < b", "join", {"frame": 0.01}, {"SciPy": 0.5, "vesin": 0.7}),
        Comparison("c", "join", {"engine": 2.0}, {"faiss": 1.0}),
    ]
    root = ElementTree.fromstring(charts.drawn(found))
    texts = [one.text for one in root.iter() if one.tag.endswith("text")]
    assert {"a < b: 0.010 s, SciPy 0.500 s", "50x", "0.5x", "0.01 s", "10 s"} <= set(
        texts
    )


def test_the_front_page_of_benchmarks_is_short():
    page = ROOT / "docs" / "benchmarks.md"
    table = re.search(r"<!-- table: overview [^>]*-->\n((?:\|.*\n)+)", page.read_text())
    assert len(table[1].splitlines()) <= 40
    assert len(page.read_text().replace(table[1], "").split()) < 1_000


def test_a_block_that_fails_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "text\n```python\nx = 1\n```\n<!-- needs: numpy -->\n```python\ny = "
        "x\n```\n```\n>>> no\n```\n"
    )
    found = [(block.needs, block.start, block.text) for block in blocks(page)]
    assert found == [(None, 2, "x = 1"), ("numpy", 6, "y = x")]
    page.write_text("```python\nx = 1\n")
    with pytest.raises(AssertionError, match="no end"):
        blocks(page)


def test_outputs_are_written_and_compared(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "text\n```python\nx = 1\n```\n```python\nprint(x)\nx + 1\n```\nmore\n"
    )
    names = {}
    made = {block: outputs.run(page, block, names) for block in blocks(page)}
    page.write_text(outputs.written(page, made))
    assert page.read_text().endswith(
        "```\n\n<!-- output -->\n```text\n1\n2\n```\nmore\n"
    )
    first, second = blocks(page)
    assert (
        first.output is None
        and outputs.same(first, "")
        and not outputs.same(first, "1")
    )
    assert second.output == "1\n2"
    assert outputs.same(second, "1\n2") and not outputs.same(second, "1\n3")
    assert outputs.written(page, {first: "", second: "1\n2"}) == page.read_text()
    page.write_text(
        page.read_text().replace("<!-- output -->", "<!-- output: numbers vary -->")
    )
    second = blocks(page)[1]
    assert not outputs.same(second, "1\n3") and not outputs.same(second, "1\ntwo")
    varying = dataclasses.replace(second, output="3 rows, 1,024 B, 2.5 s, 16 bytes")
    assert outputs.same(varying, "3 rows, 2 kiB, 110 ms, 16 bytes")
    assert not outputs.same(varying, "4 rows, 2 kiB, 110 ms, 16 bytes")
    assert not outputs.same(varying, "3 rows, 2 kiB, 110 ms, 24 bytes")
    page.write_text(page.read_text().replace("numbers vary", "one run"))
    second = blocks(page)[1]
    assert outputs.same(second, "1\ntwo") and not outputs.same(second, "2\ntwo")


def texts(page):
    """Return the text blocks of a page that none of its Python blocks prints."""
    lines, printed = page.read_text().splitlines(), set()
    for block in blocks(page):
        if block.output is not None:
            printed.add(block.output_end)
    starts = [at for at, line in enumerate(lines, 1) if line == "```text"]
    ends = [lines.index("```", at) + 1 for at in starts]
    return [
        " ".join(" ".join(lines[start : end - 1]).split())
        for start, end in zip(starts, ends, strict=True)
        if end not in printed
    ]


def test_commands_print_what_pages_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = [f"{row},1.5,8.5" for row in range(7010)]
    Path("stops.csv").write_text("\n".join(["id,lat,lon", *good, "4711,north,8.5\n"]))
    on = ("--on", "lat,lon", "--scheduler", "synchronous")
    error = commands.run("self-join", "stops.csv", *on, "--eps", "1", "-o", "p", code=3)
    table = pd.DataFrame({"lat": np.minimum(np.arange(999.0), 996), "lon": 0.0})
    table.loc[:2, "lat"], table.loc[3, "lon"] = np.nan, np.inf
    table.to_csv("table.csv", index=False)
    options = ("--eps", "0.5", "--dropna", "-o", "rest.csv")
    monkeypatch.setattr(commands.commands, "compiled_here", lambda: False)
    wrote = commands.run("dedup", "table.csv", *on, *options)
    recording = tables.RESULTS / "shell" / "2026-11-22-60m-busy-epyc.cast"
    parts = [json.loads(line)[2] for line in recording.read_text().splitlines()[1:]]
    ended = re.sub(r"\x1b\[[\d;]*m", "", "".join(parts)).rpartition(" joining ")
    printed = [error.output, ended[1] + ended[2], wrote.output.splitlines()[-1]]
    shown = [text for page in PAGES for text in texts(page)]
    assert shown[:2] == [" ".join(one.split()) for one in printed[:2]]
    seconds = re.compile(r"in \d+\.\d s")
    assert [seconds.sub("", one) for one in shown[2:]] == [seconds.sub("", printed[2])]


def test_links_to_other_projects_have_whole_addresses(tmp_path, monkeypatch):
    made = runpy.run_path(str(ROOT / "docs" / "_ext" / "inventories.py"))
    monkeypatch.setitem(made["inventories"].__globals__, "FOLDER", tmp_path)
    for name, (url, (_, path)) in made["inventories"]().items():
        lines = (
            zlib.decompress(Path(path).read_bytes().split(b"zlib.\n", 1)[1])
            .decode()
            .splitlines()
        )
        assert url.startswith("https://") and len(lines) == len(
            made["PROJECTS"][name][1]
        )
        assert all(
            line.split()[3].endswith(f"#{line.split()[0]}") and "$" not in line
            for line in lines
        )
