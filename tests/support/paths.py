"""Paths of files from the root of the repository, which hold when tests move."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PLACES = EXAMPLES / "data" / "places.parquet"
PACKAGE = ROOT / "dask_simjoin"
