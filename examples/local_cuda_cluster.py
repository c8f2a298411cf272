"""
On all GPUs of a machine
========================

Join on all GPUs of one machine, with one worker per GPU. Pairs stay on the GPUs until
they are written.

The program makes points on the GPUs, plans their join, and joins them. Then it computes
how many neighbors a point has on average and at most.

::

    python examples/local_cuda_cluster.py                        # all GPUs, 20 million points
    python examples/local_cuda_cluster.py --rows 200000000 --partitioning spatial
    python examples/local_cuda_cluster.py --gpus 2 --protocol tcp

You need cuDF, CuPy and dask-cuda: see docs/install.md. With distributed-ucxx, rows move
over NVLink. docs/guide/gpus.md names the environment variables for UCX.
"""

from __future__ import annotations

import argparse
import math
import time
from importlib.util import find_spec

import cudf
import cupy
import dask
import dask.dataframe as dd
from dask_cuda import LocalCUDACluster
from distributed import Client, wait

import dask_simjoin  # noqa: F401  (gives Dask and cuDF DataFrames the accessor .simjoin)

PART_ROWS = 5_000_000


def points(number: int, rows: int) -> cudf.DataFrame:
    """Return the points of one partition: half spread over a cube, half in a thousand
    clusters.
    """
    random = cupy.random.default_rng(1000 + number)
    centers = cupy.random.default_rng(7).uniform(0, 1, (1000, 3))
    x = random.uniform(0, 1, (rows, 3))
    half = rows // 2
    x[:half] = centers[
        random.integers(0, 1000, size=half)
    ] + 0.01 * random.standard_normal((half, 3))
    columns = {name: x[:, k] for k, name in enumerate("xyz")}
    return cudf.DataFrame({"id": cupy.arange(rows) + number * rows} | columns)


def main() -> None:
    """Start a cluster, plan a join, run it, and print the time."""
    parser = argparse.ArgumentParser(
        description="Join points on the GPUs of this machine."
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--gpus", type=int, help="number of GPUs (default: all)")
    parser.add_argument(
        "--neighbors",
        type=float,
        default=5.0,
        help="neighbors of a point outside clusters",
    )
    parser.add_argument(
        "--protocol",
        choices=["tcp", "ucx"],
        default="ucx" if find_spec("distributed_ucxx") else "tcp",
        help="ucx uses NVLink, tcp the host (default: ucx if it is installed)",
    )
    parser.add_argument(
        "--partitioning",
        choices=["auto", "replicated", "entity", "spatial"],
        default="auto",
    )
    options = parser.parse_args()
    partitions = max(2, math.ceil(options.rows / PART_ROWS))
    rows = options.rows // partitions
    eps = (2 * options.neighbors / (rows * partitions) * 3 / (4 * math.pi)) ** (1 / 3)
    # by default Dask assumes 100 MB/s, and avoids transfers
    dask.config.set({"distributed.scheduler.bandwidth": "50 GB"})
    with (
        LocalCUDACluster(
            n_workers=options.gpus,
            protocol=options.protocol,
            # of each GPU's memory; without a pool, each array needs a call to the
            # driver
            rmm_pool_size=0.5,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        gpus = len(client.scheduler_info(n_workers=-1)["workers"])
        print(f"{gpus} GPUs, dashboard: {client.dashboard_link}")
        source = dd.from_map(
            points, range(partitions), rows=rows, meta=points(0, 2).iloc[:0]
        ).persist()
        wait(source)

        how = {"on": ["x", "y", "z"], "id": "id", "partitioning": options.partitioning}
        print(source.simjoin.plan(eps, **how))
        begin = time.perf_counter()
        pairs = source.simjoin.self_join(eps, **how).persist()
        wait(pairs)
        seconds = time.perf_counter() - begin
        neighbors = source.simjoin.neighbor_counts(eps, on=["x", "y", "z"])
        found, most, mean = dask.compute(len(pairs), neighbors.max(), neighbors.mean())
        print(
            f"{source.npartitions * rows:,} points: {found:,} pairs within {eps:.5f} "
            f"in {seconds:.2f} s, in "
            f"{pairs.npartitions} partitions on the GPUs"
        )
        print(f"A point has {mean:.1f} neighbors on average, and {most:,} at most")


# %% Output ------ The program needs GPUs, so it does not run while these pages are
# built. It prints the plan, the number of pairs and partitions, the seconds, and the
# average and largest number of neighbors of a point.

if __name__ == "__main__":
    main()

# sphinx_gallery_thumbnail_path = 'images/thumbnails/local_cuda_cluster.png'
