"""Try every order of the steps by which versions come and go: `python -m
tests.checks.versions_model`.

A model, and not the program: docs/explanation/versions.md has the rules, and
index_schedules.py runs the program itself.  A state is the folder and where each
process is.  All that can follow is tried, each state once.  A listing takes time: what
is there all the while is in it, and what comes or goes may be.
"""

import argparse
import itertools
import sys
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

HALF_A_DAY, A_DAY = 1, 2
"""In ticks of the model's clock."""


@dataclass(frozen=True)
class Rules:
    """What the processes do; each rule that is left out must be found out."""

    # a writer lists versions after its temporary was made, not before
    lists_again: bool = True
    # a vacuum removes temporaries before it reads the last version
    sweeps_first: bool = True
    sweeps_again: bool = True  # and once more, before it removes manifests
    ascending: bool = True  # it removes manifests in the order of their numbers
    ages: bool = True  # a writer refuses after half a day
    # a writer reads a version, and lists anew to choose a number
    numbers_apart: bool = False


OLD = Rules(False, False, False, True, False, True)


@dataclass(frozen=True)
class Setting:
    """Which processes there are, and what may happen to them."""

    commits: tuple = (1, 1)  # of each writer
    vacuums: int = 1
    readers: int = 0
    crashes: int = 0
    ticks: int = 0
    versions: int = 1
    tries: int = 2


class Manifest(NamedTuple):
    """A version: who made it, of which one, and its files."""

    number: int
    name: tuple
    parent: tuple
    data: frozenset


class Folder(NamedTuple):
    """What is on disk, the time, and, for the invariants, each manifest that ever was,
    in order.
    """

    manifests: frozenset
    temporaries: frozenset  # (name, time)
    data: frozenset  # (name, time)
    clock: int
    given: tuple


class Process(NamedTuple):
    """Where a process is: what it does next, and what it knows."""

    kind: str
    step: str
    done: int = 0
    tries: int = 0
    base: Manifest | None = None
    begun: int = 0
    # (what is in it, what may be) of a listing that goes on
    listed: tuple | None = None
    known: frozenset = frozenset()
    needed: frozenset = frozenset()


class State(NamedTuple):
    folder: Folder
    processes: tuple
    crashes: int


class Broken(Exception):
    """What must not be."""


def start(setting):
    """The folder with its first versions, and no process at work."""
    given, parent, before = [], (), frozenset()
    for number in range(1, setting.versions + 1):
        name = ("first", number)
        given.append(Manifest(number, name, parent, before | {name}))
        parent, before = name, frozenset({name})
    data = frozenset((name, 0) for one in given for name in one.data)
    folder = Folder(frozenset(given), frozenset(), data, 0, tuple(given))
    kinds = "w" * len(setting.commits) + "v" * setting.vacuums + "r" * setting.readers
    return State(
        folder, tuple(Process(kind, "start") for kind in kinds), setting.crashes
    )


def numbers(folder):
    return frozenset(one.number for one in folder.manifests)


def names(files):
    return frozenset(name for name, _ in files)


def largest(listed):
    """The largest numbers that a listing may give."""
    must, may = listed
    least = max(must, default=0)
    return {least} | {number for number in may if number > least}


def subsets(listed):
    """All that a listing may give."""
    must, may = listed
    for size in range(len(may) + 1):
        for some in itertools.combinations(sorted(may), size):
            yield must | frozenset(some)


def of_number(folder, number):
    for one in folder.manifests:
        if one.number == number:
            return one
    return None


