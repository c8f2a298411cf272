"""Try every order of the steps of writers and vacuums on a store: `python -m
tests.checks.store_model`.

As versions_model.py, with the rules for object stores.  A put of a manifest fails if
its name is taken, and names of manifests stay taken.  A vacuum makes a version before
it removes files that no version names.
"""

import argparse
import sys
import time
from dataclasses import dataclass, replace

from tests.checks import versions_model as model
from tests.checks.versions_model import (
    Broken,
    Manifest,
    Process,
    Setting,
    explore,
    largest,
)


@dataclass(frozen=True)
class Rules:
    """What the processes do; each rule that is left out must be found out."""

    names_stay: bool = True  # a vacuum leaves the names of manifests that it removes
    conditional: bool = True  # a put of a manifest fails if the name is taken
    fences: bool = True  # a vacuum makes a version before it removes unknown files
    lists_first: bool = True  # it lists unknown files before that, not after


def taken(folder):
    """The numbers whose names are taken: of all versions that ever were, under the
    rules.
    """
    return frozenset(one.number for one in folder.given)


def put(name, base, folder, rules, setting):
    """Put the manifest after `base`; None: the name is taken."""
    number = base.number + 1
    there = taken(folder) if rules.names_stay else model.numbers(folder)
    if number in there and rules.conditional:
        return None
    last = folder.given[-1] if folder.given else Manifest(0, (), (), frozenset())
    if number in taken(folder):
        raise Broken(f"number {number} is given twice")
    if base.name != last.name:
        raise Broken(
            f"version {number} is not made of the last one, {last.number}, whose rows "
            "are lost"
        )
    own = frozenset() if name[0] == "fence" else frozenset({name})
    kept = base.data if name[0] == "fence" else frozenset({base.name} & base.data)
    made = Manifest(number, name, base.name, own | kept)
    return folder._replace(
        manifests=folder.manifests | {made}, given=(*folder.given, made)
    )


def writer(own, who, folder, rules, setting):
    """What a writer does next: each (process, folder) that can come of it."""
    name = (who, own.done, own.tries)
    if own.step == "start":
        if own.done < setting.commits[who] and own.tries < setting.tries:
            yield (
                own._replace(
                    step="read", listed=(listed(folder, rules), frozenset()), base=None
                ),
                folder,
            )
    elif own.step == "read":
        for number in largest(own.listed):
            found = model.of_number(folder, number)
            # a vacuum removed it
            if found is None and (number or setting.versions or own.done):
                yield own._replace(step="start", listed=None), folder
            elif setting.versions == 0 and not own.done and number:
                yield (
                    own._replace(step="start", listed=None, tries=setting.tries),
                    folder,
                )
            else:
                base = found or Manifest(0, (), (), frozenset())
                yield own._replace(step="write", listed=None, base=base), folder
    elif own.step == "write":
        made = folder._replace(data=folder.data | {(name, folder.clock)})
        yield own._replace(step="put"), made
    elif own.step == "put":
        after = put(name, own.base, folder, rules, setting)
        if after is None:
            yield own._replace(step="give up"), folder
        else:
            yield Process("w", "start", own.done + 1), after
    elif own.step == "give up":
        gone = frozenset(one for one in folder.data if one[0] != name)
        yield (
            own._replace(step="start", tries=own.tries + 1, base=None),
            folder._replace(data=gone),
        )


def listed(folder, rules):
    """What a listing of manifests has: names of removed ones, too."""
    return taken(folder) if rules.names_stay else model.numbers(folder)


