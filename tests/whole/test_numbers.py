"""Numbers in sentences are those of results, and none stands without one."""

import json
import re
import subprocess
import sys

import pytest

from benchmarks.harness import repeats, source
from benchmarks.papers import rejoin
from benchmarks.tables import PAGES, declared, numbers
from tests.checks import changed_numbers
from tests.support.paths import ROOT
from tests.support.profiles import every_nth, everything

RESULT = {
    "rows": [
        {"eps": 0.1, "seconds": 2.0, "by": "a"},
        {"eps": 0.2, "seconds": 8.25, "by": "a"},
    ],
    "environment": {"warm up": 0.4},
}


@pytest.fixture
def result(tmp_path, monkeypatch):
    """A result called joins/one, instead of all others."""
    (tmp_path / "joins").mkdir()
    (tmp_path / "joins" / "one.json").write_text(json.dumps(RESULT))
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    numbers.read.cache_clear()
    yield
    numbers.read.cache_clear()


def problems(text):
    """What is wrong with a page, without its lines' numbers."""
    return [problem.partition(": ")[2] for problem in numbers.problems(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_numbers_of_pages_are_those_of_results(page):
    name, text = str(page.relative_to(ROOT)), page.read_text()
    assert list(numbers.problems(text)) == []
    assert list(declared.problems(name, text)) == []


def test_any_changed_number_is_noticed():
    assert changed_numbers.unnoticed(seed=20261129, number=12) == []


def test_variants_of_a_join_without_wrong_pairs_find_the_same():
    for file in (numbers.RESULTS / "gpu-ablation").glob("*.json"):
        for row in json.loads(file.read_text())["rows"]:
            found = {
                one["pairs"]
                for one in row["without"].values()
                if not (one.get("false") or one.get("missed"))
            }
            assert len(found) == 1, file.name


def test_declared_numbers_name_pages():
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert declared.read().keys() <= names


PAGE = "docs/benchmarks.md"


@pytest.mark.parametrize(
    ("text", "entries", "told"),
    [
        ("We saw 3 cases.", [], "3 is not declared"),
        ("We saw 3 cases.", [{"text": "saw 3 cases", "kind": "fixed"}], ""),
        ("We saw 4 cases.", [{"text": "saw 3 cases", "kind": "fixed"}], "0 times"),
        ("Some 3-D points", [], "3 is not declared"),
        ("About .5 of them", [], ".5 is not declared"),
        ("of float64 and H200", [], ""),
        ("`3` and [this](page-4.md)", [], ""),
        ("2 of 8.25<!-- = joins/one: rows.seconds -->", [], "2 is not declared"),
        ("8.25<!-- = joins/one: rows(eps=0.2).seconds -->", [], ""),
        (
            "It takes 8.25 s.",
            [{"text": "takes {8.25} s", "is": "joins/one: rows(eps=0.2).seconds"}],
            "",
        ),
        (
            "It takes 8.26 s.",
            [{"text": "takes {8.26} s", "is": "joins/one: rows(eps=0.2).seconds"}],
            "8.26 is 8.25",
        ),
        (
            "It takes 8.25 s.",
            [{"text": "takes {8.25} s", "is": "joins/one: rows.seconds"}],
            "has 1 numbers, its result 2",
        ),
        ("3 or 3 at", [{"text": "3", "kind": "fixed"}], "1 times, the page 2 times"),
        ("33 at", [{"text": "3", "kind": "fixed"}], "33 is not declared"),
    ],
)
def test_numbers_are_declared(text, entries, told, result):
    found = list(declared.problems(PAGE, text, entries))
    assert any(told in one for one in found) if told else found == []


def test_what_is_missing_is_declared():
    text = "Since 2026 there are 3 kinds; one takes 5 s. Of 700 MB<!-- fixed --> each."
    old = [{"text": "gone 7", "kind": "fixed"}, {"text": "{9}", "is": "joins/one: it"}]
    new = declared.declared(text, old)
    assert old[1] in new and old[0] not in new
    left = list(declared.problems(PAGE, text, [one for one in new if "is" not in one]))
    # a measurement without a result is left out
    assert len(left) == 1 and "5 is not declared" in left[0]


@pytest.mark.parametrize(
    "page",
    every_nth(6, [page for page in PAGES if "<!-- = " in page.read_text()]),
    ids=lambda page: page.name,
)
def test_a_changed_number_is_seen(page):
    """Of each number that is checked: one more in its last digit is found."""
    text = page.read_text()
    places = [match.start() for match in numbers.MARK.finditer(text) if match["file"]]
    for place in places[:: 1 if everything() else 4]:
        last = list(
            re.finditer(r"\d[\d,]*(?:\.\d+)?|\.\d+", text[max(0, place - 80) : place])
        )[-1]
        at = max(0, place - 80) + last.end() - 1
        other = str((int(text[at]) + 1) % 10)
        assert list(numbers.problems(text[:at] + other + text[at + 1 :])), text[
            at - 40 : place
        ]


@pytest.mark.parametrize(
    "text",
    [
        "It takes 8.25 s<!-- = joins/one: rows(eps=0.2).seconds -->.",
        "It takes 2.0 to 8.2 s<!-- = joins/one: min(rows.seconds), max(rows.seconds) - "
        ".05 --> of time.",
        "As 2 and 8.25<!-- = joins/one: rows.seconds -->, with no unit.",
        "So 4.1 times<!-- = joins/one: rows(eps=0.2).seconds / rows(eps=0.1).seconds "
        "--> as long.",
        '5.1<!-- = joins/one: mean(rows(by="a").seconds) --> in the mean',
        '0.4 s<!-- = joins/one: environment["warm up"] --> to begin',
        '8 s<!-- = joins/one: file("joins/one").rows.seconds[1] -->',
        "workers of 700 MB<!-- fixed -->, 3 to 5 times<!-- published 2 --> as fast",
        "on 2 cores, of 16 columns, within 0.5, `0.5 s`, [here](x-5-s), 3 rows",
        "<!-- published -->\n| a | s |\n|---|---|\n| x | 3.5 |\n",
        "```sh\nsleep 5 s\n```\n",
    ],
)
def test_right_numbers_pass(text, result):
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("It takes 8.26 s<!-- = joins/one: rows(eps=0.2).seconds -->.", "8.26 is 8.25"),
        ("2.1 to 8.25 s<!-- = joins/one: rows.seconds -->", "2.1 is 2"),
        ("8.25 s<!-- = joins/one: rows(eps=0.3).seconds -->", "no entry has"),
        ("8.25 s<!-- = joins/one: rows.second -->", "KeyError"),
        ("8.25 s<!-- = joins/other: rows.seconds -->", "FileNotFoundError"),
        (
            "8.25 s<!-- = joins/one: rows.seconds -->",
            "2 values, and there are 1 numbers",
        ),
        ("some time<!-- published -->", "stands for 1 numbers, and there are 0"),
    ],
)
def test_wrong_numbers_are_told(text, told, result):
    assert any(told in problem for problem in problems(text)), problems(text)


