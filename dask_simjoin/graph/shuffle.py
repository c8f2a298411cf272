"""Send rows to the chunks of regions, by Dask's shuffle or by the workers that hold the
rows.

Dask's shuffle has a task for each pair of a partition and a chunk. If workers of a
cluster hold the partitions, there is one task per worker instead. This task packs all
partitions of the worker into parcels, one for each chunk. A chunk is then indexed from
one parcel per worker. Usually a worker makes one chunk, so each worker sends one message
to each other worker.

Dask sends arrays efficiently only in plain tuples, lists and dicts. It pickles other
objects, and copies CuPy arrays in them to host memory. So named tuples of arrays are
registered with Dask. Sending 100 million counts took 2.7 s with pickle, and 0.05 s as
bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Future

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.graph.base import LabelledExpr, Shared
from dask_simjoin.graph.dask_private import (
    Expr,
    FromGraph,
    Projection,
    Shuffle,
    Task,
    TaskRef,
)
from dask_simjoin.graph.placement import on_worker_of
from dask_simjoin.graph.source import (
    FrozenSource,
    Listed,
    MapPartition,
    held_keys,
    is_held,
    optimise_in_place,
)
from dask_simjoin.graph.workers import check_sending, on_worker
from dask_simjoin.metrics.norms import Frame, Values
from dask_simjoin.planning.entity_chunks import BY_WORKER, Piece, Shuffled
from dask_simjoin.planning.limits import Limits
from dask_simjoin.request.options import current_client
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import FEW
from dask_simjoin.tasks.by_worker import pack_partitions
from dask_simjoin.tasks.chunks import Fingerprint, as_planned
from dask_simjoin.tasks.named_tuples import register_tuples
from dask_simjoin.tasks.shuffle import (
    CELL,
    ID,
    LIMIT,
    POSITION,
    cell_chunk,
    cell_chunk_together,
    cell_columns,
    pack,
    send,
    send_piece,
    sent_names_of_kept,
)


def held_by_workers(source: FrozenSource) -> FromGraph | None:
    """If workers of a cluster hold the partitions of a source, return the frame with
    all its columns; else None.
    """
    frame, client = source.inner.simplify(), current_client()
    while isinstance(frame, Projection):
        frame = frame.frame
    if client is None or client.asynchronous or not is_held(frame):
        return None
    layer = frame.operand("layer")
    return (
        frame
        if all(isinstance(layer.get(key), Future) for key in held_keys(frame))
        else None
    )


Group = tuple[int, list[int]]
"""The number of a worker, and the partitions that it packs, ascending."""


def where_held(frame: FromGraph) -> list[Group]:
    """Assign the partitions of a frame to the workers that hold them.

    Workers without partitions are left out.
    """
    return dealt_out(*holders(frame))


def holders(frame: FromGraph) -> tuple[list[list[str]], dict[str, int]]:
    """Return the workers that hold each partition of a frame, and the number of threads
    of each worker.
    """
    client, keys = current_client(), held_keys(frame)
    assert client is not None
    there = client.who_has([frame.operand("layer")[key] for key in keys])
    return [list(there.get(key, ())) for key in keys], client.nthreads()


def dealt_out(held_by: Sequence[Sequence[str]], threads: dict[str, int]) -> list[Group]:
    """Assign partitions to workers, as `where_held` does.

    `held_by`: for each partition, the workers that hold it. `threads`: number of
    threads of each worker. If no worker or several workers hold a partition, it goes to
    the worker that has the fewest partitions per thread so far.
    """
    own: dict[str, list[int]] = {worker: [] for worker in threads}
    several = []
    for number, workers in enumerate(held_by):
        if len(workers) == 1 and workers[0] in own:
            own[workers[0]].append(number)
        else:
            several.append(
                (number, [worker for worker in workers if worker in own] or list(own))
            )
    for number, workers in several:
        own[min(workers, key=lambda worker: len(own[worker]) / threads[worker])].append(
            number
        )
    return [
        (number, sorted(own[worker]))
        for number, worker in enumerate(sorted(own))
        if own[worker]
    ]


def runs_held(source: FrozenSource) -> list[tuple[int, int]]:
    """Divide the partitions of a source into runs that one worker holds: see `runs_of`."""
    owners, held = list(range(source.inner.npartitions)), held_by_workers(source)
    for worker, numbers in () if held is None else where_held(held):
        for n in numbers:
            owners[n] = worker
    return runs_of(owners)


def runs_of(owners: Sequence[int]) -> list[tuple[int, int]]:
    """Divide partitions into runs (first, last + 1): at most `FEW` consecutive partitions
    with the same owner.
    """
    runs: list[tuple[int, int]] = []
    for _, same in itertools.groupby(range(len(owners)), owners.__getitem__):
        numbers = list(same)
        end = numbers[-1] + 1
        runs += [(n, min(n + FEW, end)) for n in range(numbers[0], end, FEW)]
    return runs


SEND = "simjoin_send"
"""Name of the tasks that make the rows that workers send to each other."""


class HeldParcels(LabelledExpr):
    """For each worker, pack all its partitions into parcels, one for each chunk.

    `frozen`: the rows, which workers usually hold.  `groups`: for each task, its worker
    and the partitions that it packs.  `each`: fingerprints of all partitions.
    `threads`: number of threads of each task.
    """

    _label = SEND
    _parameters = [
        "frozen",
        "groups",
        "each",
        "shared",
        "spec",
        "with_ids",
        "threads",
    ]

    def place(self, g: int, *more: Any) -> tuple[Any, ...]:
        """Return the end of a task's key, such that the task runs on the worker of
        group `g`.
        """
        return on_worker_of(self.operand("groups")[g][0], *more, g)

    def _divisions(self) -> Any:
        return (None,) * (1 + len(self.operand("groups")))

    def _layer(self) -> dict[Any, Any]:
        each, shared = self.operand("each"), self.operand("shared")
        keys, layer = partition_tasks(self.operand("frozen").inner)
        options = (self.operand(name) for name in ("spec", "with_ids", "threads"))
        how = shared.ref, *options
        for g, (_, numbers) in enumerate(self.operand("groups")):
            key, parts = self.key(g), [TaskRef(keys[n]) for n in numbers]
            layer[key] = Task(
                key,
                on_worker,
                pack_partitions,
                *how,
                [each[n] for n in numbers],
                *parts,
            )
        return layer


def partition_tasks(frame: Expr) -> tuple[list[Any], dict[Any, Any]]:
    """Return the keys of a frame's partitions, and a graph with the tasks that make
    them.

    Aliases of partitions in memory stay in it, although nothing needs them. Dask's time
    to order tasks would else grow with the square of the number of partitions: it
    leaves out data that several tasks need.
    """
    if is_held(frame):
        return held_keys(frame), dict(frame.operand("layer"))
    return frame.__dask_keys__(), dict(frame.__dask_graph__())


def parcels_by_worker(
    source: FrozenSource,
    held: FromGraph | None,
    spec: JoinSpec,
    chunks: Shuffled,
    each: Sequence[Fingerprint],
    with_ids: bool,
    limits: Limits,
) -> tuple[HeldParcels, Shared | None, Shared]:
    """Pack the rows of regions, from the partitions that workers hold, into parcels.
    Return the parcels, the regions if a chunk also has its halo, and the offsets.

    `held`: the frame of these partitions. None: the workers have lost them, so each
    task reads its partitions again.
    """
    if held is None:
        frame, number = optimise_in_place(source.inner), source.inner.npartitions
        tasks = min(number, limits.workers)
        cuts = [number * k // tasks for k in range(tasks + 1)]
        parts = enumerate(itertools.pairwise(cuts))
        groups = Listed(
            [(k * limits.workers // tasks, list(range(a, b))) for k, (a, b) in parts]
        )
    else:
        frame, groups = held, Listed(where_held(held))
    shared = Shared("simjoin_regions", chunks)
    how = shared, spec, with_ids, limits.together
    parcels = HeldParcels(FrozenSource(frame), groups, each, *how)
    offsets = Shared("simjoin_offsets", chunks.offsets)
    return parcels, shared if chunks.mutual else None, offsets


def packed_rows(
    source: FrozenSource,
    spec: JoinSpec,
    chunks: Shuffled,
    each: Sequence[Fingerprint],
    with_ids: bool,
) -> FrozenSource:
    """Pack the rows of each partition into parcels, one for each chunk."""
    regions = Shared("simjoin_regions", chunks)
    expr = MapPartition(source.inner, SEND, pack, (spec, with_ids), each, None, regions)
    return FrozenSource(optimise_in_place(expr))


def shuffled_chunks(
    source: FrozenSource,
    spec: JoinSpec,
    layout: Layout | SearchLayout,
    chunks: Shuffled,
    each: Sequence[Fingerprint],
    with_ids: bool,
    max_rows: int,
    threads: int,
) -> Expr:
    """Shuffle rows to their chunks, and index the chunks.

    `max_rows`: number of rows to send at a time. `threads`: number of threads that index
    a chunk together with its halo.
    """
    example = source.inner._meta.iloc[:0]
    meta = _sent(example, spec, with_ids)
    regions = Shared("simjoin_regions", chunks)
    pieces = cut_rows([rows for _, (rows, _) in each], max_rows)
    if len(pieces) > len(each):
        read = optimise_in_place(
            MapPartition(source.inner, "simjoin_read", as_planned, (spec,), each)
        )
        how = _send_piece, (spec, with_ids)
        sent: Expr = SentPieces(FrozenSource(read), pieces, *how, meta, regions)
    else:
        sent = MapPartition(
            source.inner, SEND, _send, (spec, with_ids), each, meta, regions
        )
    # workers held the rows when the join was planned with `BY_WORKER`, but they no
    # longer do
    method = "tasks" if chunks.method == BY_WORKER else chunks.method
    moved = Shuffle(sent, CELL, len(chunks), True, method)
    if chunks.mutual:
        with_halo = example, spec, layout, threads
        numbers = Listed(range(len(chunks)))
        making = cell_chunk_together, with_halo, numbers, None, regions
        return optimise_in_place(MapPartition(moved, "simjoin_chunk", *making))
    return optimise_in_place(
        MapPartition(
            moved, "simjoin_chunk", cell_chunk, (example, spec, layout, with_ids)
        )
    )


def cut_rows(rows: list[int], max_rows: int) -> tuple[Piece, ...]:
    """Cut partitions into even pieces of at most `max_rows` rows. `rows`: rows in each
    partition.
    """
    pieces: list[Piece] = []
    for number, size in enumerate(rows):
        parts = max(1, -(-size // max_rows))
        ends = [size * k // parts for k in range(parts + 1)]
        pieces += [(number, start, stop) for start, stop in itertools.pairwise(ends)]
    return tuple(pieces)


class SentPieces(LabelledExpr):
    """Send partitions in pieces.

    The class is not Blockwise, because Dask would then read a partition again for each
    of its pieces. The operand `function` takes a partition, a piece, the shared value,
    and the arguments.
    """

    _label = SEND
    _parameters = ["frozen", "pieces", "function", "arguments", "meta", "shared"]

    def _divisions(self) -> Any:
        return (None,) * (1 + len(self.operand("pieces")))

    def _layer(self) -> dict[Any, Any]:
        read, shared = self.operand("frozen").inner, self.operand("shared").ref
        keys, layer = partition_tasks(read)
        function, arguments = self.operand("function"), self.operand("arguments")
        for n, piece in enumerate(self.operand("pieces")):
            key = (self._name, n)
            layer[key] = Task(
                key,
                on_worker,
                function,
                TaskRef(keys[piece[0]]),
                piece,
                shared,
                *arguments,
            )
        return layer


def _send(
    frame: Frame,
    fingerprint: Fingerprint,
    chunks: Shuffled,
    spec: JoinSpec,
    with_ids: bool,
) -> Frame:
    """Call `send`. If the shuffle method needs workers, and there are none, raise an
    error.
    """
    check_sending(chunks.method)
    return send(frame, fingerprint, chunks, spec, with_ids)


def _send_piece(
    frame: Frame, piece: Piece, chunks: Shuffled, spec: JoinSpec, with_ids: bool
) -> Frame:
    """Call `send_piece`. If the shuffle method needs workers, and there are none, raise
    an error.
    """
    check_sending(chunks.method)
    return send_piece(frame, piece, chunks, spec, with_ids)


def _sent(example: Frame, spec: JoinSpec, with_ids: bool) -> Frame:
    """Return an empty example of the frames that `send` returns."""
    frames = frames_for(example)
    columns: dict[str, Values] = {}
    for name, kind in cell_columns(example, spec).items():
        columns[name] = np.empty(0, kind)
    if with_ids:
        columns[ID] = row_ids(example, spec.id)
    for name, column in zip(sent_names_of_kept(spec), spec.keep, strict=True):
        columns[name] = frames.values(example, column, np.zeros(0, np.int64))
    if spec.radius is not None:
        columns[LIMIT] = np.empty(0)
    columns |= {POSITION: np.empty(0, np.int64), CELL: np.empty(0, np.int64)}
    return frames.result(columns, 0)


register_tuples()
