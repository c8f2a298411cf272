"""Try every order of the steps of writers, vacuums and readers: `python -m
tests.checks.versions_model`.

This is a model of the rules in docs/explanation/versions.md, for disks and object
stores. `index_schedules` tries orders of steps of the index itself.

A state is a folder, and the next step of each process. Each state is visited once, and
checked. So crashes are included: a crashed process is one that does not go on. A
listing takes time: it may miss a name that is made or replaced meanwhile.
"""

import argparse
import itertools
import sys
import time
from dataclasses import dataclass, replace
from typing import NamedTuple


@dataclass(frozen=True)
class Rules:
    """The rules. Without any one of them, the model finds an error."""

    create_if_absent: bool = True  # W3: making a version fails if its name is taken
    next_number: bool = True  # W3: the number follows that of the version read in W1
    new_files: bool = True  # W4: a writer that begins again writes new files
    keep_if_unsure: bool = True  # W4: it keeps its files if they may be listed
    fence: bool = True  # V2
    list_before_fence: bool = True  # V1 before V2
    names_stay: bool = True  # V3: a removed version leaves a tombstone
    ascending: bool = True  # V3
    bury_first: bool = True  # V3 before V4
    sync_files: bool = True  # D1: before the version is made
    sync_version: bool = True  # D2: before it is reported
    sync_last: bool = True  # D3: before older versions are removed
    sync_tombstones: bool = True  # D4: before files are removed


@dataclass(frozen=True)
class Setting:
    """The processes, and what may happen to them."""

    commits: tuple = (1, 1)  # the number of versions that each writer makes
    vacuums: int = 1
    readers: int = 0
    versions: int = 2  # versions at the beginning; 0: each writer makes the index
    tries: int = 2
    lost: int = 0  # how many answers to the making of a version get lost
    power: bool = False  # whether the power may fail


class Version(NamedTuple):
    number: int
    name: tuple  # of the attempt, and of the file that it writes
    files: frozenset  # the file of the attempt, and the file of the version before


NOTHING = Version(0, (), frozenset())


class Folder(NamedTuple):
    """The files, and for the checks what was before."""

    made: tuple = ()  # every version that was ever made
    removed: frozenset = frozenset()  # their numbers
    files: frozenset = frozenset()
    unsynced: tuple = ()  # the changes that a power loss may undo
    reported: int = 0  # the last version whose writer was told that it is made

    def version(self, number):
        """The version with a number, unless it is removed or not yet made."""
        there = 0 < number <= len(self.made) and number not in self.removed
        return self.made[number - 1] if there else None

    @property
    def versions(self):
        return [one for one in self.made if one.number not in self.removed]

    def changed(self, what, item, synced=False, **values):
        """Make a change, which a power loss may undo unless it is synced."""
        unsynced = self.unsynced if synced else (*self.unsynced, (what, item))
        return self._replace(unsynced=unsynced, **values)

    def removing(self, file):
        return self.changed("unlinked", file, files=self.files - {file})

    def synced(self):
        """The folder of manifests is synced, but not those of other files."""
        left = [one for one in self.unsynced if one[0] in ("written", "unlinked")]
        return self._replace(unsynced=tuple(left))


class Process(NamedTuple):
    """The next step of a process, and what it knows."""

    kind: str
    step: str = "start"
    done: int = 0
    tries: int = 0
    base: Version | None = None  # the version that it has read
    number: int = 0  # of the version to make
    listed: tuple | None = (
        None  # of a running listing: numbers that it has, and may have
    )
    unknown: frozenset = frozenset()  # files that no version names
    dropped: frozenset = frozenset()  # files that only removed versions name


class State(NamedTuple):
    folder: Folder
    processes: tuple
    lost: int


class Broken(Exception):
    """A guarantee does not hold."""


def largest(listed):
    """The largest numbers that a listing may return."""
    least = max(listed[0], default=0)
    return {least} | {number for number in listed[1] if number > least}


