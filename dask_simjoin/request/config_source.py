"""Find where a value of Dask's configuration came from, and check the names of settings.

Dask merges environment variables, YAML files and `dask.config.set` into one dict, which
does not say where a value came from. So messages compare the value with these sources.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import dask

from dask_simjoin.errors import OptionError
from dask_simjoin.request.messages import did_you_mean, shown

PREFIX = "DASK_"
"""Dask reads all environment variables with this prefix."""

VARIABLE = "the environment variable "
"""A source that is a variable begins like this."""

FILE = "the file "
"""A source that is a file begins like this."""

ENDINGS = (".json", ".yaml", ".yml")
"""Endings of the files that Dask reads in its folders."""

NAMESPACE = "simjoin"
"""The settings of this package are below this name."""


def normal(name: object) -> str:
    """Return a name as Dask compares names: hyphens and underscores are equal."""
    return str(name).lower().replace("_", "-")


def variable(key: str) -> str:
    """Return the environment variable for a key such as "simjoin.result-limit"."""
    return PREFIX + key.upper().replace("-", "_").replace(".", "__")


def origin(
    key: str, value: Any, read: Callable[[Any], Any] = lambda value: value
) -> str:
    """Name a key with the source of its value, such as "simjoin.blocksize of
    dask.config.set". An environment variable stands for the key.

    `read`: converts a value of a source to the form of `value`.
    """
    found = source(key, value, read)
    return found if found.startswith(VARIABLE) else f"{key} of {found}"


def source(
    key: str, value: Any, read: Callable[[Any], Any] = lambda value: value
) -> str:
    """Return the source of the value of a key; see `origin`."""

    def same(found: Any, wanted: Any) -> bool:
        with contextlib.suppress(OptionError):
            return bool(read(found) == wanted)
        return False

    for name, found in _variables(key):
        if same(found, value):
            return f"{VARIABLE}{name}"
    for path, found in _files(key):
        if same(found, value):
            return f"{FILE}{path!r}"
    return "dask.config.set"


def _variables(key: str) -> Iterator[tuple[str, Any]]:
    """Yield the environment variables that set a key or keys below it, and its value."""
    for name, text in os.environ.items():
        if name.startswith(PREFIX):
            value = _value(dask.config.collect(paths=[], env={name: text}), key)
            if value is not None:
                yield name, value


def _value(config: Any, key: str) -> Any:
    """Return the value of a key in nested dicts; None if there is none."""
    for part in key.split("."):
        names = config if isinstance(config, Mapping) else {}
        config = next((names[name] for name in names if normal(name) == part), None)
    return config


def _files(key: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of a key in YAML files, the file that takes precedence first."""
    files: list[str] = []
    for path in dask.config.paths:
        with contextlib.suppress(OSError):
            if not os.path.isdir(path):
                files.append(path)
                continue
            names = sorted(os.listdir(path))
            files += (
                os.path.join(path, name)
                for name in names
                if name.lower().endswith(ENDINGS)
            )
    for file in reversed(files):
        # a malformed file has stopped the import of Dask already, or has changed since
        with contextlib.suppress(Exception):
            value = _value(dask.config.collect(paths=[file], env={}), key)
            if value is not None:
                yield file, value


def check_names(known: Collection[str]) -> None:
    """Raise an error for settings of this package with unknown names. `known`: all
    names below `NAMESPACE`.
    """
    config = dask.config.config
    for name in tuple(config):
        # this also finds DASK_SIMJOIN_BLOCKSIZE, which lacks an underscore
        if isinstance(name, str) and NAMESPACE in name.lower() and name != NAMESPACE:
            raise _unknown(name, config[name], known)
    own = config.get(NAMESPACE)
    if own is None:
        return
    if not isinstance(own, Mapping):
        where = origin(NAMESPACE, own)
        raise OptionError(
            f"{where} has the value {shown(own)}, but {NAMESPACE} has settings below "
            f"it: {_listed(known)}."
        )
    for name in tuple(own):
        # unlike `normal`, Dask's names are case-sensitive
        if str(name).replace("_", "-") not in known:
            raise _unknown(f"{NAMESPACE}.{name}", own[name], known)


def _unknown(key: str, value: Any, known: Collection[str]) -> OptionError:
    where = source(normal(key), value)
    is_variable = where.startswith(VARIABLE)
    names = {name: f"{NAMESPACE}.{name}" for name in known}
    tail = normal(key).replace("dask-", "").removeprefix(NAMESPACE).lstrip("-.")
    meant = tail if tail in names else ""
    hint = f" (did you mean {meant!r}?)" if meant else did_you_mean(tail, known)
    meant = next((name for name in names if f"{name!r}" in hint), "")
    if meant:
        better = variable(names[meant]) if is_variable else names[meant]
        hint = f" (did you mean {better!r}?)"
    if is_variable:
        own = where.removeprefix(VARIABLE)
        use = (
            f"Correct it, or remove it with: unset {own}. Then start the program again."
        )
    elif where.startswith(FILE):
        use = "Correct the file, then call dask.config.refresh() or start Python again."
    else:
        use = (
            "Correct the call. To drop all values that were set in Python: "
            "dask.config.refresh()."
        )
    subject = where[0].upper() + where[1:] if is_variable else f"{key!r} of {where}"
    return OptionError(
        f"{subject} is not a setting of dask_simjoin{hint}. The settings are "
        f"{_listed(known, is_variable)}. {use}"
    )


def _listed(known: Collection[str], variables: bool = False) -> str:
    keys = [f"{NAMESPACE}.{name}" for name in known]
    return ", ".join(map(variable, keys) if variables else map(repr, keys))
