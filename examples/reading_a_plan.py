"""
A plan, as a notebook shows it
==============================

A plan is made before a join runs: it tells what would run, and what would come out. At the end of a cell it
shows as a table and a picture; ``print`` shows the table as text. What its lines mean is told in the guide,
under "Reading a plan".

::

    python examples/reading_a_plan.py    # prints the plans
"""

from pathlib import Path

import dask.dataframe as dd

import dask_simjoin  # noqa: F401  (gives Dask DataFrames the accessor .simjoin)

DATA = Path(__file__).resolve().parent / "data" / "places.parquet"
places = dd.read_parquet(DATA, split_row_groups=True)
how = {"on": ["latitude", "longitude"], "metric": "haversine", "id": "geonameid"}

# chunks are small here, so that there is something to see: 45,476 places are one by default
small = {**how, "blocksize": "100 kB"}
plan = places.simjoin.plan(2_000, **small)
print(plan)

# %%
# Regions, each of which meets only itself and copies of the rows around it:

plan

# %%
# The same with rows as they lie in the file, which are in no order of space. Every chunk meets every other,
# and the time that is expected is several times as long:

places.simjoin.plan(2_000, partitioning="entity", **small)

# %%
# Two tables: towns and the places around them. Rows of the picture are chunks of the left table, columns
# those of the right one.

towns = places[places["population"] >= 15_000]
places.simjoin.plan(5_000, other=towns, **small)

# %%
# Numbers for scripts, and a row for each two chunks that meet:

print(f"{plan.pairs:,.0f} pairs ({plan.pairs_low:,.0f} to {plan.pairs_high:,.0f})")
plan.to_frame().head()

# sphinx_gallery_thumbnail_path = 'images/thumbnails/reading_a_plan.png'
