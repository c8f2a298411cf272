"""A matrix of numbers as a small picture, in SVG."""

from __future__ import annotations

import html
import math

import numpy as np

SHADES = 12
FAINT, DARK = (222, 235, 247), (8, 48, 107)
"""Colours (RGB) of block pairs that give no pairs and most pairs."""

SIDE = 320
"""Width and height of the picture's matrix, in pixels."""


def picture(pairs: np.ndarray, together: int, chunks: int, title: str) -> str:
    """The SVG of a matrix of pairs; `together`: chunks on a side of a cell, of `chunks` in all."""
    side = max(len(pairs), 1)
    met = ~np.isnan(pairs)
    most = float(pairs[met].max(initial=0.0))
    shade = np.zeros(pairs.shape, np.int64)
    shade[met] = np.rint(np.log1p(pairs[met]) / max(math.log1p(most), 1e-300) * (SHADES - 1))
    # one path for each shade is a tenth of the text that one element for each cell would be
    paths = []
    for k in range(SHADES):
        cells = "".join(f"M{x} {y}h1v1h-1z" for y, x in np.argwhere(met & (shade == k)).tolist())
        paths.append(f'<path fill="{_colour(k)}" d="{cells}"/>' if cells else "")
    legend = [f'<rect x="{k * 12}" width="12" height="10" fill="{_colour(k)}"/>' for k in range(SHADES)]
    cell = f", {together:,} x {together:,} of them a cell" if together > 1 else ""
    end = SIDE + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIDE + 40}" height="{SIDE + 76}" '
        'font-family="sans-serif" font-size="11">'
        f"<title>{html.escape(title)}</title>"
        '<rect width="100%" height="100%" fill="white"/>'
        f'<text x="24" y="16">data chunk 0 ... {chunks - 1:,}{cell}</text>'
        f'<text transform="translate(16,{end}) rotate(-90)">query chunk {chunks - 1:,} ... 0</text>'
        f'<g transform="translate(24,24) scale({SIDE / side:.6g})" shape-rendering="crispEdges">'
        f"{''.join(paths)}</g>"
        f'<rect x="24" y="24" width="{SIDE}" height="{SIDE}" fill="none" stroke="gray"/>'
        f'<g transform="translate(24,{end + 14})">{"".join(legend)}</g>'
        f'<text x="24" y="{end + 40}">pairs of a cell: 0 ... {most:,.0f} (log scale); white: no join</text>'
        "</svg>"
    )


def _colour(shade: int) -> str:
    share = shade / (SHADES - 1)
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(FAINT, DARK, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"
