"""The table of other programs that join on a GPU, compared with our joins."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import count, rows, seconds

Found = dict[str, Any]
Rows = list[list[str]]


def _cells(result: Found) -> list[str]:
    times = [seconds(result[part]["seconds"]) for part in ("kernels", "whole")]
    numbers = [count(result.get(kind)) for kind in ("pairs", "false", "missed")]
    return [result["numbers"], *times, *numbers]


def rivals(run: Found) -> Rows:
    """Return a line for each program and set of rows: seconds, and how its pairs differ
    from ours.
    """
    table = [
        [
            "rows",
            "program",
            "decides by",
            "kernels, s",
            "whole, s",
            "pairs",
            "false",
            "missed",
        ]
    ]
    for found in run["rows"]:
        name = f"{found['name']}, {rows(found['rows'])}, eps {found['eps']:.4g}"
        table.append([name, "ours", *_cells(found["ours"])])
        ran = {
            rival: result
            for rival, result in found["rivals"].items()
            if "absent" not in result
        }
        table += [["", rival, *_cells(result)] for rival, result in ran.items()]
    return table


def libraries(*runs: Found) -> Rows:
    """Return the same with the distances of pairs that differ, numbers of runs, and
    what did not run.
    """
    head = [
        "rows",
        "program",
        "decides by",
        "kernels, s",
        "whole, s",
        "pairs",
        "false",
        "missed",
    ]
    table = [[*head, "farthest, % of eps", "runs"]]
    for found in (found for run in runs for found in run["rows"]):
        name = f"{found['name']}, {rows(found['rows'])}, eps {found['eps']:.4g}"
        table.append([name, "ours", *_cells(found["ours"]), "", _runs(found["ours"])])
        for rival, result in found["rivals"].items():
            if "absent" in result:
                table.append(["", rival, "not run", *[""] * 7])
            else:
                table.append(
                    ["", rival, *_cells(result), _farthest(result), _runs(result)]
                )
    return table


def _farthest(result: Found) -> str:
    percent = 100 * result["farthest"]
    return f"{percent:.0f}" if percent >= 10 else f"{percent:.2g}"


def _runs(result: Found) -> str:
    return str(len(result["kernels"]["runs"]))


TABLES = {"gpu-rivals": rivals, "gpu-rival-libraries": libraries}