def writer(own, who, folder, rules, setting):
    """What a writer does next: each (process, folder) that can come of it."""
    name = (who, own.done, own.tries)
    if own.step == "start":
        if own.done == setting.commits[who] or own.tries == setting.tries:
            return
        yield (
            own._replace(step="read", listed=(numbers(folder), frozenset()), base=None),
            folder,
        )
    elif own.step == "read":
        for number in largest(own.listed):
            found = of_number(folder, number)
            if found is None and (number or setting.versions or own.done):
                yield own._replace(step="start", listed=None), folder
            elif found is None:  # there is no version yet: this one is the first
                first = Manifest(0, (), (), frozenset())
                yield own._replace(step="write", listed=None, base=first), folder
            elif setting.versions == 0 and not own.done:
                # it is made
                yield (
                    own._replace(step="start", listed=None, tries=setting.tries),
                    folder,
                )
            elif rules.numbers_apart:
                yield (
                    own._replace(
                        step="number", listed=(numbers(folder), frozenset()), base=found
                    ),
                    folder,
                )
            else:
                yield own._replace(step="write", listed=None, base=found), folder
    elif own.step == "number":
        for number in largest(own.listed):
            known = frozenset({number})
            yield own._replace(step="write", listed=None, known=known), folder
    elif own.step == "write":
        made = folder._replace(data=folder.data | {(name, folder.clock)})
        after = "temporary" if rules.lists_again or rules.numbers_apart else "list"
        yield own._replace(step=after, begun=folder.clock), made
    elif own.step == "temporary":
        made = folder._replace(temporaries=folder.temporaries | {(name, folder.clock)})
        yield own._replace(step="list" if rules.lists_again else "link"), made
    elif own.step == "list":
        yield own._replace(step="check", listed=(numbers(folder), frozenset())), folder
    elif own.step == "check":
        made = [at for one, at in folder.temporaries if one == name]
        for number in largest(own.listed):
            if number != max(own.known, default=own.base.number):
                yield own._replace(step="give up", listed=None), folder
            elif not rules.lists_again:
                yield own._replace(step="temporary", listed=None), folder
            elif not made:
                # a vacuum was here
                yield own._replace(step="temporary", listed=None), folder
            elif rules.ages and own.base.number and made[0] - own.begun > HALF_A_DAY:
                yield own._replace(step="give up", listed=None), folder
            else:
                yield own._replace(step="link", listed=None), folder
    elif own.step == "link":
        yield linked(own, name, folder, rules)
    elif own.step == "give up":
        left = frozenset(one for one in folder.temporaries if one[0] != name)
        gone = frozenset(one for one in folder.data if one[0] != name)
        after = own._replace(
            step="start", tries=own.tries + 1, base=None, begun=0, known=frozenset()
        )
        yield after, folder._replace(temporaries=left, data=gone)
    elif own.step == "made":
        left = frozenset(one for one in folder.temporaries if one[0] != name)
        after = Process("w", "start", own.done + 1)
        yield after, folder._replace(temporaries=left)


def linked(own, name, folder, rules):
    """Make the name of a version, unless there is one, or the temporary is gone."""
    number = own.base.number + 1
    if own.known:
        number = max(own.known) + 1
    if number in numbers(folder):
        return own._replace(step="give up"), folder
    if name not in names(folder.temporaries):
        return own._replace(
            step="temporary" if rules.lists_again else "give up"
        ), folder
    made = Manifest(
        number, name, own.base.name, frozenset({name, own.base.name} - {()})
    )
    last = folder.given[-1] if folder.given else Manifest(0, (), (), frozenset())
    if any(one.number == number for one in folder.given):
        raise Broken(f"number {number} is given twice")
    if made.parent != last.name or number != last.number + 1:
        raise Broken(
            f"version {number} is not made of the last one, {last.number}, whose rows "
            "are lost"
        )
    given = (*folder.given, made)
    return own._replace(step="made"), folder._replace(
        manifests=folder.manifests | {made}, given=given
    )


