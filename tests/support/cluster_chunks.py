"""Chunks with halos as two workers would make them, without workers."""

import itertools

from dask_simjoin.cluster.expressions.components import Labels
from dask_simjoin.planning.entity_chunks import BY_WORKER
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.clusters import DbscanRequest
from dask_simjoin.tasks.by_worker import pack_partitions, unpack_together

WORKERS = Limits(2, 1 << 30, True, 2 << 30, workers=2, shuffle=BY_WORKER)


def parts_of(frame, cuts):
    """Return the partitions of a frame that is cut at some rows."""
    ends = [0, *cuts, len(frame)]
    return [frame.iloc[a:b] for a, b in itertools.pairwise(ends)]


def planned_chunks(parts, eps, min_samples, blocksize, **options):
    """Return the spec and the plan of DBSCAN of partitions that workers hold."""
    how = {"partitioning": "spatial", "blocksize": blocksize} | options
    asked = DbscanRequest(eps, min_samples=min_samples, **how)
    return planned(parts, asked, Labels._output)


def planned(parts, asked, output):
    """Return the spec and the plan of a request for partitions that workers hold."""
    spec = asked.spec(parts[0].iloc[:0])
    summaries = [
        summarise(part, n, spec, False, len(parts)) for n, part in enumerate(parts)
    ]
    plan = make_plan(join_statistics([summaries], spec), output, WORKERS)
    return spec.with_dims(plan.tables.dims), plan


def sent_chunks(parts, groups, spec, plan, with_ids=False):
    """Return the parcels of each group of partitions, and the chunks that are made of
    them. `with_ids`: whether the ids of rows are sent, too.
    """
    each, chunks = list(enumerate(plan.tables.sources[0])), plan.chunks
    sent = [
        pack_partitions(
            chunks,
            spec,
            with_ids,
            2,
            [each[n] for n in numbers],
            *(parts[n] for n in numbers),
        )
        for numbers in groups
    ]
    example = parts[0].iloc[:0]
    made = [
        unpack_together(
            c, chunks, example, plan.layout, 2, *(parcels[c] for parcels in sent)
        )
        for c in range(len(chunks))
    ]
    return sent, made
