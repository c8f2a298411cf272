"""Named tuples that workers send to each other field by field.

Dask would pickle a named tuple as a whole, which copies the arrays of a GPU through the
host. Sender and receiver must both have registered the class, so it is registered where
it is defined.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)

_WAITING: list[type] = []


def sent_by_fields(kind: Kind) -> Kind:
    """Decorate a named tuple: let Dask serialize its fields, instead of pickling the
    tuple.

    Plain frames need no `distributed`. If it is not loaded yet, `register_tuples`
    registers the class later. Workers have always loaded it.
    """
    _WAITING.append(kind)
    if "distributed" in sys.modules:
        register_tuples()
    return kind


def register_tuples() -> None:
    """Register the decorated classes with Dask that are not registered yet."""
    # `register_generic` of distributed would do the same, but it registers no
    # serializers between GPUs
    from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    families = (
        # for messages between hosts
        (("dask", "pickle"), dask_serialize, dask_deserialize),
        # for messages between GPUs
        (("cuda", "dask", "pickle"), cuda_serialize, cuda_deserialize),
    )
    while _WAITING:
        kind = _WAITING.pop()
        for serializers, dumps, loads in families:
            dumps.register(kind)(partial(_fields, serializers))
            loads.register(kind)(partial(_made, kind))


def _fields(serializers: tuple[str, ...], value: Any) -> Any:
    from distributed.protocol import serialize

    return serialize(
        tuple(value), serializers=serializers, on_error="raise", iterate_collection=True
    )


def _made(kind: type, header: Any, frames: Any) -> Any:
    from distributed.protocol import deserialize

    return kind(*deserialize(header, frames))