def vacuum(own, who, folder, rules, setting):
    """What a vacuum that keeps one version does next."""
    if own.step == "start" and not own.done:
        listed = (names(folder.temporaries), frozenset())
        step = "sweep" if rules.sweeps_first else "list"
        yield own._replace(step=step, begun=folder.clock, listed=listed, done=1), folder
    elif own.step in ("sweep", "sweep again"):
        after = "sweeping" if own.step == "sweep" else "sweeping again"
        for some in subsets(own.listed):
            yield own._replace(step=after, listed=None, tries=0, known=some), folder
    elif own.step in ("sweeping", "sweeping again"):
        for one in sorted(own.known)[:1]:
            left = frozenset(file for file in folder.temporaries if file[0] != one)
            yield (
                own._replace(known=own.known - {one}),
                folder._replace(temporaries=left),
            )
        if not own.known:
            yield (
                own._replace(step="list" if own.step == "sweeping" else "remove"),
                folder,
            )
    elif own.step == "list":
        yield own._replace(step="read", listed=(numbers(folder), frozenset())), folder
    elif own.step == "read":
        for number in largest(own.listed):
            last = of_number(folder, number)
            if last is None:
                yield own._replace(step="list", listed=None), folder
                continue
            dropped = frozenset(
                name
                for one in folder.manifests
                if one.number < number
                for name in one.data - last.data
            )
            after = own._replace(base=last, needed=dropped, listed=None, step="remove")
            if rules.sweeps_again:
                after = after._replace(
                    step="sweep again", listed=(names(folder.temporaries), frozenset())
                )
            yield after, folder
    elif own.step == "remove":
        old = sorted(one for one in folder.manifests if one.number < own.base.number)
        if not old:
            yield own._replace(step="clean"), folder
        else:
            one = old[0] if rules.ascending else old[-1]
            yield own, folder._replace(manifests=folder.manifests - {one})
    elif own.step == "clean":
        old = [
            (name, at)
            for name, at in folder.data
            if name not in own.base.data
            and (name in own.needed or at < own.begun - A_DAY)
        ]
        if not old:
            yield Process("v", "end", 1), folder
        else:
            yield own, folder._replace(data=folder.data - {min(old, key=repr)})


def reader(own, who, folder, rules, setting):
    """What a reader of the last version does next."""
    if own.step == "start":
        last = folder.given[-1].number if folder.given else 0
        yield own._replace(step="list", begun=last), folder
    elif own.step == "list":
        yield own._replace(step="read", listed=(numbers(folder), frozenset())), folder
    elif own.step == "read":
        for number in largest(own.listed):
            if of_number(folder, number) is None:
                yield own._replace(step="list", listed=None), folder
            elif number < own.begun:
                raise Broken(
                    f"a reader is given version {number} where there was version "
                    f"{own.begun}"
                )
            else:
                yield Process("r", "end"), folder


DO = {"w": writer, "v": vacuum, "r": reader}


def seen_by(process, before, after):
    """What a listing that goes on knows once the folder has changed."""
    if process.listed is None:
        return process
    of_temporaries = process.step.startswith("sweep")
    old = names(before.temporaries) if of_temporaries else numbers(before)
    new = names(after.temporaries) if of_temporaries else numbers(after)
    if old == new:
        return process
    must, may = process.listed
    return process._replace(listed=(must & new, may | (new - old) | (must - new)))


def following(state, rules, setting, do):
    """All states that can come next."""
    folder, processes, crashes = state
    for who, own in enumerate(processes):
        for after, changed in do[own.kind](own, who, folder, rules, setting):
            if changed is folder:
                others = (*processes[:who], after, *processes[who + 1 :])
            else:
                others = tuple(
                    after if n == who else seen_by(one, folder, changed)
                    for n, one in enumerate(processes)
                )
            yield State(changed, others, crashes)
        if crashes and own.step not in ("start", "end"):
            dead = Process(own.kind, "end")
            yield State(
                folder, (*processes[:who], dead, *processes[who + 1 :]), crashes - 1
            )
    if folder.clock < setting.ticks:
        yield State(folder._replace(clock=folder.clock + 1), processes, crashes)


def check(state):
    """What holds of the folder in every state."""
    folder = state.folder
    there = names(folder.data)
    for one in folder.manifests:
        if not one.data <= there:
            raise Broken(f"version {one.number} lacks a file")
    if folder.given and folder.given[-1] not in folder.manifests:
        raise Broken("the last version was removed")


