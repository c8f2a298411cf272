"""A linter of prose: words and shapes of sentences that make the documentation hard to
read.

It reads Markdown pages, and the docstrings, comments and messages of Python modules.
`python -m tests.support.prose [FILES]` prints findings and their places; with `-q`,
their numbers.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import PACKAGE, ROOT

LONGEST = 25
"""Words of a sentence."""

BRITISH = (
    r"\w*neighbour\w*|\w*metres?|colour\w*|behaviour\w*|favour\w*|honour\w*|centre[sd]?|grey|analyse[sd]?"
    r"|catalogues?|programmes?|labell\w+|travell\w+|modell\w+|cancell(?:ed|ing)|whilst|amongst|artefacts?"
    r"|(?:\w+(?:al|an|im|er|or|in|ar|en|on|om|as|id|at|it|nd|ct|gn|il))is(?:e[sd]?|ing|ations?)(?<!mise)"
    r"|licence|judgement|learnt|spelt"
)
AMERICAN = r"(?:other|like|clock|prom|prec|conc|exerc|surpr|superv|comprom|anal|ra|no|rep|bas|lik)\w*"
"""Words that match `BRITISH` but are spelled so in American English too."""

WORDS = {
    "tell": r"\b(?:tells?|told|telling)\b",
    "so many": r"\bso many\b",
    "of which": r"\b(?:of|in|for|from|with|by|at|to|on) (?:which|whom|whose)\b",
    "what is": r"\bwhat (?:is|are|was|were)\b",
    "is no": r"(?<!\bthere )\b(?:is|are|was|were|be) no (?!longer|more|less|\w+er\b)",
    "the same of": r"\bthe same of\b",
    "those of": r"\b(?:those|that) of\b",
    "somebody": r"\b(?:somebody|someone|nobody)\b",
    "beside": r"\bbeside\b",
    "British": rf"\b(?!{AMERICAN}\b)(?:{BRITISH})\b",
}
"""Kind -> where it is, in any sentence but a question."""

BEGINNINGS = {
    "begins with Of": r"Of\b",
    "begins with Where": r"Where\b",
    "begins with What": r"What\b",
}
QUESTION_WORD = r"(?:What|Where|Who|How|When|Which|Why|Of|For who)\b"

PATTERNS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in WORDS.items()}
STARTS = {kind: re.compile(pattern) for kind, pattern in BEGINNINGS.items()}
KINDS = [*WORDS, *BEGINNINGS, "heading", "long"]


class Finding(NamedTuple):
    """A finding: a place that is hard to read."""

    line: int
    kind: str
    text: str


class Sentence(NamedTuple):
    """A sentence, and the line where it begins."""

    line: int
    text: str
    is_heading: bool = False


FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1[ ]*$", re.MULTILINE | re.DOTALL)
LITERAL = re.compile(r"::\n\n(?:[ ]+.*\n|\n)+")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", re.DOTALL)
LIST = re.compile(r"CODE(, CODE)*")
"""Matches a cell that only lists options, which is no sentence."""

CODE = re.compile(r"(`{1,2})(?=\S).+?\1", re.DOTALL)
TAG = re.compile(r"</?\w+[^>\n]*>|\{\w+\}(?=`)|https?://\S+")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+|\s*>\s?")
END = re.compile(
    r"(?<=[.?!])[\"')*_]*\s+(?=[\"'(*_]*(?:[A-Z0-9`]|dask-simjoin)|\"[a-z])"
)
"""The end of a sentence. The next one may begin with a quoted value, such as "auto"."""
ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|St|Fig|No)|\b[A-Z])\.$")
WORD = re.compile(r"[^\W_][\w'-]*")


def findings(text: str) -> list[Finding]:
    """Return the findings of a Markdown page, in the order of their lines."""
    return sorted(found for sentence in sentences(text) for found in check(sentence))


def check(sentence: Sentence) -> Iterator[Finding]:
    """Yield the findings of a sentence."""
    line, text, is_heading = sentence
    if is_heading:
        if re.match(QUESTION_WORD, text) or text.endswith("?"):
            yield Finding(line, "heading", text)
    elif not text.endswith("?"):
        for kind, pattern in STARTS.items():
            if pattern.match(text.lstrip("\"'(*_")):
                yield Finding(line, kind, text[:60])
    for kind, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            if kind != "what is" or not text.endswith("?"):
                before, after = (
                    text[max(0, match.start() - 25) : match.start()],
                    text[match.end() :][:25],
                )
                yield Finding(line, kind, f"{before}{match[0]}{after}".strip())
    if (words := len(WORD.findall(text))) > LONGEST and not LIST.fullmatch(text):
        yield Finding(line, "long", f"{words} words: {text[:60]}")


def sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown page, without its code, comments and targets of
    links.
    """
    text = FENCE.sub(_lines_only, text)
    text = COMMENT.sub(_lines_only, text)
    text = LINK.sub(_linked, text)
    text = CODE.sub(lambda match: "CODE" + _lines_only(match), text)
    text = TAG.sub("", text)
    for line, paragraph, is_heading in _paragraphs(text.split("\n")):
        yield from _split(line, paragraph, is_heading)


