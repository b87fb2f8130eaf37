#!/usr/bin/env python3
"""Prints `N passed, N failed` from meson's testlog.json files; fails when a test failed or none
ran.

A test that speaks TAP counts with each of its points, any other as one. `--broken N` adds N
failures for builds that did not come about. `--again LOG...` are logs of failed tests that ran
once more, alone: each counts as it did then, and is named. `--failed LOG` only lists the names of
the tests that failed, `--names LOG...` those of all that ran.
"""
import argparse
import itertools
import json
import pathlib
import re
import sys

POINT = re.compile(r"^(ok|not ok)\b(.*)$", re.MULTILINE)
GOOD = ("OK", "EXPECTEDFAIL", "SKIP")


def count(test):
    """(passed, failed, skipped) of one entry of testlog.json."""
    passed = failed = skipped = 0
    for verdict, rest in POINT.findall(test.get("stdout") or ""):
        if re.search(r"#\s*skip", rest, re.IGNORECASE):
            skipped += 1
        elif verdict == "ok":
            passed += 1
        else:
            failed += 1
    good = test["result"] in GOOD
    if test["result"] == "SKIP":
        return passed, failed, max(skipped, 1)
    if good and passed + failed + skipped == 0:
        return 1, 0, 0
    if not good and failed == 0:  # crashed, leaked, timed out: no point says so
        return passed, 1, skipped
    return passed, failed, skipped


def reasons(test):
    """What it said of its first failure, in a few lines; where nothing did, how it ended."""
    said = (test.get("stdout") or "").splitlines()
    for at, line in enumerate(said):
        if line.startswith("not ok"):
            notes = itertools.takewhile(lambda note: note.startswith("#"), said[at + 1:])
            return [line, *itertools.islice(notes, 4)]
    return (test.get("stderr") or "").splitlines()[-4:]


def tests_of(log):
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [json.loads(line) for line in lines]


def build_of(log):
    return log.parent.parent.name


def judged(logs, again):
    """(build, test) of each test as it counts, and lines about those that ran again."""
    second = {(build_of(log), test["name"]): test for log in again if log.exists()
              for test in tests_of(log)}
    tests, lines = [], []
    for log in logs:
        for test in tests_of(log):
            then = second.get((build_of(log), test["name"]))
            if test["result"] not in GOOD and then:
                if then["result"] in GOOD:
                    lines.append(f"UNSTEADY {build_of(log)}: {test['name']} failed beside others "
                                 f"({test['result']}) and passed alone")
                test = then
            tests.append((build_of(log), test))
    return tests, lines


def report(logs, again, broken):
    """Prints it all; true: nothing failed, and something ran."""
    passed, failed, skipped = 0, broken, 0
    for log in logs:
        if not log.exists():
            print(f"{build_of(log)}: its tests did not run")
            failed += 1
    tests, lines = judged([log for log in logs if log.exists()], again)
    for build, test in tests:
        p, f, s = count(test)
        passed, failed, skipped = passed + p, failed + f, skipped + s
        if f:
            lines.append(f"FAILED {build}: {test['name']} ({test['result']})")
            lines += [f"  {reason}" for reason in reasons(test)]
    for line in lines:
        print(line)
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    return failed == 0 and passed > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", type=pathlib.Path)
    parser.add_argument("--broken", type=int, default=0)
    parser.add_argument("--again", nargs="*", type=pathlib.Path, default=[])
    parser.add_argument("--failed", type=pathlib.Path)
    parser.add_argument("--names", nargs="*", type=pathlib.Path, default=[])
    args = parser.parse_args()
    for log in filter(None, [args.failed, *args.names]):
        for test in tests_of(log) if log.exists() else []:
            if not args.failed or test["result"] not in GOOD:
                print(test["name"].split(" / ")[-1])
    if args.failed or args.names:
        return
    sys.exit(not report(args.logs, args.again, args.broken))


if __name__ == "__main__":
    main()