def vacuum(own, who, folder, rules, setting):
    """What a vacuum that keeps one version does next; `needed` has files to remove,
    `known` unknown ones.
    """
    if own.step == "start" and not own.done:
        yield own._replace(step="list", begun=folder.clock, done=1), folder
    elif own.step in ("list", "list again"):
        step = "read" if own.step == "list" else "read again"
        yield (
            own._replace(step=step, listed=(listed(folder, rules), frozenset())),
            folder,
        )
    elif own.step == "read":
        for number in largest(own.listed):
            last = model.of_number(folder, number)
            if last is None:
                yield own._replace(step="list", listed=None), folder
            else:
                yield own._replace(step="look", listed=None, base=last), folder
    elif own.step == "look":
        unknown = unnamed(own, folder) if rules.lists_first else frozenset({("any", 0)})
        step = "fence" if unknown and rules.fences else "list again"
        yield (
            own._replace(
                step=step, known=unknown if rules.lists_first else frozenset()
            ),
            folder,
        )
    elif own.step == "fence":
        after = put(("fence", who, own.base.number), own.base, folder, rules, setting)
        if after is not None:
            yield own._replace(step="list again"), after
        elif own.tries + 1 < setting.tries:
            yield (
                own._replace(
                    step="list", tries=own.tries + 1, base=None, known=frozenset()
                ),
                folder,
            )
        else:
            yield own._replace(step="list again", known=frozenset()), folder
    elif own.step == "read again":
        for number in largest(own.listed):
            last = model.of_number(folder, number)
            if last is None:
                yield own._replace(step="list again", listed=None), folder
                continue
            dropped = frozenset(
                name
                for one in folder.manifests
                if one.number < number
                for name in one.data - last.data
            )
            found = own._replace(step="remove", listed=None, base=last, needed=dropped)
            if not rules.lists_first:
                found = found._replace(known=unnamed(found, folder))
            yield found, folder
    elif own.step == "remove":
        old = sorted(one for one in folder.manifests if one.number < own.base.number)
        if old:
            yield own, folder._replace(manifests=folder.manifests - {old[0]})
        else:
            yield own._replace(step="clean"), folder
    elif own.step == "clean":
        gone = own.needed | {name for name, _ in own.known}
        old = [
            (name, at)
            for name, at in folder.data
            if name not in own.base.data and name in gone
        ]
        if old:
            yield own, folder._replace(data=folder.data - {min(old, key=repr)})
        else:
            yield Process("v", "end", 1), folder


def unnamed(own, folder):
    """Files that no version names; of any age, since no rule for stores relies on time."""
    named = own.base.data.union(
        *(one.data for one in folder.manifests if one.number <= own.base.number)
    )
    return frozenset(one for one in folder.data if one[0] not in named)


DO = {"w": writer, "v": vacuum, "r": model.reader}

SHORT = {
    "two writers, a vacuum": Setting((1, 1), 1, versions=2),
    "a writer, a faster one of two, a vacuum": Setting((1, 2), 1, versions=1),
    "a first load beside one that is updated": Setting((1, 2), 0, versions=0),
    "two writers, a vacuum, a reader": Setting((1, 1), 1, 1, versions=2, tries=1),
    "two writers, a vacuum, a reader, a crash": Setting(
        (1, 1), 1, 1, crashes=1, versions=2, tries=1
    ),
    "two writers, two vacuums": Setting((1, 1), 2, versions=2, tries=1),
}
"""What is tried in seconds."""

LONG = {
    "three writers, a vacuum": Setting((1, 1, 1), 1, versions=1),
    "two writers, two vacuums, a crash": Setting(
        (1, 1), 2, crashes=1, versions=1, tries=1
    ),
    "two writers of two, a vacuum, a crash": Setting((2, 2), 1, crashes=1, versions=1),
    "a first load, one that is updated twice, a vacuum": Setting((1, 3), 1, versions=0),
    "a writer, two vacuums, a reader, a crash": Setting(
        (1,), 2, 1, crashes=1, versions=2, tries=1
    ),
}
"""What takes a minute or more."""

MUTANTS = {
    "names become free": (
        replace(Rules(), names_stay=False),
        Setting((1, 2), 1, tries=1),
    ),
    "puts replace": (replace(Rules(), conditional=False), Setting((1, 1), 0, tries=1)),
    "no fence": (replace(Rules(), fences=False), Setting((1,), 1, versions=2)),
    "files are listed after the fence": (
        replace(Rules(), lists_first=False),
        Setting((1,), 1, versions=2),
    ),
}
"""Rules that are left out, and where that must be found out."""


def main(arguments=None):
    """Print the states and steps of each setting; fails if a rule is broken, or a
    mutant is not found.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="settings of minutes, too")
    parser.add_argument(
        "--most", type=int, default=None, help="states of a setting, at most"
    )
    asked = parser.parse_args(arguments)
    bad = False
    for name, setting in (SHORT | (LONG if asked.long else {})).items():
        begun = time.perf_counter()
        states, steps, broken = explore(Rules(), setting, asked.most, DO)
        bad |= broken is not None
        print(
            f"{name}: {states:,} states, {steps:,} steps, "
            f"{broken or 'nothing broken'}, "
            f"{time.perf_counter() - begun:.0f} s",
            flush=True,
        )
    for name, (rules, setting) in MUTANTS.items():
        states, steps, broken = explore(rules, setting, asked.most, DO)
        bad |= broken is None
        print(
            f"mutant, {name}: {broken or 'NOT FOUND'} ({states:,} states, {steps:,} "
            "steps)",
            flush=True,
        )
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
