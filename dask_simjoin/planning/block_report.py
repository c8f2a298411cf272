"""How plans are shown: as text, as a table, and as a picture of their block pairs."""

from __future__ import annotations

import html
from typing import Any, ClassVar

import pandas as pd

from dask_simjoin.options.optional import new_axes
from dask_simjoin.planning.svg import Matrix, matrix, plot, svg


class BlockReport:
    """What reports of plans have in common, whatever is joined."""

    _drawn: ClassVar[str] = "pairs"
    """What the pictures show of block pairs."""

    @property
    def pair_bytes(self) -> float:
        """Memory of one row of the result."""
        raise NotImplementedError

    @property
    def _sides(self) -> tuple[int, int]:
        """Query chunks and data chunks."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """One row for each block pair."""
        raise NotImplementedError

    def _title(self) -> str:
        raise NotImplementedError

    def _facts(self) -> list[tuple[str, str]]:
        """Names and texts of everything that the report tells."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """What it is about, in a few words."""
        return self._title()

    def to_dict(self) -> dict[str, int | float | str]:
        """Numbers and words of the report by name, as a script takes them and JSON has them.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> pd.DataFrame({"x": [0.0, 1.0, 9.0]}).simjoin.plan(1.0).to_dict()["pairs"]
        1.0
        """
        kinds = [kind for kind in reversed(type(self).__mro__) if issubclass(kind, BlockReport)]
        names = dict.fromkeys(
            name for kind in kinds for name, value in vars(kind).items()
            if isinstance(value, property) and not name.startswith("_")
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        facts = self._facts()
        width = max(len(name) for name, _ in facts)
        return "\n".join([self._title(), *(f"  {name:<{width}}  {text}" for name, text in facts)])

    def _repr_html_(self) -> str:
        facts = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(text)}</td></tr>'
            for name, text in self._facts()
        )
        return (
            f"<div><p><b>{html.escape(self._title())}</b></p><table><tbody>{facts}</tbody></table>"
            f"{self.svg() if max(self._sides) > 1 else ''}</div>"
        )

    def _matrix(self) -> Matrix:
        """What the pictures show."""
        blocks = self.to_frame()
        query, data, drawn = (blocks[n].to_numpy() for n in ("query_chunk", "data_chunk", self._drawn))
        return matrix(query, data, drawn, self._sides, self._drawn)

    def svg(self) -> str:
        """The block pairs as a picture, in SVG.

        Rows are query chunks and columns data chunks; the more pairs (of nearest neighbours: candidates),
        the darker, on a logarithmic scale.  Gray cells give none, and white ones are not joined.
        """
        return svg(self._matrix(), self._title())

    def plot(self, ax: Any = None) -> Any:
        """The block pairs as a picture, by matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; default: a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        return plot(self._matrix(), new_axes(ax), self._title())