def _linked(match: re.Match[str]) -> str:
    """Return the text of a link, or CODE for a path, with as many lines as the link."""
    text = "CODE" if re.fullmatch(r"[\w.-]*/[\w./-]*", match[1]) else match[1]
    return text + "\n" * (match[0].count("\n") - text.count("\n"))


def _lines_only(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _paragraphs(lines: list[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield paragraphs, items, headings and cells of tables: line, text, whether it is
    a heading.
    """
    start, held = 0, ""
    for number, line in enumerate([*lines, ""], 1):
        heading = re.match(r"#+ (.*)", line)
        is_row = line.lstrip().startswith("|")
        item = ITEM.match(line)
        if held and (heading or is_row or item or not line.strip()):
            yield start, held, False
            held = ""
        if heading:
            yield number, heading[1], True
        elif is_row:
            # a cell is often a list, whose items end with semicolons
            yield from (
                (number, part.strip(), False)
                for part in re.split(r"[|;]", line.strip().strip("|"))
            )
        elif line.strip():
            start = start if held else number
            held += "\n" * bool(held) + (line[item.end() :] if item else line)


def _split(line: int, paragraph: str, is_heading: bool) -> Iterator[Sentence]:
    start = 0
    for end in [*END.finditer(paragraph), None]:
        part = paragraph[start : end.start() if end else None]
        if end and ABBREVIATION.search(part):
            continue
        if re.search(r"[A-Za-z]{2}", part):
            at = line + paragraph.count("\n", 0, start)
            yield Sentence(at, re.sub(r"\s+", " ", part).strip(" *_"), is_heading)
        start = end.end() if end else 0


def python_findings(source: str) -> list[Finding]:
    """Return the findings of a module's docstrings, comments and messages."""
    comments = (
        (line, LITERAL.sub(_lines_only, f"{text}\n"))
        for line, text in _comments(source)
    )
    texts = [*_strings(ast.parse(source)), *comments]
    return sorted(
        Finding(line - 1 + found.line, found.kind, found.text)
        for line, text in texts
        for found in findings(text)
    )


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield docstrings, and string literals of three words and more that may be
    messages.
    """
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Constant)
    ]
    inside = {
        id(part)
        for node in nodes
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else "CODE"
                for part in node.values
            )
            text = "".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in inside
        ):
            text = node.value
        else:
            continue
        is_cuda = re.search(r"[{}]\s*$|\);\s*$", text, re.MULTILINE)
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 and not is_cuda:
            yield node.lineno, _docstring_as_markdown(text)


def _docstring_as_markdown(text: str) -> str:
    """Blank out examples and underlines, and end the line before an indented one, as
    numpydoc reads it.

    In a list of arguments, such as "`a`: one; `b`: another", each item is a sentence.
    """
    found, in_example, indent = [], False, 0
    text = re.sub(r";(\s+`)", r".\1", LITERAL.sub(_lines_only, text))
    for line in text.split("\n"):
        in_example = line.strip() != "" and (
            in_example or line.lstrip().startswith(">>>")
        )
        deeper = len(line) - len(line.lstrip())
        underline = re.fullmatch(r"\s*-{3,}\s*", line)
        if in_example or underline or re.match(r"\s*\w+(?:, \w+)*(?: : |$)", line):
            line = "|" if line.strip() else ""
        elif deeper > indent and found and " : " in found[-1]:
            found[-1] = ""
        indent = deeper
        found.append(line)
    return "\n".join(found)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield comments; lines one below the other are one text, but a comment after code
    is its own text.
    """
    start, held, ends = 0, [], False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(
            r"# (?:noqa|type:|fmt:)", token.string
        ):
            is_after_code = bool(token.line[: token.start[1]].strip())
            if held and (ends or is_after_code or token.start[0] != start + len(held)):
                yield start, "\n".join(held)
                held = []
            start, ends = start if held else token.start[0], is_after_code
            held.append(re.sub("^#+ ?", "", token.string))
    if held:
        yield start, "\n".join(held)


def read(path: Path) -> list[Finding]:
    """Return the findings of a page or a module."""
    text = path.read_text()
    return python_findings(text) if path.suffix == ".py" else findings(text)


def pages() -> list[Path]:
    """Return the pages of the root, all pages of docs/, and the programs of the
    gallery.
    """
    pages = sorted((ROOT / "docs").rglob("*.md"))
    top = [
        ROOT / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "SECURITY.md",
            "SUPPORT.md",
        )
    ]
    return [*top, *pages, *sorted((ROOT / "examples").glob("*.py"))]


def rooms() -> dict[str, list[Path]]:
    """Return the modules of each room of the package; those outside of rooms are in ""."""
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        found.setdefault(parts[0] if len(parts) > 1 else "", []).append(path)
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "files", nargs="*", type=Path, help="pages or modules; default: all pages"
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print the number of each file only"
    )
    options = parser.parse_args(arguments)
    kinds: Counter[str] = Counter()
    for path in options.files or pages():
        found = read(path)
        kinds.update(one.kind for one in found)
        if options.quiet and found:
            print(f"{len(found):6}  {path}")
        elif not options.quiet:
            for one in found:
                print(f"{path}:{one.line}: {one.kind}: {one.text}")
    for kind, number in kinds.most_common():
        print(f"{number:6}  {kind}")


if __name__ == "__main__":
    main(sys.argv[1:])
