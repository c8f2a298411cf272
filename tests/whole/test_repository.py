"""Workflows, bounds, the recipe and the table of versions say the same."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.paths import ROOT
from tools import compatibility, jobs, names, newest, packages, tag

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WANTED = [Requirement(text) for text in PROJECT["dependencies"]]
ROWS = {row["name"]: row for row in compatibility.rows()}
JOBS = list(jobs.jobs())


def test_workflows_run_every_row_of_the_table_with_its_python():
    found = {}
    for job in JOBS:
        for step in job.body["steps"]:
            if row := re.search(r"tests\((.+?)\)", job.filled(step.get("run", ""))):
                found.setdefault(row[1], job.python)
    assert found == {name: row["python"] for name, row in ROWS.items()}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.title)
def test_commands_of_jobs_need_nothing_of_github_but_variables(job):
    for step in job.body["steps"]:
        assert "${{" not in job.filled(step.get("run", ""))
    assert job.body["timeout-minutes"] <= 90


def test_every_night_all_tests_run():
    commands = [
        step.get("run", "")
        for job in JOBS
        if job.title.startswith("nightly/")
        for step in job.body["steps"]
    ]
    assert any("pytest" in run and "--all" in run for run in commands)


def test_pythons_of_the_table_are_those_of_the_package():
    named = {
        text.rpartition(" ")[2] for text in PROJECT["classifiers"] if ":: 3." in text
    }
    supported = {row["python"] for row in ROWS.values()} - {"3.14"}
    assert named == supported
    assert PROJECT["requires-python"] == ">=" + min(named, key=Version)


@pytest.mark.parametrize("name", newest.bounded())
def test_upper_bounds_follow_the_newest_version_that_passed(name):
    """Dask's and Numba's private parts may change with each minor release, and not with
    a patch.
    """
    passed = map(
        Version, compatibility.versions_that_passed(name, compatibility.results())
    )
    last = max(one for one in passed if not one.is_prerelease)
    (wanted,) = (one for one in WANTED if one.name == name)
    (bound,) = (part.version for part in wanted.specifier if part.operator == "<")
    assert bound == f"{last.major}.{last.minor + 1}"


def test_dask_and_distributed_have_the_same_bounds():
    bounds = {one.name: one.specifier for one in WANTED}
    assert bounds["dask"] == bounds["distributed"]


def test_a_newest_release_that_no_row_passed_with_is_found():
    results = {
        "good": {"versions": {"dask": "2026.8.0"}, "passed": 9, "failed": 0},
        "bad": {"versions": {"dask": "2026.9.0"}, "passed": 8, "failed": 1},
    }
    assert newest.untested({"dask": "2026.8.0"}, results) == {}
    assert newest.untested({"dask": "2026.9.0"}, results) == {"dask": "2026.9.0"}


def test_a_report_of_pytest_is_counted(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a" name="one"/><testcase classname="a" name="two">'
        '<failure message="AssertionError: no\nmore">text</failure></testcase><testcase classname="a" '
        'name="three"><skipped/></testcase></testsuite></testsuites>'
    )
    found = compatibility.outcome(report)
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 1, 1)
    # XML makes a space of a new line
    assert found["failures"] == ["two: AssertionError: no more"]


def test_the_recipe_needs_what_the_package_needs():
    text = (ROOT / "conda" / "recipe.yaml").read_text()
    recipe = yaml.safe_load(text)
    run = recipe["requirements"]["run"][2:]
    assert sorted(run) == sorted(f"{one.name} {order(one)}" for one in WANTED)
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"][
        "requires"
    ]
    assert sorted(recipe["requirements"]["host"][2:]) == sorted(
        one.replace(">=", " >=") for one in backend
    )
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert PROJECT["scripts"] == dict([entry.split(" = ")])


def order(wanted):
    """The specifier of a requirement, the lower bound first."""
    return ",".join(sorted(map(str, wanted.specifier), reverse=True))


CHANGES = "# Changes\n\n## 1.2.0 (2026-12-01)\n\n- One.\n\n## 1.1.0 (unreleased)\n"


@pytest.mark.parametrize(
    ("name", "version", "fault"),
    [
        ("v1.2.0", "1.2.0", ""),
        ("v1.2.0rc1", "1.2.0rc1", ""),
        ("1.2.0", "1.2.0", "is not v and a version"),
        ("v1.2.0", "1.2.1.dev1", "the version is 1.2.1.dev1"),
        ("v1.3.0", "1.3.0", "has no section 1.3.0"),
        ("v1.1.0", "1.1.0", "calls 1.1.0 unreleased"),
    ],
)
def test_tags_that_are_not_releases_are_refused(name, version, fault):
    found = tag.faults(name, version, CHANGES)
    assert len(found) == bool(fault) and all(fault in one for one in found)


def test_a_name_is_changed_in_one_line(monkeypatch):
    monkeypatch.setattr(names, "OWNER", "someone")
    for path, text in names.files().items():
        assert (
            "OWNER" not in text.replace("the owner", "")
            and "github.com/someone/dask-simjoin" in text
        ), path


def test_the_first_command_of_the_readme_is_found():
    assert (
        "examples/quickstart.py" in packages.first_command()
        and "-e '.[examples]'" in packages.first_command()
    )
