"""The picture of quickstart.py: places on a map, and the names of those that are listed
twice.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def overlap(
    x: float, y: float, width: float, other_x: float, other_y: float, other_width: float
) -> bool:
    """Return whether two lines of text overlap, from their starts and widths."""
    return abs(y - other_y) < 1 and x - other_width - 0.3 < other_x < x + width + 0.3


def draw(
    places: pd.DataFrame, counts: pd.Series, near: pd.DataFrame, title: str, path: Path
) -> str:
    """Draw places in the color of their number of neighbors, and near-duplicates with
    their names.
    """
    try:
        import matplotlib
    except ImportError:
        return "not drawn: matplotlib is not installed (pip install matplotlib, or '.[examples]')"
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.patheffects import withStroke

    x, y, n = (
        values.to_numpy()
        for values in (places["longitude"], places["latitude"], counts)
    )
    figure, axes = plt.subplots(figsize=(11, 7.2), layout="constrained")
    shape = 1 / np.cos(np.radians(35))
    axes.set(title=title, xlim=(-128, -57), ylim=(12, 53), aspect=shape)
    axes.set(xlabel="longitude (degrees)", ylabel="latitude (degrees)")
    axes.scatter(
        x[n == 0], y[n == 0], s=3, c="#b8b8b8", linewidths=0, label="no neighbor"
    )
    # draws crowded places on top
    order = np.argsort(n, kind="stable")[int((n == 0).sum()) :]
    # no pale colors on white
    colors = ListedColormap(plt.get_cmap("YlGnBu")(np.linspace(0.45, 1, 256)))
    scale = LogNorm(1, max(2, n.max()))
    dots = axes.scatter(
        x[order], y[order], s=5, c=n[order], linewidths=0, cmap=colors, norm=scale
    )
    figure.colorbar(dots, ax=axes, shrink=0.6, format="{x:g}", label="neighbors")
    # circles, and names next to them: each at the nearest place where no other name or
    # circle is
    axes.plot(
        near["longitude_left"],
        near["latitude_left"],
        "o",
        ms=9,
        mfc="none",
        mec="crimson",
        mew=1.5,
        label="same name",
    )
    taken = [
        (u - 0.6, v, 1.2)
        for u, v in zip(near["longitude_left"], near["latitude_left"], strict=True)
    ]
    around = [
        (r * np.cos(a), r * np.sin(a))
        for r in range(1, 15)
        for a in np.linspace(0, 2 * np.pi, 25)
    ]
    for u, v, name in zip(
        near["longitude_left"], near["latitude_left"], near["name_left"], strict=True
    ):
        width = 0.52 * len(name)
        starts = [(u + du - width * (du < 0), v + dv) for du, dv in around]
        free = [
            s
            for s in starts
            if s[0] + width < -57 and not any(overlap(*s, width, *t) for t in taken)
        ]
        at = (free or starts)[0]
        taken.append((*at, width))
        edge = (at[0] if at[0] >= u else at[0] + width, at[1])
        axes.plot([u, edge[0]], [v, edge[1]], c="crimson", linewidth=0.7)
        axes.text(
            *at,
            name,
            fontsize=9,
            va="center",
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )
    axes.legend(loc="lower left", framealpha=1)
    figure.supxlabel(
        "Data: GeoNames (geonames.org), CC BY 4.0", fontsize=9, color="dimgray"
    )
    figure.savefig(path, dpi=100, bbox_inches="tight")
    plt.close(figure)
    return str(path)
