"""What pyproject.toml says of versions; `tools.installs` asks installers what
they make of it.
"""

import importlib.metadata
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
PRIVATE = ("dask", "distributed", "numba")
"""Packages of which private parts are used: they have upper bounds, too."""
BOUNDED = [
    (extra, one)
    for extra, wanted in EXTRAS.items()
    if extra != "bench"
    for one in wanted
]


@pytest.mark.parametrize(("extra", "text"), BOUNDED)
def test_what_is_needed_has_a_lower_bound_that_is_kept_here(extra, text):
    """Without one, resolvers go back to placeholders, and the oldest set is of no use."""
    wanted = Requirement(text)
    bounds = [Version(one.version) for one in wanted.specifier if one.operator == ">="]
    others = [one.operator for one in wanted.specifier if one.operator != ">="]
    assert len(bounds) == 1 and bounds[0] > Version("0")
    assert others == ["<"] * (not extra and wanted.name in PRIVATE)
    try:
        there = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        return
    assert wanted.specifier.contains(there) or extra.startswith("cuda")


def test_both_versions_of_cuda_want_the_same():
    wanted = [
        {re.sub(r"-cu(da)?1\d", "-cu", one) for one in EXTRAS[extra]}
        for extra in ("cuda12", "cuda13")
    ]
    assert wanted[0] == wanted[1] and len(wanted[0]) == len(EXTRAS["cuda12"])


def test_extras_agree_on_lower_bounds():
    """An extra may want a newer version than the package itself, and no other one than
    another extra.
    """
    bounds = {}
    for extra, text in BOUNDED:
        if extra:
            bounds.setdefault(Requirement(text).name, set()).add(
                str(Requirement(text).specifier)
            )
    assert {
        name: versions for name, versions in bounds.items() if len(versions) > 1
    } == {}


def test_tests_get_what_optional_parts_need():
    names = {Requirement(text).name for text in EXTRAS["test"]}
    assert {
        Requirement(text).name for text in EXTRAS["graph"] + EXTRAS["examples"]
    } <= names
