"""Sparse matrices of neighbours in CSR form, made from chunks in two passes: count, then fill.

Rows of chunks have names, the numbers of rows and columns of the matrix: their positions in the frame.
Parts of the matrix are plain dicts of arrays: "counts" (n,) of entries of each row, "columns" and "values"
of all entries, row after row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import module_of, values_of
from dask_simjoin.options.optional import optional
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.matrix_budget import Fitting
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import count_block
from dask_simjoin.tasks.csr_entries import move, narrow, put, sort_rows, starts_of

MODES = DISTANCE, CONNECTIVITY = ("distance", "connectivity")

WIDE = np.iinfo(np.int32).max
"""Numbers up to which int32 serves."""


Part = dict[str, Any]


def sparse(xp: Any) -> Any:
    """SciPy's sparse matrices, or for CuPy's arrays those that are like them."""
    if xp is np:
        return optional("scipy.sparse", "scipy", "Neighbor graphs")
    return optional("cupyx.scipy.sparse", "cupy", "Neighbor graphs of cuDF frames")


def offset_type(xp: Any, most: int) -> Any:
    """The type of offsets and columns of a matrix; `most`: entries or rows, whichever are more.

    SciPy gets int64.  CuPy makes int32 of them wherever that holds them.
    """
    return np.int64 if xp is np or most > WIDE else np.int32


def most_entries(xp: Any) -> int | None:
    """How many entries a matrix can have; None: any number."""
    # before 14.1, CuPy had no other type than int32
    if xp is np or sparse(xp).csr_matrix((1, WIDE + 1)).indices.dtype == np.int64:
        return None
    return WIDE


def weights_of(totals: Any, spec: JoinSpec, mode: str) -> Any:
    """What entries hold, from the totals that `Joiner.visit` shows; their memory may be used for it."""
    xp = module_of(totals)
    return spec.measure.distance(totals, xp) if mode == DISTANCE else xp.ones(len(totals))


def names_of(chunk: Chunk, firsts: list[int], kind: Any) -> Any:
    """The names of a chunk's rows, ascending.

    `firsts`: of an entity chunk, whose rows are called by their numbers in their partitions, the names of
    the first rows of its pieces' partitions.
    """
    if "position" in chunk:
        return chunk["position"].astype(kind)
    xp = frames_for(chunk["example"]).xp
    names = xp.array(values_of(chunk["ids"]), kind)
    ends = chunk["ends"].tolist()
    for first, start, stop in zip(firsts, [0, *ends], ends, strict=False):
        names[start:stop] += first
    return names


def count_entries(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool) -> tuple[Any, Any, int]:
    """Numbers of entries of the rows of two chunks in each other's columns, and of all of them."""
    counts = [None if c is None else narrow(c) for c in count_block(q, d, spec, layout, same)]
    return counts[0], counts[1], sum(int(c.sum(dtype=np.int64)) for c in counts if c is not None)


def fill_block(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, counts: tuple[Any, ...],
               names: tuple[Any, Any], mode: str) -> tuple[Part, Part | None]:  # fmt: skip
    """The entries of the rows of two chunks in each other's columns."""
    xp = frames_for(q["example"]).xp
    parts, at = [], []
    for count in counts[: 1 if same else 2]:
        starts = starts_of(count)
        parts.append(_empty_part(count, int(starts[-1]), names[0].dtype, xp))
        at.append(starts[:-1])
    fill(q, d, spec, layout, same, names, mode, at, parts)
    return parts[0], None if same else parts[1]


def _empty_part(counts: Any, entries: int, kind: Any, xp: Any) -> Part:
    return {"counts": counts, "columns": xp.empty(entries, kind), "values": xp.empty(entries)}


def fill(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, names: tuple[Any, Any], mode: str,
         at: list[Any], parts: list[Part]) -> None:  # fmt: skip
    """Put the entries of two chunks, or of one with itself, where their rows' next entries go."""

    def visitor(left: Any, right: Any, totals: Any) -> None:
        values = weights_of(totals, spec, mode)
        for side, rows, columns in ((0, left, names[1][right]), (-1, right, names[0][left])):
            put(rows, columns, values, at[side], parts[side]["columns"], parts[side]["values"])

    joiner_for(q["example"]).visit(q, d, layout, visitor, same=same)


def with_itself(names: Any, mode: str, at: Any, part: Part) -> None:
    """Put each row's entry for itself where the row's next entry goes."""
    part["columns"][at], part["values"][at] = names, float(mode == CONNECTIVITY)
    at += 1


def gather_rows(names: Any, itself: bool, mode: str, *blocks: Part) -> Part:
    """All entries of the rows of a chunk, sorted, from those in the columns of each chunk that it meets."""
    xp = module_of(names)
    counts = xp.full(len(names), int(itself), np.int64)
    for block in blocks:
        counts += block["counts"]
    starts = starts_of(counts)
    part = _empty_part(narrow(counts), int(starts[-1]), names.dtype, xp)
    at = starts[:-1].copy()
    if itself:
        with_itself(names, mode, at, part)
    for block in blocks:
        move(block["counts"], block["columns"], block["values"], at, part["columns"], part["values"])
    sort_rows(starts, part["columns"], part["values"])
    return part


def assemble(rows: int, example: Any, names: list[Any], parts: list[Part]) -> Any:
    """The matrix (rows, rows), from the rows of all chunks."""
    xp = frames_for(example).xp
    counts = xp.zeros(rows, np.int64)
    for name, part in zip(names, parts, strict=True):
        counts[name] = part["counts"]
    starts = starts_of(counts)
    number = int(starts[-1])
    kind = offset_type(xp, max(number, rows))
    columns, values = xp.empty(number, kind), xp.empty(number)
    for name, part in zip(names, parts, strict=True):
        move(part["counts"], part["columns"], part["values"], starts[name], columns, values)
    return matrix(values, columns, starts.astype(kind, copy=False))


def graph_of_chunk(chunk: Chunk, spec: JoinSpec, layout: Any, mode: str, fitting: Fitting) -> Any:
    """The matrix of one chunk that is all there is."""
    xp = frames_for(chunk["example"]).xp
    names = names_of(chunk, [0], np.int64)
    counts = xp.zeros(fitting.rows, np.int64)
    counts[names] = count_block(chunk, chunk, spec, layout, True)[0] + int(spec.include_self)
    starts = starts_of(counts)
    number = int(starts[-1])
    fitting.check(number)
    kind = offset_type(xp, max(number, fitting.rows))
    part = _empty_part(counts, number, kind, xp)
    at = starts[names]
    if spec.include_self:
        with_itself(names, mode, at, part)
    names = names.astype(kind, copy=False)
    fill(chunk, chunk, spec, layout, True, (names, names), mode, [at], [part])
    sort_rows(starts, part["columns"], part["values"])
    return matrix(part["values"], part["columns"], starts.astype(kind, copy=False))


def matrix(values: Any, columns: Any, starts: Any) -> Any:
    """A matrix of these arrays."""
    rows, xp = len(starts) - 1, module_of(values)
    kind = sparse(xp).csr_matrix
    if xp is not np:
        return kind((values, columns, starts), shape=(rows, rows))
    # put into an empty one: given to its constructor, int64 would be made int32 where that holds them
    made = kind((rows, rows))
    made.data, made.indices, made.indptr = values, columns, starts
    return made
