"""Tables of joins of sets."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import count

TEXTS = {
    "kosarak36k": "click streams",
    "retail": "baskets",
    "places": "place names, 2-grams",
    "texts": "texts, 2-grams",
}


def counted(run: dict[str, Any]) -> list[list[str]]:
    """Tabulate counting compared with the field's C++."""
    table = [
        [
            "sets (mean size)",
            "threshold",
            "pairs",
            "auto",
            "by, words",
            "reference",
            "auto / reference",
            "encoding",
        ]
    ]
    for name, found in run["sets"].items():
        head = f"{count(found['rows'])} {TEXTS[name]} ({found['mean_size']:.1f})"
        for threshold, one in found["thresholds"].items():
            took, chosen = one["seconds"], one["chosen"]
            peers = {
                tool.split()[1]: s
                for tool, s in took.items()
                if tool.startswith("reference ")
            }
            best = min(peers, key=peers.__getitem__)
            table.append(
                [
                    head,
                    threshold,
                    count(one["pairs"]["auto"]),
                    f"{1000 * took['auto']:.1f}",
                    f"{'lists' if chosen['listed'] else 'bitmaps'}, {chosen['words']}",
                    f"{1000 * peers[best]:.1f} ({best})",
                    f"{one['ratio']:.2f}",
                    f"{1000 * took['encode']:.0f}",
                ]
            )
            head = ""
    return table


TABLES = {"sets": counted}