def explore(rules, setting, most=None, do=DO):
    """Try everything; returns how many states and steps there are, and what was broken,
    if anything was.
    """
    first = start(setting)
    seen, todo, steps = {first}, [first], 0
    while todo:
        state = todo.pop()
        try:
            for after in following(state, rules, setting, do):
                steps += 1
                if after not in seen:
                    check(after)
                    seen.add(after)
                    todo.append(after)
        except Broken as error:
            return len(seen), steps, str(error)
        if most is not None and len(seen) > most:
            return len(seen), steps, f"more than {most:,} states"
    return len(seen), steps, None


SHORT = {
    "two writers, a vacuum": Setting((1, 1), 1, versions=2),
    "a writer, a faster one of two, a vacuum": Setting((1, 2), 1, versions=1, tries=1),
    "a first load beside one that is updated": Setting((1, 2), 0, versions=0),
    "a writer, a vacuum, three half days": Setting((1,), 1, ticks=3, versions=2),
    "a writer, a vacuum, a reader, a crash": Setting((1,), 1, 1, crashes=1, versions=2),
    "two writers, a crash": Setting((1, 1), 0, crashes=1),
}
"""What is tried in seconds."""

LONG = {
    "two writers, a vacuum, a reader": Setting((1, 1), 1, 1, versions=2, tries=1),
    "two writers, of one and two, a vacuum": Setting((1, 2), 1, versions=1),
    "two writers, two vacuums": Setting((1, 1), 2, versions=2, tries=1),
    "three writers, a vacuum": Setting((1, 1, 1), 1, versions=1, tries=1),
    "a first load, one that is updated twice, a vacuum": Setting(
        (1, 3), 1, versions=0, tries=1
    ),
    "two writers, a vacuum, a reader, a crash": Setting(
        (1, 1), 1, 1, crashes=1, versions=2, tries=1
    ),
    "a writer, two vacuums, a reader": Setting((1,), 2, 1, versions=3, tries=1),
    "two writers, a vacuum, three half days": Setting(
        (1, 1), 1, ticks=3, versions=2, tries=1
    ),
    "two writers, a vacuum, two crashes": Setting(
        (1, 1), 1, crashes=2, versions=2, tries=1
    ),
    "two writers of two, a vacuum": Setting((2, 2), 1, versions=1, tries=1),
}
"""What takes minutes."""

MUTANTS = {
    "the old rules": (OLD, Setting((1, 1), 1)),
    "the number of a later listing": (
        replace(Rules(), numbers_apart=True),
        Setting((1, 1), 0, tries=1),
    ),
    "no second sweep": (
        replace(Rules(), sweeps_again=False),
        Setting((1, 2), 1, tries=1),
    ),
    "listed before the temporary": (
        replace(Rules(), lists_again=False),
        Setting((1, 2), 1, tries=1),
    ),
    "no first sweep": (
        replace(Rules(), sweeps_first=False),
        Setting((1,), 1, ticks=4, versions=2),
    ),
    "no age": (replace(Rules(), ages=False), Setting((1,), 1, ticks=4, versions=2)),
    "descending": (replace(Rules(), ascending=False), Setting((1,), 1, 1, versions=2)),
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
        states, steps, broken = explore(Rules(), setting, asked.most)
        bad |= broken is not None
        print(
            f"{name}: {states:,} states, {steps:,} steps, "
            f"{broken or 'nothing broken'}, "
            f"{time.perf_counter() - begun:.0f} s",
            flush=True,
        )
    for name, (rules, setting) in MUTANTS.items():
        states, steps, broken = explore(rules, setting, asked.most)
        bad |= broken is None
        print(
            f"mutant, {name}: {broken or 'NOT FOUND'} ({states:,} states, {steps:,} "
            "steps)",
            flush=True,
        )
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
