"""The site is built without a warning, as one of links would be, and its search finds
the pages that users need. Its programs do not run here.
"""

import json
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

QUESTIONS = json.loads((ROOT / "tests/whole/search_questions.json").read_text())
"""What users type, and for each question the pages that answer it."""

pytestmark = [pytest.mark.slow, pytest.mark.processes]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("sphinx_gallery")
    folder = tmp_path_factory.mktemp("built")
    options = [
        "-W",
        "--keep-going",
        "-n",
        "-b",
        "html",
        "-D",
        "plot_gallery=0",
        "-d",
        folder / "trees",
    ]
    command = [
        sys.executable,
        "-m",
        "sphinx",
        *options,
        ROOT / "docs",
        folder / "site",
    ]
    built = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder / "site"


def test_it_is_built_without_a_warning(site):
    assert (site / "index.html").exists()


def test_its_search_finds_the_pages_that_answer_questions(site):
    """One of the pages is among the first three that Sphinx's own search shows."""
    if shutil.which("node") is None:
        pytest.skip("node runs the search")
    searched = subprocess.run(
        ["node", ROOT / "tests/support/site_search.js", site],
        input=json.dumps([one["typed"] for one in QUESTIONS]),
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(
        zip(
            (one["typed"] for one in QUESTIONS),
            json.loads(searched.stdout),
            strict=True,
        )
    )
    missed = {
        one["typed"]: found[one["typed"]][:5]
        for one in QUESTIONS
        if not set(one["pages"]) & set(found[one["typed"]][:3])
    }
    assert len(QUESTIONS) == 43 and missed == {}
