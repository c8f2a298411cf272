"""``python -m benchmarks.papers.picture``: draw figure 5.1 of the k-means thesis,
points in two dimensions.

The first two principal components come from all points, and the picture shows some of
them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.papers.lists_rows import points
from benchmarks.tables.charts import INK, MARGIN, OWN, WIDTH

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "papers" / "clusters.svg"

ROWS, DRAWN = 100_000, 3000
"""Points of the thesis, and how many of them are drawn."""

SCALE = 10
"""Units of the drawing per pixel, so that whole numbers are precise enough."""


def components(x: np.ndarray) -> np.ndarray:
    """Return the first two principal components of points; the largest weight of each
    is positive.
    """
    centered = x - x.mean(axis=0)
    axes = np.linalg.eigh(centered.T @ centered)[1][:, :-3:-1]
    largest = axes[np.abs(axes).argmax(axis=0), [0, 1]]
    return np.asarray(centered @ (axes * np.sign(largest)))


def drawn() -> str:
    """Draw the points as SVG, with the same scale on both axes."""
    x = components(points("clusters", ROWS, 8, 0.0).astype(np.float64))[:DRAWN]
    low, high = x.min(axis=0), x.max(axis=0)
    unit = SCALE * (WIDTH - 2 * MARGIN) / (high[0] - low[0])
    across, down = (
        np.rint((x - (low[0], high[1])) * (unit, -unit) + SCALE * MARGIN).astype(int).T
    )
    width, height = SCALE * WIDTH, int(down.max()) + 2 * SCALE * MARGIN
    dots = "".join(f"M{a} {b}h0" for a, b in zip(across, down, strict=True))
    turned = f'transform="translate({11 * SCALE} {height // 2}) rotate(-90)"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{WIDTH}" '
            f'height="{height // SCALE}" font-family="sans-serif" font-size="{12 * SCALE}" fill="{INK}">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<path d="{dots}" stroke="{OWN}" stroke-width="{2 * SCALE}" stroke-linecap="round"/>',
            f'<text x="{width // 2}" y="{height - 8 * SCALE}" text-anchor="middle">first component</text>',
            f'<text {turned} text-anchor="middle">second component</text>',
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn())
