"""Base classes of all reports: a title and a table of facts, shown as text, HTML and pictures."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from dask.utils import format_bytes

from dask_simjoin.reports.svg import Picture
from dask_simjoin.request.inputs import new_axes

Facts = tuple[tuple[str, Callable[[Any], str | None]], ...]
"""Labels, and functions that return the text of a fact, or None to omit it.

A fact without a label continues the line above.
"""


class Report:
    """A title and a table of facts, which a subclass defines as `_facts`."""

    _facts: ClassVar[Facts] = ()

    _exported: ClassVar[tuple[str, ...]] = ()
    """Attributes that `to_dict` returns."""

    @property
    def title(self) -> str:
        """Return the subject of the report in a few words."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the values of the report by name, for JSON.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> pd.DataFrame({"x": [0.0, 1.0, 9.0]}).simjoin.plan(1.0).to_dict()["pairs"]
        1.0
        """
        return {name: getattr(self, name) for name in self._exported}

    def _heading(self) -> str:
        """Return the first line."""
        return self.title

    def _further_facts(self) -> Iterable[tuple[str, str]]:
        """Return labels and texts of a variable number of facts, which come last."""
        return ()

    def _lines(self) -> list[tuple[str, str]]:
        """Return labels and texts of all facts."""
        texts = ((label, text(self)) for label, text in self._facts)
        return [*((label, text) for label, text in texts if text is not None), *self._further_facts()]

    def _html_picture(self) -> str:
        """Return the picture that notebooks show below the table."""
        return ""

    def __repr__(self) -> str:
        lines = self._lines()
        width = max((len(label) for label, _ in lines), default=0)
        return "\n".join([self._heading(), *(f"  {label:<{width}}  {text}" for label, text in lines)])

    def _repr_html_(self) -> str:
        facts = "".join(
            f'<tr><th style="text-align:left">{html.escape(label)}</th>'
            f'<td style="text-align:left">{html.escape(text)}</td></tr>'
            for label, text in self._lines()
        )
        return (
            f"<div><p><b>{html.escape(self._heading())}</b></p><table><tbody>{facts}</tbody></table>"
            f"{self._html_picture()}</div>"
        )


class PicturedReport(Report):
    """A report with a picture of its numbers."""

    def _picture(self) -> Picture:
        raise NotImplementedError

    def _caption(self) -> str:
        """Return the title of the picture."""
        return self.title

    def _html_picture(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """Return the picture as SVG text.

        The picture of a plan has query chunks as rows and data chunks as columns. Darker cells have more
        pairs (for nearest neighbors: candidates), on a logarithmic scale. Gray cells have none, and white
        cells are not joined. The picture of a profile has bars on a logarithmic scale.
        """
        return self._picture().svg(self._caption())

    def plot(self, ax: Any = None) -> Any:
        """Draw the picture with matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on; default: a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        return self._picture().plot(new_axes(ax), self._caption())


@dataclass(frozen=True, repr=False)
class FieldsReport(Report):
    """A report whose facts are its own fields.

    Fields whose names begin with "bytes" are shown as sizes.
    """

    title: ClassVar[str]

    @property
    def numbers(self) -> dict[str, Any]:
        """Return all fields by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name, for JSON."""
        return self.numbers

    def _further_facts(self) -> list[tuple[str, str]]:
        return [(name.replace("_", " "), _number(name, value)) for name, value in self.numbers.items()]


def without(facts: Facts, *labels: str) -> Facts:
    """Return the facts without those with the given labels."""
    return tuple(fact for fact in facts if fact[0] not in labels)


def size(value: float) -> str:
    """Format a number of bytes."""
    return format_bytes(round(value))


def _number(name: str, value: Any) -> str:
    if name.startswith("bytes"):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