@pytest.mark.slow
@pytest.mark.processes
def test_the_program_checks(tmp_path):
    command = [sys.executable, "-m", "benchmarks.tables", "--check"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_all_runs_are_kept():
    took = iter([3.0, 1.0, 2.0])
    runs = repeats.repeated(lambda: next(took), 3)
    assert repeats.summary(runs) == {"seconds": 2.0, "runs": [3.0, 1.0, 2.0]}
    assert repeats.repeated(lambda: 9.0, 3, long=4.0) == [9.0]
    told = repeats.summaries([{"cpu": 1.0, "wall": 4.0}, {"cpu": 3.0, "wall": 2.0}])
    assert told["cpu"] == 2.0 and told["wall"] == 3.0 and len(told["runs"]) == 2


def test_the_commit_is_known(monkeypatch):
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?|unknown", source.commit())
    monkeypatch.setenv(source.COMMIT, "abc")
    assert source.commit() == "abc"


def test_rejoin_is_compared_with_one_join_for_each_batch(monkeypatch):
    """Not with one for each query: the same counts, and fewer joins."""
    calls = []
    joined = rejoin.pd.DataFrame.simjoin

    data = rejoin.frames(600, [50, 50])
    queries = [[0.3, 0.5], [0.4, 0.45, 0.5]]

    class Counted(joined):
        def self_join(self, *given, **how):
            calls.append(given)
            return super().self_join(*given, **how)

    monkeypatch.setattr(rejoin.pd.DataFrame, "simjoin", property(Counted))
    once = rejoin.joined_anew(*data, queries)[1]
    # the first rows, and after each batch
    assert len(calls) == 3 and set(calls) == {(rejoin.EPS,)}
    each = rejoin.joined_anew(*data, queries, each=True)[1]
    assert len(calls) == 3 + 1 + 5 and once == each


def test_every_result_is_named_by_a_page():
    """What no page shows or links to is superseded: `git rm` it."""
    folder = ROOT / "benchmarks" / "results"
    pages = "".join(page.read_text() for page in [*PAGES, ROOT / "CONTRIBUTING.md"])
    files = [
        path.relative_to(folder).with_suffix("")
        for path in folder.rglob("*")
        if path.is_file()
    ]
    assert files and [str(name) for name in files if str(name) not in pages] == []


NO_COMMIT = {
    "papers/2026-11-22-lists-epyc",
    "papers/2026-11-22-model-epyc",
    "shell/2026-11-22-60m-busy-epyc",
}
"""Results from before benchmarks named their commit; no other may be without one."""


def commits(found):
    """Return the commits in a result file, with the digest of the source beside each."""
    if isinstance(found, list):
        return [one for part in found for one in commits(part)]
    if not isinstance(found, dict):
        return []
    commit = found.get("commit")
    own = [(commit, found.get("source"))] if isinstance(commit, str) else []
    return own + [one for part in found.values() for one in commits(part)]


def results():
    """Return the commits of each result file; lists that nothing measured are left out."""
    folder = ROOT / "benchmarks" / "results"
    return {
        str(path.relative_to(folder).with_suffix("")): commits(
            json.loads(path.read_text())
        )
        for path in folder.rglob("*.json")
        if path.stem != "audit"
    }


def test_every_result_names_its_commit():
    assert {name for name, found in results().items() if not found} == NO_COMMIT


NOT_IN_HISTORY = {"15b5276a16c8", "172e0778b47c"}
"""Commits that were measured, and then changed before they became part of main."""


def history(*options):
    """Return the commits of the repository; tests are skipped if it has no history."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git history")
    command = ["git", "log", "--format=%H", *options]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()


def test_commits_of_results_are_those_of_the_repository():
    known = history()
    if len(known) < 2000:
        pytest.skip("a part of the git history")
    named = {
        commit.removesuffix("-dirty")
        for found in results().values()
        for commit, digest in found
        # programs of others name their repository
        if "/" not in str(digest)
    }
    unknown = {
        one for one in named if not any(commit.startswith(one) for commit in known)
    }
    assert unknown == NOT_IN_HISTORY


@pytest.mark.slow
def test_commits_of_early_results_have_their_source():
    """Their commits were found by the digests of the source, which the files have."""
    known = history("--until=2026-11-24")
    early = {
        one
        for found in results().values()
        for one in found
        if one[1] and any(commit.startswith(one[0]) for commit in known)
    }
    for commit, digest in sorted(early):
        # the first ones are digests of Python's files alone
        kinds = (source.KINDS, source.KINDS[:1])
        assert digest in {source.digest_of(commit, kind) for kind in kinds}, commit
