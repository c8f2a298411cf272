"""Pictures of reports, as SVG and with matplotlib: a matrix of block pairs, and bars."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.request.columns import optional

CELLS = 64
"""The picture has at most this many cells per direction. With more chunks, several
chunks share a cell.
"""

SHADES = 12
"""Number of colors for cells that have pairs; each covers an equal part of the
logarithmic scale.
"""

RAMP = ((217, 234, 150), (110, 198, 182), (38, 118, 180), (8, 29, 88))
"""Colors (RGB) of the scale from few pairs to many, equally spaced."""

NOTHING = (228, 228, 228)
"""Color of a cell whose chunks are compared, but have no pairs."""

DECADES = 4.0
"""The scale spans at most this many powers of ten. Values below it get the palest
color.
"""

SIDE, MIN_SIDE = 320, 80
"""Size of the picture in pixels: the longer side, and the minimum of the shorter side.
"""

BAR, TEXT, LINE = 300, 150, 18
"""In pixels: width of the longest bar, width of the names before the bars, and height
of a line.
"""

BLUE = "#2676b4"
"""Color of the bars."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """The picture of block pairs as a matrix of cells."""

    # (rows, columns), float64: for each cell, the sum over its block pairs; NaN if none
    # of its chunks are joined
    values: np.ndarray
    # for each cell, its number of query chunks, and of data chunks
    chunks_per_cell: tuple[int, int]
    chunks: tuple[int, int]  # total number of query chunks, and of data chunks
    unit: str  # what the values count, as a plural noun such as "pairs"

    @property
    def range(self) -> tuple[float, float]:
        """Return the smallest and the largest positive value; (0, 0) if no value is
        positive.
        """
        some = self.values[self.values > 0]
        return (float(some.min()), float(some.max())) if len(some) else (0.0, 0.0)

    @property
    def scale(self) -> tuple[float, float]:
        """Return the decimal logarithms of the values that get the palest and the
        darkest color.
        """
        low, high = self.range
        if not high:
            return 0.0, 1.0
        end = math.log10(high)
        return min(max(math.log10(low), end - DECADES), end - 1), end

    @property
    def shades(self) -> np.ndarray:
        """Return the shade of each cell, from 0 (pale) to 1 (dark); -1 if it has no
        pairs, NaN if it is not joined.
        """
        low, high = self.scale
        found = np.where(np.isnan(self.values), np.nan, -1.0)
        some = self.values > 0
        found[some] = ((np.log10(self.values[some]) - low) / (high - low)).clip(0, 1)
        return found

    def axis(self, side: int, *, back: bool = False) -> str:
        """Return the label of an axis. `side`: 0 for query chunks, 1 for data chunks."""
        chunks, per_cell = self.chunks[side], self.chunks_per_cell[side]
        ends = ["0", f"{chunks - 1:,}"]
        numbers = " ... ".join(ends[::-1] if back else ends) if chunks > 1 else "0"
        cell = f" ({per_cell:,} per cell)" if per_cell > 1 else ""
        return f"{('query', 'data')[side]} chunk {numbers}{cell}"

    def svg(self, title: str) -> str:
        rows, columns = (max(n, 1) for n in self.values.shape)
        height, width = (
            max(SIDE * n / max(rows, columns), MIN_SIDE) for n in (rows, columns)
        )
        with np.errstate(invalid="ignore"):
            shade = np.where(
                self.shades > 0, np.rint(self.shades * (SHADES - 1)), self.shades
            )
        # one path for all cells of a shade takes a tenth of the text of one element per
        # cell
        paths = []
        for k in range(-1, SHADES):
            cells = "".join(
                f"M{x} {y}h1v1h-1z" for y, x in np.argwhere(shade == k).tolist()
            )
            paths.append(f'<path fill="{_color(k)}" d="{cells}"/>' if cells else "")
        legend = [
            f'<rect x="{k * 12}" width="12" height="10" fill="{_color(k)}"/>'
            for k in range(SHADES)
        ]
        end, across = height + 24, self.axis(0, back=True)
        low, high = (_short(10**mark) for mark in self.scale)
        text = f"{self.unit} per cell: {low} ... {high} (log scale); gray: none; white: no join"
        text = text if self.range[1] else f"no {self.unit}; white: no join"
        return _document(
            title,
            SIDE + 110,
            end + 56,
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="24" y="16">{self.axis(1)}</text>',
            f'<text transform="translate(16,24) rotate(-90)" text-anchor="end">{across}</text>',
            f'<g transform="translate(24,24) scale({width / columns:.6g},{height / rows:.6g})" ',
            f'shape-rendering="crispEdges">{"".join(paths)}</g>',
            f'<rect x="24" y="24" width="{width:g}" height="{height:g}" fill="none" stroke="gray"/>',
            f'<g transform="translate(24,{end + 14:g})">{"".join(legend)}</g>',
            f'<text x="24" y="{end + 40:g}">{text}</text>',
        )

    def plot(self, ax: Any, title: str) -> Any:
        rows, columns = self.values.shape
        right, bottom = (
            columns * self.chunks_per_cell[1] - 0.5,
            rows * self.chunks_per_cell[0] - 0.5,
        )
        low, high = self.scale
        # draw logarithms on a linear scale, because matplotlib then has the same colors
        # as the SVG
        values = np.where(self.shades < 0, low - 1, low + self.shades * (high - low))
        colors = optional("matplotlib.colors", "matplotlib", "Plots")
        ramp = colors.LinearSegmentedColormap.from_list(
            "pairs", [_parts(rgb) for rgb in RAMP]
        )
        ramp = ramp.with_extremes(under=_parts(NOTHING))
        image = ax.imshow(
            np.ma.masked_invalid(values),
            cmap=ramp,
            extent=(-0.5, right, bottom, -0.5),
            vmin=low,
            vmax=high,
            aspect="equal" if rows == columns else "auto",
            interpolation="nearest",
        )
        bar = ax.figure.colorbar(image, ax=ax, label=f"{self.unit} per cell")
        tens = range(math.floor(low), math.ceil(high) + 1)
        marks = [k + math.log10(n) for k in tens for n in (1, 2, 5)]
        bar.set_ticks([mark for mark in marks if low <= mark <= high])
        bar.ax.yaxis.set_major_formatter(lambda mark, _: _short(10**mark))
        ax.set(xlabel="data chunk", ylabel="query chunk", title=title)
        return ax


def matrix(
    query: np.ndarray,
    data: np.ndarray,
    values: np.ndarray,
    chunks: tuple[int, int],
    unit: str,
) -> Matrix:
    """Make the picture of block pairs: for each cell, sum the values of its block
    pairs.

    `query`, `data`, `values`: chunk numbers and value of each block pair. `chunks`:
    numbers of query and data chunks.
    """
    queries, others = (max(1, math.ceil(number / CELLS)) for number in chunks)
    found = np.full(
        (math.ceil(chunks[0] / queries), math.ceil(chunks[1] / others)), np.nan
    )
    cells = query // queries, data // others
    found[cells] = 0.0
    np.add.at(found, cells, values)
    return Matrix(found, (queries, others), chunks, unit)


@dataclass(frozen=True, eq=False)
class Bars:
    """Numbers as bars on a logarithmic scale."""

    # for each bar: its name, the number, and the number as text
    bars: list[tuple[str, float, str]]

    def svg(self, title: str) -> str:
        decades = (
            math.log10(1 + max((value for _, value, _ in self.bars), default=0.0))
            or 1.0
        )
        lines = []
        for k, (name, value, text) in enumerate(self.bars):
            y, width = k * LINE, round(BAR * math.log10(1 + value) / decades)
            lines.append(
                f'<text x="{TEXT - 6}" y="{y + 13}" text-anchor="end">{name}</text>'
                f'<rect x="{TEXT}" y="{y + 3}" width="{width}" height="{LINE - 6}" fill="{BLUE}"/>'
                f'<text x="{TEXT + width + 6}" y="{y + 13}">{text}</text>'
            )
        return _document(title, TEXT + BAR + 140, max(1, len(self.bars)) * LINE, *lines)

    def plot(self, ax: Any, title: str) -> Any:
        names, values, _ = (
            zip(*self.bars[::-1], strict=True) if self.bars else ((), (), ())
        )
        ax.barh(names, values, color=BLUE)
        ax.set(xscale="symlog", xlabel="number", title=title)
        return ax


Picture = Matrix | Bars


def _document(title: str, width: float, height: float, *parts: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'font-family="sans-serif" font-size="11"><title>{html.escape(title)}</title>{"".join(parts)}</svg>'
    )


def _parts(rgb: tuple[int, ...]) -> list[float]:
    return [part / 255 for part in rgb]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _color(shade: int) -> str:
    if shade < 0:
        return "#{:02x}{:02x}{:02x}".format(*NOTHING)
    place = shade / (SHADES - 1) * (len(RAMP) - 1)
    k = min(int(place), len(RAMP) - 2)
    rgb = [
        round(a + (place - k) * (b - a))
        for a, b in zip(RAMP[k], RAMP[k + 1], strict=True)
    ]
    return "#{:02x}{:02x}{:02x}".format(*rgb)
