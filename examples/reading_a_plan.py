"""
A plan, as a notebook shows it
==============================

A plan is made before a join runs. It shows the tasks, and estimates the result. At the
end of a notebook cell it is a table and a picture; ``print`` shows the table as text.
The guide explains each line, in "Reading a plan".

::

    python examples/reading_a_plan.py    # prints the plans
"""

from pathlib import Path

import dask.dataframe as dd

import dask_simjoin  # noqa: F401  (gives Dask DataFrames the accessor .simjoin)

DATA = Path(__file__).resolve().parent / "data" / "places.parquet"
places = dd.read_parquet(DATA, split_row_groups=True)
how = {"on": ["latitude", "longitude"], "metric": "haversine", "id": "geonameid"}

# chunks are small here, so that there is something to see: by default, 45,476 places
# are one chunk
small = {**how, "blocksize": "100 kB"}
plan = places.simjoin.plan(2_000, **small)
print(plan)

# %%
# Each region is compared only with itself, and with copies of the rows around it:

plan

# %% The rows of the file have no order in space. If they stay in that order, every
# chunk is compared with every other one, and the estimated time is several times as
# long:

places.simjoin.plan(2_000, partitioning="entity", **small)

# %% Two tables: towns and the places around them. Rows of the picture are chunks of the
# left table, columns are chunks of the right one.

towns = places[places["population"] >= 15_000]
places.simjoin.plan(5_000, other=towns, **small)

# %%
# Numbers for scripts, and a table with one row per block pair:

print(f"{plan.pairs:,.0f} pairs ({plan.pairs_low:,.0f} to {plan.pairs_high:,.0f})")
plan.to_frame().head()

# sphinx_gallery_thumbnail_path = 'images/thumbnails/reading_a_plan.png'
