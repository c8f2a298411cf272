"""Where things are, from the root of the repository: tests may move."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PLACES = EXAMPLES / "data" / "places.parquet"
PACKAGE = ROOT / "dask_simjoin"
