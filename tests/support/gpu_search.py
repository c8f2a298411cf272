"""Search for nearest neighbors on a GPU, chunk by chunk."""

import itertools
import math

import cupy
import numpy as np

from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.gpu.nearest import SEARCHER


def search(
    q, d, q_names, d_names, k, same, layout, bound2=math.inf, cuts=(), order=None
):
    """Search by chunks: both sides are cut at `cuts`, and each query chunk meets data
    chunks in `order`.
    """
    results = []

    def chunks(x, names):
        bounds = [0, *sorted(min(c, len(x)) for c in cuts), len(x)]
        for a, b in itertools.pairwise(bounds):
            index = JOINER.build(cupy.asfortranarray(cupy.asarray(x[a:b])), layout)
            yield SEARCHER.renamed(index, cupy.asarray(names[a:b]))

    data = list(chunks(d, d_names))
    for chunk in data if q is d else chunks(q, q_names):
        state = SEARCHER.fresh(len(chunk["names"]), k)
        for n in order if order is not None else range(len(data)):
            SEARCHER.nearest(
                chunk, data[n], layout, *state, is_self_join=same, bound2=bound2
            )
        results.append([cupy.asnumpy(part) for part in state])
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))
