"""The figures and tables that are reproduced, by paper."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.papers import ego_rows, rejoin
from benchmarks.papers.lists_rows import RUNS as LISTS
from benchmarks.papers.rows import GPU_JOIN, ROWS_OF
from benchmarks.papers.sets_told import PAPER as SETS

MORE = ("fig10-11", "fig12", "tab2")
"""Figures of the first paper that do not consist of runs."""

OF_SETS = (
    "tab3",
    "fig10-cpu",
    "tab5",
    "fig10",
    "tab4",
    "fig11",
    "fig12",
    "fig13",
    "fig14",
    "fig15",
)

PAPERS = (*ROWS_OF, SETS)
"""Papers that run by default."""

ON_CPUS = (rejoin.PAPER, ego_rows.PAPER)
"""Papers that always run on CPUs."""

CHOICES = (*PAPERS, *LISTS, *ON_CPUS)


def figures_of(papers: Iterable[str]) -> list[str]:
    """Return the names of the figures of papers, each once."""
    return list(dict.fromkeys(figure for paper in papers for figure in _of(paper)))


def _of(paper: str) -> Iterable[str]:
    if paper in ROWS_OF:
        return [
            *(row.figure for row in ROWS_OF[paper]()),
            *(MORE if paper == GPU_JOIN else ()),
        ]
    if paper in LISTS:
        return [
            *(run.figure for run in LISTS[paper]()),
            *(("rate", "T5.2") if paper == "kmeans" else ()),
        ]
    if paper == ego_rows.PAPER:
        return ego_rows.FIGURES
    return (
        [figure for figure, _ in rejoin.PUBLISHED] if paper == rejoin.PAPER else OF_SETS
    )


def not_there(asked: Iterable[str], papers: Iterable[str]) -> str | None:
    """Return an error message if requested figures do not exist."""
    known = figures_of(papers)
    wrong = [repr(one) for one in asked if one not in known]
    if not wrong:
        return None
    are = "is" if len(wrong) == 1 else "are"
    return f"{', '.join(wrong)} {are} not reproduced; there are {', '.join(known)}"
