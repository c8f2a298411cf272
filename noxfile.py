"""Runs the tests with every row of compatibility.toml, and writes what happened into
the documentation.

`nox` runs all rows, `nox -s "tests(newest)"` one of them. Arguments after `--` are
pytest's, as `nox -s "tests(oldest)" -- -n 2 tests/graph`; without them the whole suite
runs.
"""

import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False

TABLE = Path(__file__).parent / "compatibility.toml"
ROWS = tomllib.loads(TABLE.read_text())["row"]
UNBOUNDED = ["dask", "distributed", "numba"]
"""Packages with an upper bound in pyproject.toml."""


@nox.session
@nox.parametrize(
    ("python", "row"), [nox.param(row["python"], row, id=row["name"]) for row in ROWS]
)
def tests(session, row):
    """Install the versions of a row, run the tests, and record the result."""
    options = []
    if resolution := row.get("resolution"):
        options += ["--resolution", resolution]
    if prerelease := row.get("prerelease"):
        options += ["--prerelease", prerelease]
    requires = row["requires"]
    if row.get("unbounded"):
        named = {requirement.split(" ")[0] for requirement in requires}
        overrides = Path(session.create_tmp()) / "overrides.txt"
        overrides.write_text(
            "\n".join([*requires, *(name for name in UNBOUNDED if name not in named)])
            + "\n"
        )
        options += ["--overrides", str(overrides)]
    session.install("--editable", ".[test,examples,graph,plot]", *requires, *options)
    report = Path(session.create_tmp()).resolve() / "report.xml"
    arguments = session.posargs or ["-n", "2", "--dist", "worksteal"]
    session.run(
        "pytest", "-q", *arguments, f"--junitxml={report}", success_codes=[0, 1]
    )
    session.run(
        "python",
        "-m",
        "tools.compatibility",
        row["name"],
        str(report),
        *arguments,
    )
