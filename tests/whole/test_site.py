"""The site is built without a warning, as one of links would be; its programs do not
run here.
"""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.slow
@pytest.mark.processes
def test_it_is_built_without_a_warning(tmp_path):
    pytest.importorskip("sphinx_gallery")
    options = [
        "-W",
        "--keep-going",
        "-n",
        "-b",
        "html",
        "-D",
        "plot_gallery=0",
        "-d",
        tmp_path / "trees",
    ]
    command = [
        sys.executable,
        "-m",
        "sphinx",
        *options,
        ROOT / "docs",
        tmp_path / "site",
    ]
    built = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "index.html").exists()
