"""Send rows that workers hold to the chunks of regions: by a task for what each worker has.

Dask shuffles partition by partition, a task for each that goes to each chunk.  Where rows lie is known of
frames that a cluster holds: one task packs all that a thread has, of each chunk one parcel, and chunks are
indexed from as many parcels as there are threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import Future

from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import Expr, FromGraph, Projection, Task, TaskRef
from dask_simjoin.expressions.records import NO_RUN, RunName
from dask_simjoin.expressions.source import FrozenSource, Listed, Shared, held_keys, is_held, pick
from dask_simjoin.expressions.worker_memory import on_worker
from dask_simjoin.options.settings import current_client
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.chunking.base import Shuffled
from dask_simjoin.tasks.chunks import Fingerprint
from dask_simjoin.tasks.moving_together import pack_together, unpack_together


def held_by_workers(source: FrozenSource) -> FromGraph | None:
    """Return the frame whose partitions workers of a cluster hold, of all its columns; None: they do not."""
    frame, client = source.inner.simplify(), current_client()
    while isinstance(frame, Projection):
        frame = frame.frame
    if client is None or client.asynchronous or not is_held(frame):
        return None
    layer = frame.operand("layer")
    return frame if all(isinstance(layer.get(key), Future) for key in held_keys(frame)) else None


def where_held(frame: FromGraph) -> list[list[int]]:
    """List for each thread of workers that hold partitions the numbers of some of them, ascending.

    One that lies nowhere yet, or on several workers, is taken by who has the fewest so far.
    """
    client, keys = current_client(), held_keys(frame)
    assert client is not None
    there = client.who_has([frame.operand("layer")[key] for key in keys])
    return dealt_out([list(there.get(key, ())) for key in keys], client.nthreads())


def dealt_out(holders: Sequence[Sequence[str]], threads: dict[str, int]) -> list[list[int]]:
    """Do the same of partitions that these workers hold, which have so many threads."""
    own: dict[str, list[int]] = {worker: [] for worker in threads}
    several = []
    for number, workers in enumerate(holders):
        if len(workers) == 1 and workers[0] in own:
            own[workers[0]].append(number)
        else:
            several.append((number, [worker for worker in workers if worker in own] or list(own)))
    for number, workers in several:
        own[min(workers, key=lambda worker: len(own[worker]) / threads[worker])].append(number)
    parts = [sorted(numbers)[k :: threads[worker]] for worker, numbers in own.items()
             for k in range(threads[worker])]  # fmt: skip
    return [part for part in parts if part]


class HeldParcels(LabelledExpr):
    """Pack what each thread's worker holds, of each chunk a parcel.

    `groups`: the partitions that one task packs; `each`: what the plan knows of each of them.
    """

    _label = "simjoin_send"
    _parameters = ["frozen", "groups", "each", "shared", "spec", "with_ids"]

    def _divisions(self) -> Any:
        return (None,) * (1 + len(self.operand("groups")))

    def _layer(self) -> dict[Any, Any]:
        frame, each, shared = self.operand("frozen").inner, self.operand("each"), self.operand("shared")
        keys, layer = held_keys(frame), dict(frame.operand("layer"))
        how = shared.ref, self.operand("spec"), self.operand("with_ids")
        for g, numbers in enumerate(self.operand("groups")):
            key, parts = (self._name, g), [TaskRef(keys[n]) for n in numbers]
            layer[key] = Task(key, on_worker, pack_together, *how, [each[n] for n in numbers], *parts)
        return layer


class ChunksOfParcels(LabelledExpr):
    """Index chunks whose rows the workers that hold them have packed."""

    _label = "simjoin_index"
    _parameters = ["parcels", "number", "offsets", "example", "layout", "run"]
    _defaults = {"run": NO_RUN}

    def _divisions(self) -> Any:
        return (None,) * (1 + self.operand("number"))

    def _layer(self) -> dict[Any, Any]:
        layer: dict[Any, Any] = {}
        packed, groups = self.parcels._name, self.parcels.npartitions
        how = self.operand("example"), self.operand("layout"), self.operand("offsets").ref
        sent = f"simjoin_parcel-{self.deterministic_token}"
        for c in range(self.operand("number")):
            for g in range(groups):  # only this travels, and not what all chunks take
                layer[(sent, c, g)] = Task((sent, c, g), pick, TaskRef((packed, g)), c)
            parcels = [TaskRef((sent, c, g)) for g in range(groups)]
            layer[(self._name, c)] = Task((self._name, c), unpack_together, *how, *parcels)
        return layer


def chunks_of_held(source: FrozenSource, frame: FromGraph, spec: JoinSpec, chunks: Shuffled,
                   each: Sequence[Fingerprint], layout: Layout | SearchLayout, with_ids: bool,
                   run: RunName) -> Expr:  # fmt: skip
    """Index the chunks of regions from the partitions that workers hold."""
    groups = Listed(where_held(frame))
    shared = Shared("simjoin_regions", chunks)
    parcels = HeldParcels(FrozenSource(frame), groups, each, shared, spec, with_ids)
    example = source.inner._meta.iloc[:0]
    offsets = Shared("simjoin_offsets", chunks.offsets)
    return ChunksOfParcels(parcels, len(chunks), offsets, example, layout, run)
