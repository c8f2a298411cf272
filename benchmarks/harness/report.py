"""Report the results of a run: tables for people, JSON for machines, and whether all
counts agree.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.points import Row
from benchmarks.harness.source import commit, source_digest
from benchmarks.harness.timing import Tool

Results = dict[str, dict[str, dict[str, Any]]]
"""Row -> tool -> the result of `measure`, or "skipped" or "failed" and the reason."""

LIBRARIES = ("numpy", "numba", "llvmlite", "pandas", "pyarrow", "dask")


def environment(tools: Iterable[Tool], own_version: str) -> dict[str, Any]:
    """Return hardware, operating system, versions and date."""
    versions = {"dask_simjoin": own_version}
    for name in (*LIBRARIES, *(tool.distribution for tool in tools)):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions.setdefault(name, "unknown")
    cores = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": after_colon("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": cores,
        "memory_gib": round(
            int(after_colon("/proc/meminfo", "MemTotal").split()[0] or 0) / 2**20, 1
        ),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled").strip(),
        "os": _system(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": commit(),
        "source": source_digest(),
    }


def write(report: dict[str, Any], output: Path | None) -> None:
    """Write a report, and how busy the machine was, as JSON; without a file print it."""
    text = json.dumps(report | {"load": round(os.getloadavg()[0], 2)}, indent=1)
    if output is None:
        print(text)
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text + "\n")


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def after_colon(path: str, name: str) -> str:
    """Return the first value of a name in a file of lines "name : value", or "0" if
    there is none.
    """
    lines = (line.partition(":") for line in _read(path).splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "0")


def _system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = platform.system()
    return f"{name}, {platform.machine()}"


def best_peer(found: Mapping[str, dict[str, Any]], ours: Iterable[str]) -> str | None:
    """Return the fastest tool that is not ours."""
    peers = [name for name in found if name not in ours and "median" in found[name]]
    return min(peers, key=lambda name: found[name]["median"], default=None)


def disagreements(
    results: Results, rows: Mapping[str, Row], tools: Mapping[str, Tool]
) -> list[str]:
    """List the counts of exact tools that differ, and our measurements that failed."""
    wrong = []
    for row, found in results.items():
        expected = rows[row].pairs
        if expected is None:
            expected = found["engine"].get("pairs", [None])[0]
        for name, one in found.items():
            compared = (
                expected is not None
                and "pairs" in one
                and row not in tools[name].inexact
            )
            if compared and one["pairs"] != [expected]:
                wrong.append(
                    f"{row}: {name} found {one['pairs']} pairs, expected {expected}"
                )
            if "failed" in one and tools[name].module == "dask_simjoin":
                wrong.append(f"{row}: {name} failed: {one['failed']}")
    return wrong


def tables(results: Results, rows: Mapping[str, Row], ours: Iterable[str]) -> str:
    """Format the tables: ours against the best peer, every tool's seconds, differing
    counts, gaps.
    """
    ours = list(ours)
    head = ["row", "pairs", *(f"{name} s" for name in ours), "best peer", "s"]
    head += [f"x {name}" for name in ours] + ["goal"]
    summary: list[list[str]] = [head]
    notes: list[str] = []
    names = list(dict.fromkeys(name for found in results.values() for name in found))
    seconds = [["row", *names]]
    for row, found in results.items():
        best = best_peer(found, ours)
        time = found[best]["median"] if best else None
        own = [found[name].get("median") for name in ours]
        pairs = found["engine"].get("pairs", ["failed"])[0]
        cells = [
            row,
            f"{pairs:,}" if isinstance(pairs, int) else pairs,
            *map(_seconds, own),
        ]
        cells += [best or "-", _seconds(time)]
        cells += [f"{time / t:.1f}" if time and t else "-" for t in own]
        summary.append([*cells, f"{rows[row].goal:g}"])
        seconds.append(
            [row, *(_seconds(found.get(name, {}).get("median")) for name in names)]
        )
        for name, one in found.items():
            if isinstance(pairs, int) and one.get("pairs", [pairs]) != [pairs]:
                more = " and ".join(f"{count - pairs:+,}" for count in one["pairs"])
                notes.append(f"{row}: {name} has {more} pairs")
            notes += [
                f"{row}: {name} {key}: {one[key]}"
                for key in ("skipped", "failed")
                if key in one
            ]
    title = "CPU seconds of one core (medians), and how many times faster than the best peer:"
    return "\n".join(
        [title, *_aligned(summary), "", "Every tool:", *_aligned(seconds), "", *notes]
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _aligned(table: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for name, *cells in table:
        right = [
            cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)
        ]
        lines.append("  ".join([name.ljust(widths[0]), *right]))
    return lines
