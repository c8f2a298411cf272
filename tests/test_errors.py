"""Errors are what users of pandas catch, name a remedy, and travel; deprecated names
warn until they go.
"""

import inspect
import pickle

import pandas as pd
import pytest
from packaging.version import Version

import dask_simjoin
from dask_simjoin import errors
from dask_simjoin.errors import (
    BudgetError,
    DeprecatedWarning,
    Deprecation,
    ListError,
    OptionTypeError,
    Remedy,
    SimJoinError,
    deprecated,
    renamed_option,
)

ERRORS = [
    one
    for one in vars(errors).values()
    if inspect.isclass(one) and issubclass(one, SimJoinError)
]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_a_built_in_one_and_says_what_helps(kind):
    if kind is not SimJoinError:
        assert issubclass(
            kind, (ValueError, TypeError, RuntimeError, OSError, LookupError)
        )
        assert "Remedy:" in kind.__doc__


def test_remedies_travel():
    error = BudgetError(
        "too large", remedies=[Remedy({"blocksize": None}), Remedy(verb="count_pairs")]
    )
    back = pickle.loads(pickle.dumps(error))
    assert str(back) == "too large" and back.remedies == error.remedies
    assert (
        back.remedies[0].options == {"blocksize": None}
        and back.remedies[1].verb == "count_pairs"
    )
    assert SimJoinError("none").remedies == ()


def test_a_row_without_a_list_is_named():
    error = pickle.loads(pickle.dumps(ListError.at(7, "3 numbers, others 4")))
    assert (error.row, str(error)) == (7, "Row 7 holds 3 numbers, others 4.")


@pytest.fixture(autouse=True)
def entries(monkeypatch):
    """Keep examples of this module out of the package's list."""
    monkeypatch.setattr(errors, "DEPRECATIONS", [])
    return errors.DEPRECATIONS


POINTS = pd.DataFrame({"x": [0.0, 0.5, 9.0], "y": [0.0, 0.0, 0.0]})


def test_a_deprecated_verb_warns_and_works(entries):
    old = deprecated(since="1.2", removed_in="1.4", use="count_pairs()")(
        dask_simjoin.count_pairs
    )
    with pytest.warns(
        DeprecatedWarning,
        match=r"since dask-simjoin 1.2 .* removed in 1.4; use count_pairs",
    ) as seen:
        assert old(POINTS, 1) == dask_simjoin.count_pairs(POINTS, 1) == 1
    assert seen[0].filename == __file__
    assert entries == [Deprecation("count_pairs()", "1.2", "1.4", "count_pairs()")]
    assert inspect.signature(old) == inspect.signature(dask_simjoin.count_pairs)
    lines = inspect.getdoc(old).splitlines()
    assert lines[0] == inspect.getdoc(dask_simjoin.count_pairs).splitlines()[0]
    assert ".. deprecated:: 1.2" in lines and "    Use count_pairs()." in lines


def test_a_function_without_documentation_can_be_deprecated():
    old = deprecated(since="1.2", removed_in="1.4", use="int()")(lambda text: int(text))
    with pytest.warns(DeprecatedWarning):
        assert old("7") == 7
    assert ".. deprecated:: 1.2" in old.__doc__


def test_the_old_name_of_an_option_warns_and_works():
    verb = renamed_option("radius", "eps", since="1.2", removed_in="1.4")(
        dask_simjoin.count_pairs
    )
    with pytest.warns(
        DeprecatedWarning, match="The option radius= of count_pairs.. is deprecated"
    ) as seen:
        assert verb(POINTS, radius=1) == 1
    assert seen[0].filename == __file__
    assert verb(POINTS, eps=1) == 1  # warnings are errors in these tests
    with pytest.raises(OptionTypeError, match="pass eps= only"):
        verb(POINTS, radius=1, eps=1)


def test_users_see_the_warning_without_asking():
    assert issubclass(DeprecatedWarning, FutureWarning)


def overdue(entries, version):
    """Entries that a release should have removed."""
    return [entry for entry in entries if Version(entry.removed_in) <= Version(version)]


def test_overdue_names_are_found():
    entry = Deprecation("f()", "1.2", "1.4", "g()")
    assert overdue([entry], "1.3.9") == [] and overdue([entry], "1.4") == [entry]


def test_nothing_of_the_package_is_overdue():
    """The list is read before any fixture replaces it."""
    version = dask_simjoin.__version__
    assert (
        overdue(OWN, "0" if version == "0+unknown" else Version(version).base_version)
        == []
    )


OWN = errors.DEPRECATIONS
