"""Modules without a test file of their name: python -m tests.checks.mirror.

The test file of ``dask_simjoin/ROOM/NAME.py`` is ``tests/ROOM/test_NAME.py``.
"""

from tests.support.paths import ROOT


def modules():
    """List the package's modules, without `__init__`, as paths below it."""
    package = ROOT / "dask_simjoin"
    every = (path.relative_to(package) for path in package.rglob("*.py"))
    return sorted(path for path in every if path.name != "__init__.py")


def test_file(module):
    """Return the path of a module's test file, whether it exists or not."""
    return ROOT / "tests" / module.parent / f"test_{module.name}"


def without_tests():
    """List the modules that have no test file of their name."""
    return [module for module in modules() if not test_file(module).exists()]


def main():
    """Print them, and the share of modules that have one."""
    missing, number = without_tests(), len(modules())
    for module in missing:
        print(module)
    share = 1 - len(missing) / number
    print(
        f"{number - len(missing)} of {number} modules have a test file of their name "
        f"({share:.1%})"
    )


if __name__ == "__main__":
    main()