def listing(own, step, folder):
    """Begin a listing of the versions."""
    return own._replace(
        step=step, listed=(frozenset(range(1, len(folder.made) + 1)), frozenset())
    )


def created(folder, base, number, name, rules, synced=False):
    """Make a version. Return None if its name is taken."""
    taken = number <= len(folder.made) if rules.names_stay else folder.version(number)
    if taken and rules.create_if_absent:
        return None
    last = folder.made[-1] if folder.made else NOTHING
    if number <= len(folder.made):
        raise Broken(f"number {number} is assigned twice")
    if base != last or number != last.number + 1:
        raise Broken(f"version {number} is not made from the version before it")
    fence = name[0] == "fence"
    files = (
        base.files if fence else frozenset({name, base.name}) & (folder.files | {name})
    )
    made = Version(number, base.name if fence else name, files)
    return folder.changed("made", number, synced, made=(*folder.made, made))


def writer(own, who, folder, rules, setting, lost):
    """Yield each (process, folder, lost answers) that can follow."""
    name = (who, own.done, own.tries if rules.new_files else 0)
    again = own._replace(step="start", tries=own.tries + 1, base=None, number=0)
    if own.step == "start":
        if own.done < setting.commits[who] and own.tries < setting.tries:
            yield listing(own, "read", folder), folder, 0
    elif own.step == "read":
        for number in largest(own.listed):
            found = folder.version(number)
            first = not setting.versions and not own.done
            if first and number:  # somebody else has made the index
                yield Process("w", "end"), folder, 0
            elif found is None and not (first and not number):
                yield own._replace(step="start", listed=None), folder, 0
            elif rules.next_number:
                base = found or NOTHING
                after = own._replace(step="write", listed=None, base=base)
                yield after._replace(number=number + 1), folder, 0
            else:
                after = own._replace(base=found or NOTHING)
                yield listing(after, "number", folder), folder, 0
    elif own.step == "number":
        for number in largest(own.listed):
            after = own._replace(step="write", listed=None, number=number + 1)
            yield after, folder, 0
    elif own.step == "write":
        files = folder.files | {name}
        if rules.new_files or not own.tries:
            folder = folder.changed("written", name, rules.sync_files, files=files)
        yield own._replace(step="create"), folder, 0
    elif own.step == "create":
        made = created(folder, own.base, own.number, name, rules)
        if made is None:
            yield own._replace(step="look"), folder, 0
            return
        yield own._replace(step="sync"), made, 0
        if lost:
            yield own._replace(step="look"), made, 1
            gone = frozenset() if rules.keep_if_unsure else {name}
            late = folder._replace(files=folder.files - gone)
            yield own._replace(step="late"), late, 1
    elif own.step == "late":  # the writer has given up, but the request arrives
        made = created(folder, own.base, own.number, name, rules)
        yield Process("w", "end"), folder if made is None else made, 0
    elif own.step == "look":
        holder = folder.version(own.number)
        if holder is not None and holder.name == name:
            yield own._replace(step="sync"), folder, 0
        else:
            unsure = holder is None and rules.keep_if_unsure
            keep = unsure or not rules.new_files
            yield again, folder if keep else folder.removing(name), 0
    elif own.step == "sync":
        if rules.sync_version:
            folder = folder.synced()
        reported = max(folder.reported, own.number)
        after = Process("w", "start", own.done + 1)
        yield after, folder._replace(reported=reported), 0


