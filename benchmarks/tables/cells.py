"""Format numbers for tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

PEERS = {
    "scipy": "SciPy",
    "sklearn": "scikit-learn",
    "faiss": "faiss",
    "vesin": "vesin",
    "duckdb": "DuckDB",
    "scipy query_pairs": "SciPy",
    "scipy query": "SciPy",
    "scipy count_neighbors": "SciPy",
    "sklearn-brute": "scikit-learn, brute force",
    "dbscan": "dbscan",
    "hdbscan": "hdbscan",
    "fast_hdbscan": "fast_hdbscan",
    "quitefastmst": "quitefastmst",
    "pykdtree": "pykdtree",
}
"""Names of tools in tables."""

SHAPES = {
    "unif": "uniform",
    "expo": "exponential",
    "clus": "clusters",
    "syn": "exponential",
    "dupl": "ten copies of each",
}
"""The beginning of a row's name -> a description of its points."""


def seconds(value: float | None) -> str:
    """Format three digits: 0.0431, 7.03, 18.1."""
    if value is None:
        return ""
    digits = 3 if value >= 0.1 else 2
    text = f"{value:#.{digits}g}"
    return text if "e" not in text and not text.endswith(".") else f"{value:.0f}"


def times(value: float | None) -> str:
    """Format a ratio: 3.4x, 16x, 1,022x."""
    if value is None:
        return ""
    return f"{value:.1f}x" if value < 9.95 else f"{value:,.0f}x"


def count(value: int | None) -> str:
    """Format a whole number."""
    return "" if value is None else f"{value:,}"


def rows(value: int) -> str:
    """Format a round number of rows: 1M, 500k."""
    if value % 1_000_000 == 0:
        return f"{value // 1_000_000}M"
    return f"{value // 1_000}k" if value % 1_000 == 0 else f"{value:,}"


def points(name: str, dims: int) -> str:
    """Describe the points of a row: uniform 2-D."""
    return f"{next(long for short, long in SHAPES.items() if name.startswith(short))} {dims}-D"


def median(tools: dict[str, Any], name: str) -> Any:
    """Return the median of a tool's runs, if it ran."""
    return tools.get(name, {}).get("median")


def best(tools: dict[str, Any], own: Collection[str]) -> str:
    """Return the name of the fastest tool that is not one of ours."""
    return min(
        (
            name
            for name, found in tools.items()
            if name not in own and "median" in found
        ),
        key=lambda name: tools[name]["median"],
    )


def peer(tools: dict[str, Any], own: Collection[str]) -> str:
    """Return the best of the other tools, and its seconds."""
    name = best(tools, own)
    return f"{PEERS.get(name, name)} {seconds(tools[name]['median'])}"
