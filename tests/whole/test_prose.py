"""Pages, docstrings and messages are written in plain words: see tests/support/prose.py
for the rules.
"""

import pytest

from tests.support import prose
from tests.support.paths import ROOT

ROOMS: dict[str, int] = {}
"""Findings in docstrings, comments and messages of each room of the package, which may
only become fewer.
"""


@pytest.mark.parametrize(
    "page", prose.pages(), ids=lambda page: str(page.relative_to(ROOT))
)
def test_pages_are_plain(page):
    found = prose.read(page)
    listed = "\n".join(f"{one.line}: {one.kind}: {one.text}" for one in found)
    assert not found, listed


@pytest.mark.slow
@pytest.mark.parametrize("room", list(prose.rooms()))
def test_rooms_do_not_become_harder_to_read(room):
    found = sum(len(prose.read(path)) for path in prose.rooms()[room])
    assert found <= ROOMS.get(room, 0), (
        "python -m tests.support.prose dask_simjoin/" + room + "/*.py"
    )


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("This is told elsewhere.", ["tell"]),
        ("Telling rows apart, one of which stays.", ["of which", "tell"]),
        ("Of two rows, the first stays.", ["begins with Of"]),
        ("Rows stay. Of two rows, the first does.", ["begins with Of"]),
        ("- Where rows are near, one stays.", ["begins with Where"]),
        ("Which rows are near? What is near?", []),
        ("It shows what is near.", ["what is"]),
        ("There is no row, and it is no longer than that.", []),
        (
            "It is no list. Nobody asks for so many rows.",
            ["is no", "so many", "somebody"],
        ),
        (
            "Its neighbours, in metres, are optimised.",
            ["British", "British", "British"],
        ),
        ("Its neighbors are compared precisely, otherwise raised.", []),
        ("# How it works", ["heading"]),
        ("# The steps", []),
        ("One " + "word " * 24 + "here.", ["long"]),
        ("One " + "word " * 23 + "here.", []),
        ("One " + "word " * 20 + "here.\n\nOne " + "word " * 20, []),
        ("| " + "word " * 20 + " | " + "word " * 20 + "|", []),
        ("| " + "word " * 20 + "; " + "word " * 20 + "|", []),
        ("One " + "word " * 20 + 'here. "auto" is ' + "word " * 20, []),
        ("`told` and [one](told.md)<!-- told -->", []),
        ("```python\n# told\n```\n", []),
        ("[a page\nof two lines](one.md)\n\nIt is told.", ["tell"]),
    ],
)
def test_findings(text, kinds):
    assert sorted(one.kind for one in prose.findings(text)) == kinds


def test_lines_of_findings_are_those_of_the_page():
    text = "# Head\n\n```text\ntold\n```\nFirst\nline. Second\nis told.\n<!-- a\nb -->\n\n- It tells.\n"
    assert [one.line for one in prose.findings(text)] == [7, 12]


def test_findings_of_modules():
    docstring = '"""Say what is told.\n\n    >>> told\n    told\n"""\n'
    source = docstring + 'x = f"It tells {x} rows"  # told\ny = "told"\n'
    assert [(one.line, one.kind) for one in prose.python_findings(source)] == [
        (1, "tell"),
        (1, "what is"),
        (6, "tell"),
        (6, "tell"),
    ]


def test_comments_after_code_are_texts_of_their_own():
    below = "# one " + "word " * 13 + "\n"
    assert [one.kind for one in prose.python_findings(2 * below)] == ["long"]
    assert not prose.python_findings(2 * ("x = 1  " + below))


def test_lists_of_arguments_are_read():
    """Each item is a sentence, whose line may end with a semicolon as a line of CUDA
    C++ does.
    """
    words = "word " * 14
    source = f'"""Count rows.\n\n`one`: {words};\n`two`: {words}that is told.\n"""\n'
    assert [(one.line, one.kind) for one in prose.python_findings(source)] == [
        (4, "tell")
    ]
    assert not prose.python_findings('x = """for (;;) {\n    tell(of, which);\n}"""\n')


def test_findings_are_printed(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("It is told.\n")
    prose.main([str(page)])
    assert f"{page}:1: tell: It is told" in capsys.readouterr().out
    prose.main(["--quiet", str(page)])
    assert capsys.readouterr().out.split() == ["1", str(page), "1", "tell"]