def vacuum(own, who, folder, rules, setting, lost):
    """Yield each (process, folder, lost answers) that can follow. One version is kept."""
    if own.step == "start":
        yield listing(own, "read", folder), folder, 0
    elif own.step == "read":
        for number in largest(own.listed):
            found, step = folder.version(number), "look"
            if not rules.list_before_fence:
                step = "fence"
            after = own._replace(step=step if found else "start", listed=None)
            yield after._replace(base=found), folder, 0
    elif own.step in ("look", "look late"):
        named = {
            file
            for one in folder.versions
            if one.number <= own.base.number
            for file in one.files
        }
        unknown = folder.files - named
        fence = unknown and rules.fence and own.step == "look"
        yield (
            own._replace(step="fence" if fence else "sync", unknown=unknown),
            folder,
            0,
        )
    elif own.step == "fence":
        name = "fence", who, own.tries
        made = created(folder, own.base, own.base.number + 1, name, rules, True)
        if made is not None:
            step = "sync" if rules.list_before_fence else "look late"
            yield own._replace(step=step, base=made.made[-1]), made, 0
        elif own.tries + 1 < setting.tries:
            yield Process("v", tries=own.tries + 1), folder, 0
        else:
            yield own._replace(step="sync", unknown=frozenset()), folder, 0
    elif own.step == "sync":
        old = [one for one in folder.versions if one.number < own.base.number]
        dropped = frozenset().union(*(one.files for one in old)) - own.base.files
        step = "bury" if rules.bury_first else "clean"
        after = own._replace(step=step, dropped=dropped)
        yield after, folder.synced() if rules.sync_last else folder, 0
    elif own.step == "bury":
        old = [one.number for one in folder.versions if one.number < own.base.number]
        if old:
            number = min(old) if rules.ascending else max(old)
            removed = folder.removed | {number}
            yield own, folder.changed("removed", number, removed=removed), 0
        else:
            if rules.sync_tombstones:
                folder = folder.synced()
            yield own._replace(step="clean" if rules.bury_first else "end"), folder, 0
    elif own.step == "clean":
        old = sorted(
            (own.unknown | own.dropped) & folder.files - own.base.files, key=repr
        )
        if old:
            yield own, folder.removing(old[0]), 0
        elif rules.bury_first:
            yield Process("v", "end"), folder, 0
        else:
            yield own._replace(step="bury", unknown=frozenset()), folder, 0


def reader(own, who, folder, rules, setting, lost):
    """Yield each (process, folder, lost answers) that can follow."""
    if own.step == "start":
        yield own._replace(step="list", number=len(folder.made)), folder, 0
    elif own.step == "list":
        yield listing(own, "read", folder), folder, 0
    elif own.step == "read":
        for number in largest(own.listed):
            if folder.version(number) is None:
                yield own._replace(step="list", listed=None), folder, 0
            elif number < own.number:
                raise Broken("a reader gets an outdated version")
            else:
                yield Process("r", "end"), folder, 0


DO = {"w": writer, "v": vacuum, "r": reader}


def noticed(process, before, after):
    """A listing of versions that runs while the folder changes."""
    if process.listed is None:
        return process
    made = frozenset(one.number for one in after.made[len(before.made) :])
    replaced = after.removed - before.removed
    must, may = process.listed
    return process._replace(listed=(must - replaced, may | made | replaced))


def following(state, rules, setting):
    """Yield all states that can come next."""
    folder, processes, lost = state
    for who, own in enumerate(processes):
        for after, changed, used in DO[own.kind](
            own, who, folder, rules, setting, lost
        ):
            if not setting.power:
                changed = changed._replace(unsynced=(), reported=0)
            others = [noticed(one, folder, changed) for one in processes]
            others[who] = after
            yield State(changed, tuple(others), lost - used)


def check(folder):
    """Raise an error if a guarantee does not hold, now or after a power loss."""
    for size in range(len(folder.unsynced) + 1):
        for undone in itertools.combinations(folder.unsynced, size):
            _check(folder, set(undone))


def _check(folder, undone):
    files = folder.files | {item for what, item in undone if what == "unlinked"}
    files -= {item for what, item in undone if what == "written"}
    there = [
        one
        for one in folder.made
        if ("made", one.number) not in undone
        and (one.number not in folder.removed or ("removed", one.number) in undone)
    ]
    for one in there:
        if not one.files <= files:
            raise Broken(f"version {one.number} lacks a file")
    last = max((one.number for one in there), default=0)
    if folder.made and last < (folder.reported if undone else len(folder.made)):
        raise Broken("the last version is gone")
    if undone and folder.made[0].name[0] == "first" and not there:
        raise Broken("no version is left")


