"""Import libraries that only some functions need."""

from __future__ import annotations

import importlib
from typing import Any

Axes = Any
"""Matplotlib's axes, which may not be installed."""


def optional(module: str, package: str, wanted: str) -> Any:
    """Import a module; without it say what it was wanted for, and how to get it.

    Examples
    --------
    >>> optional("no_such_module", "no-such-package", "Colours")
    Traceback (most recent call last):
    ModuleNotFoundError: Colours need no-such-package, which is not installed: pip install no-such-package
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{wanted} need {package}, which is not installed: pip install {package}", name=error.name
        ) from error


def load(module: str) -> Any:
    """Import a module of this package by its name, once something of it is asked for."""
    return importlib.import_module(module)


def new_axes(ax: Axes = None) -> Axes:
    """Matplotlib's axes: those given, or those of a new figure."""
    return ax or optional("matplotlib.pyplot", "matplotlib", "Plots").subplots()[1]
