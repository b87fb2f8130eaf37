#!/usr/bin/env python3
"""Prints the share of lines that tests reached, room by room (src/ROOM), from what `llvm-cov export
-summary-only` wrote. Fails when a room is below its floor.

    coverage_rooms.py SUMMARY [--floors tools/coverage-floors.txt]

A line of the floors is a room and a percentage ("base 91.5"); what follows a # is a comment. A room
without a line has no floor; a floor whose room is not in the summary is a failure.

`--self-test` breaks each rule once, and checks that the project's floors can be read and name rooms
that exist.
"""
import argparse
import collections
import io
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
Room = collections.namedtuple("Room", "covered total")


def rooms_of(summary):
    """{name: Room} of a summary in llvm-cov's form."""
    counts = collections.defaultdict(lambda: [0, 0])
    for file in (file for part in summary["data"] for file in part["files"]):
        path = pathlib.Path(file["filename"])
        folders = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ()
        if len(folders) < 3 or folders[0] != "src":
            continue
        counts[folders[1]][0] += file["summary"]["lines"]["covered"]
        counts[folders[1]][1] += file["summary"]["lines"]["count"]
    return {name: Room(*both) for name, both in counts.items() if both[1]}


def floors_of(text):
    """{room: percent}; ValueError says what is wrong, and where."""
    floors = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            room, percent = words[0], float(words[1])
            good = len(words) == 2 and room not in floors and 0 <= percent <= 100
        except (IndexError, ValueError):
            good = False
        if not good:
            raise ValueError(f"line {number}: '{line}' is not one room, once, and a percentage")
        floors[room] = percent
    return floors


def percent_text(room):
    """Rounded down, so that what is below a floor never looks like it."""
    tenths = 1000 * room.covered // room.total
    return f"{tenths // 10}.{tenths % 10}"


def complaints_of(rooms, floors):
    for name, floor in sorted(floors.items()):
        room = rooms.get(name)
        if not room:
            yield f"{name}: has a floor, but there is no line of src/{name}"
        elif 100 * room.covered < floor * room.total:
            yield f"{name}: {percent_text(room)} % of its lines are reached; its floor is {floor} %"


def show(rooms, floors, out):
    print(f"{'room':<14}{'lines':>8}{'reached':>9}{'%':>7}{'floor':>7}", file=out)
    by_share = sorted(rooms.items(), key=lambda item: (item[1].covered / item[1].total, item[0]))
    for name, room in by_share:
        floor = floors.get(name, "-")
        print(f"{name:<14}{room.total:>8}{room.covered:>9}{percent_text(room):>7}{floor:>7}",
              file=out)


def self_test():
    def file(name, covered, total):
        return {"filename": str(ROOT / name),
                "summary": {"lines": {"covered": covered, "count": total}}}

    rooms = rooms_of({"data": [{"files": [
        file("src/base/a.c", 1, 2), file("src/base/b/c.c", 1, 1), file("src/node/n.c", 9999, 10000),
        file("src/empty/e.h", 0, 0), file("tests/unit/t.c", 5, 5), file("src/top.c", 5, 5),
        file("/usr/include/src/room/x.h", 5, 5)]}]})
    assert rooms == {"base": Room(2, 3), "node": Room(9999, 10000)}, rooms
    assert percent_text(rooms["base"]) == "66.6" and percent_text(rooms["node"]) == "99.9"
    out = io.StringIO()
    show(rooms, {"base": 60.0}, out)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines[1:] == [["base", "3", "2", "66.6", "60.0"],
                         ["node", "10000", "9999", "99.9", "-"]], lines

    floors = floors_of("# all\n\nbase 66.6 # measured\nnode 99.99\n")
    assert floors == {"base": 66.6, "node": 99.99}, floors
    assert not list(complaints_of(rooms, floors))
    assert len(list(complaints_of(rooms, {"base": 66.7, "node": 99.99}))) == 1
    assert "no line of src/gone" in next(complaints_of(rooms, {"gone": 1.0}))
    for bad in ("base", "base x", "base 101", "base -1", "base nan", "base 5 6", "base 5\nbase 6"):
        try:
            floors_of(bad)
        except ValueError:
            continue
        raise AssertionError(f"'{bad}' was taken for floors")

    for room in floors_of((ROOT / "tools/coverage-floors.txt").read_text(encoding="utf-8")):
        assert (ROOT / "src" / room).is_dir(), f"tools/coverage-floors.txt: no room src/{room}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("summary", nargs="?", type=pathlib.Path)
    parser.add_argument("--floors", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        self_test()
        return 0
    if not options.summary:
        parser.error("which summary? llvm-cov export -summary-only writes it")
    try:
        rooms = rooms_of(json.loads(options.summary.read_text(encoding="utf-8")))
        floors = floors_of(options.floors.read_text(encoding="utf-8")) if options.floors else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"coverage_rooms: {error!r}"
    if not rooms:
        return f"coverage_rooms: {options.summary} has no line of src/"
    show(rooms, floors, sys.stdout)
    whole = Room(sum(r.covered for r in rooms.values()), sum(r.total for r in rooms.values()))
    print(f"{percent_text(whole)} % of {whole.total:,} lines")
    complaints = list(complaints_of(rooms, floors))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
