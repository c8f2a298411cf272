"""``python -m benchmarks dask.shell``: dask-simjoin on more rows than memory holds,
recorded and checked.

Uniform points of the unit square lie in Parquet files, and each file covers all of
space.  A terminal of tmux runs ``dask-simjoin self-join`` on them, with two workers
whose memory together is less than the rows take. The screens are kept as a recording
(asciicast 2, which asciinema plays) and as a picture.  Memory of all processes is
sampled.  Number and checksum of the pairs are compared with an independent join by
SciPy, strip by strip.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
from dask.utils import format_bytes
from rich.console import Console
from rich.text import Text

from benchmarks.harness.lazy import (
    eps_for,
    known,
    progress,
    save,
    scratch,
    write_uniform,
)
from benchmarks.oracles.strips import digest_of_files, independent_digest

COLUMNS, LINES = 112, 36
"""Size of the terminal."""

FRAMES = 60
"""Most screens of a recording."""

EVERY = 1.0
"""Seconds between two looks at the terminal and at memory."""

ROW_BYTES = 24
"""Bytes of an id and two coordinates."""

Screen = tuple[float, str]
"""Seconds since the program began, and what the terminal showed."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.shell", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=60_000_000)
    parser.add_argument("--neighbors", type=float, default=1.0, help="of a point")
    parser.add_argument("--files", type=int, default=240)
    parser.add_argument(
        "--limit", default="700 MB", help="memory of each of the two workers"
    )
    parser.add_argument(
        "--patience", type=float, default=3600, help="seconds until it is given up"
    )
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument(
        "--folder", type=Path, help="for temporary files: on a disk, not in memory"
    )
    parser.add_argument(
        "--pictures", type=Path, help="folder for the recording and a picture of it"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


class Terminal:
    """A terminal of a tmux server of its own, which runs one command in a folder."""

    def __init__(self, command: str, folder: Path, variables: dict[str, str]) -> None:
        self._server, self._ended = f"simjoin-{uuid.uuid4().hex[:8]}", folder / "ended"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        given = [
            f"{name}={value}" for name, value in (variables | {"PATH": path}).items()
        ]
        line = f"printf '$ %s\\n' {shlex.quote(command)}; {command}; echo $? > {self._ended}; sleep 86400"
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        self._tmux(
            "new-session",
            "-d",
            *size,
            "-c",
            str(folder),
            "env",
            *given,
            "sh",
            "-c",
            line,
        )
        self.pid = int(self._tmux("list-panes", "-F", "#{pane_pid}"))

    def _tmux(self, *words: str) -> str:
        called = ["tmux", "-L", self._server, *words]
        return subprocess.run(called, check=True, capture_output=True, text=True).stdout

    @property
    def status(self) -> int | None:
        """The command's exit status, or None while it runs."""
        return (
            int(self._ended.read_text())
            if self._ended.exists() and self._ended.stat().st_size
            else None
        )

    def screen(self) -> str:
        """Return what the terminal shows, with colors."""
        return self._tmux("capture-pane", "-p", "-e").rstrip("\n")

    def close(self) -> None:
        """End the terminal and everything that runs in it."""
        self._tmux("kill-server")


def memory_of(pid: int) -> dict[int, int]:
    """Return the resident bytes of all processes that a process has started, by their
    ids.
    """
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            found[process.pid] = process.memory_info().rss
        except psutil.Error:
            continue
    return found


def run(
    command: str, folder: Path, patience: float
) -> tuple[dict[str, Any], list[Screen]]:
    """Run the command in a terminal; return measurements and the screens."""
    variables = {"DASK_TEMPORARY_DIRECTORY": str(folder / "dask")}
    terminal, begin = Terminal(command, folder, variables), time.monotonic()
    screens: list[Screen] = []
    each: dict[int, int] = {}
    together = 0
    try:
        while terminal.status is None and time.monotonic() - begin < patience:
            time.sleep(EVERY)
            found = memory_of(terminal.pid)
            together = max(together, sum(found.values()))
            each |= {pid: max(rss, each.get(pid, 0)) for pid, rss in found.items()}
            shown = terminal.screen()
            if not screens or shown != screens[-1][1]:
                screens.append((time.monotonic() - begin, shown))
        seconds = time.monotonic() - begin
        screens.append((seconds, terminal.screen()))
        took = {
            "status": terminal.status,
            "seconds": seconds,
            "peak_rss_together": together,
        }
    finally:
        terminal.close()
    return took | {"peak_rss": sorted(each.values(), reverse=True)[:3]}, screens


def thinned(screens: list[Screen]) -> list[Screen]:
    """Return a few of many screens, with the first and the last among them."""
    step = max(1, -(-len(screens) // (FRAMES - 1)))
    return [*screens[:-1:step], screens[-1]]


def cast(screens: list[Screen]) -> str:
    """Return a recording in the format asciicast 2."""
    head = {
        "version": 2,
        "width": COLUMNS,
        "height": LINES,
        "title": "dask-simjoin self-join",
    }
    clear, ends = "\x1b[2J\x1b[H", "\r\n"
    events = [
        [round(at, 1), "o", clear + shown.replace("\n", ends)] for at, shown in screens
    ]
    return "\n".join(map(json.dumps, [head, *events])) + "\n"


def picture(shown: str) -> str:
    """Draw a screen as SVG with the reader's own fonts, as none is loaded."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(shown))
        drawn = console.export_svg(title="dask-simjoin", unique_id="shell")
    begin, end = drawn.index("@font-face"), drawn.index(".shell-matrix")
    return drawn[:begin] + drawn[end:].replace("Fira Code", "DejaVu Sans Mono")


def keep(screens: list[Screen], folder: Path) -> None:
    """Write the recording, and a picture from the middle of the join."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shell.cast").write_text(cast(thinned(screens)))
    joining = [
        shown for _, shown in screens if "joining" in shown and "Wrote" not in shown
    ]
    midst = joining[len(joining) // 2] if joining else screens[0][1]
    (folder / "shell-joining.svg").write_text(picture(midst))


def main() -> int:
    """Run the benchmark; return 1 if it failed or its pairs are wrong."""
    options, where = arguments(), known()
    eps = float(f"{eps_for(options.rows, options.neighbors):.3g}")
    with scratch(options.folder) as folder:
        data, out = folder / "points", folder / "pairs"
        write_uniform(data, options.rows, options.files, options.seed)
        words = [
            "dask-simjoin",
            "self-join",
            "points",
            "--eps",
            f"{eps:g}",
            "--on",
            "x,y",
            "--id",
            "id",
        ]
        words += [
            "--workers",
            "2",
            "--memory-limit",
            options.limit,
            "--yes",
            "-o",
            "pairs/",
        ]
        command = shlex.join(words)
        progress(
            f"{command}: {options.rows:,} rows, "
            f"{format_bytes(ROW_BYTES * options.rows)}"
        )
        took, screens = run(command, folder, options.patience)
        progress(screens[-1][1])
        if options.pictures is not None:
            keep(screens, options.pictures)
        report = took | {"command": command, "rows": options.rows, "eps": eps}
        good = took["status"] == 0
        if good:
            files = sorted(out.glob("*.parquet"))
            report["result_file_bytes"] = sum(file.stat().st_size for file in files)
            found = digest_of_files(files)
            points = sorted(data.glob("*.parquet"))
            expected = independent_digest(points, eps, options.rows, folder / "strips")
            report |= {"digest": dataclasses.asdict(found), "exact": found == expected}
            good = report["exact"]
    print(json.dumps(report, indent=1))
    save("shell", where, options, report, options.output)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