def start(setting):
    """The folder with its first versions. No process has begun."""
    made, name = [], None
    for number in range(1, setting.versions + 1):
        files = frozenset({("first", number), *([name] if name else [])})
        name = "first", number
        made.append(Version(number, name, files))
    files = frozenset(file for one in made for file in one.files)
    kinds = "w" * len(setting.commits) + "v" * setting.vacuums + "r" * setting.readers
    folder = Folder(tuple(made), files=files)
    return State(folder, tuple(map(Process, kinds)), setting.lost)


def explore(rules, setting):
    """Try everything. Return the numbers of states and steps, and what is broken."""
    first = start(setting)
    seen, todo, steps = {first}, [first], 0
    while todo:
        try:
            for after in following(todo.pop(), rules, setting):
                steps += 1
                if after not in seen:
                    check(after.folder)
                    seen.add(after)
                    todo.append(after)
        except Broken as error:
            return len(seen), steps, str(error)
    return len(seen), steps, None


SHORT = {
    "two writers, a vacuum": Setting(),
    "two first loads, one is updated, a vacuum": Setting((1, 2), versions=0),
    "a writer, a vacuum, two readers": Setting((1,), readers=2),
    "a writer, two vacuums": Setting((1,), 2),
    "two writers, a vacuum, a lost answer": Setting(lost=1),
    "a writer of two versions, a vacuum, a power loss": Setting((2,), power=True),
}
"""These take seconds."""

LONG = {
    "three writers, a vacuum": Setting((1, 1, 1)),
    "two writers of two versions, a vacuum": Setting((2, 2)),
    "two writers, two vacuums": Setting((1, 1), 2),
    "a writer, two vacuums, a reader": Setting((1,), 2, 1, versions=3),
    "two writers, a vacuum, a reader, a lost answer": Setting(readers=1, lost=1),
    "two writers, a vacuum, two lost answers": Setting(lost=2),
    "two writers, a vacuum, a power loss": Setting(power=True),
    "a writer, two vacuums, a power loss": Setting((1,), 2, power=True),
}
"""These take minutes."""

MUTANTS = {
    "create_if_absent": Setting(vacuums=0),
    "next_number": Setting(vacuums=0),
    "new_files": Setting(versions=1),
    "keep_if_unsure": Setting(lost=1),
    "fence": Setting((1,)),
    "list_before_fence": Setting((1,)),
    "names_stay": Setting((1, 2)),
    "ascending": Setting((1,), readers=1),
    "bury_first": Setting((1,)),
    "sync_files": Setting((1,), 0, power=True),
    "sync_version": Setting((1,), 0, power=True),
    "sync_last": Setting((1,), power=True),
    "sync_tombstones": Setting((1,), power=True),
}
"""Rule that is left out -> where the model finds an error."""


def mutant(name):
    """Return what is broken without a rule."""
    return explore(replace(Rules(), **{name: False}), MUTANTS[name])


def main(arguments=None):
    """Print the states and steps of each setting. Fail if a guarantee does not hold, or
    if it does without one of the rules.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="also settings of minutes")
    bad = False
    for name, setting in (
        SHORT | (LONG if parser.parse_args(arguments).long else {})
    ).items():
        begun = time.perf_counter()
        states, steps, broken = explore(Rules(), setting)
        bad |= broken is not None
        took = time.perf_counter() - begun
        print(
            f"{name}: {states:,} states, {steps:,} steps, {broken}, {took:.0f} s",
            flush=True,
        )
    for name in MUTANTS:
        states, steps, broken = mutant(name)
        bad |= broken is None
        print(
            f"without {name}: {broken or 'NOT FOUND'} ({states:,} states)", flush=True
        )
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
