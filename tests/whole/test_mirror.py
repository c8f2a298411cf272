"""Tests mirror modules: the test of a module has its name, and lies where the module
lies.
"""

from tests.checks import mirror

SHARE = 0.92
"""Of all modules, those that have a test file of their name, at least: raise it, and
never lower it.
"""


def test_modules_have_a_test_file_of_their_name():
    missing = mirror.without_tests()
    assert len(missing) <= (1 - SHARE) * len(mirror.modules()), [
        str(module) for module in missing
    ]


def test_names_of_test_files_are_those_of_modules():
    found = {str(module): mirror.test_file(module) for module in mirror.modules()}
    assert (
        found["sets/cpu/joiner.py"]
        == mirror.ROOT / "tests" / "sets" / "cpu" / "test_joiner.py"
    )
    assert found["errors.py"] == mirror.ROOT / "tests" / "test_errors.py"
    assert not any("__init__" in name for name in found)
