#!/usr/bin/env python3
"""Prints `N passed, N failed` from meson's testlog.json files; fails when a test failed or none
ran.

A test that speaks TAP counts with each of its points, any other as one. `--broken N` adds N
failures for builds that did not come about.
"""
import argparse
import json
import pathlib
import re

POINT = re.compile(r"^(ok|not ok)\b(.*)$", re.MULTILINE)


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
    good = test["result"] in ("OK", "EXPECTEDFAIL")
    if test["result"] == "SKIP":
        return passed, failed, max(skipped, 1)
    if good and passed + failed + skipped == 0:
        return 1, 0, 0
    if not good and failed == 0:  # crashed, leaked, timed out: no point says so
        return passed, 1, skipped
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", type=pathlib.Path)
    parser.add_argument("--broken", type=int, default=0)
    args = parser.parse_args()

    passed, failed, skipped = 0, args.broken, 0
    for log in args.logs:
        if not log.exists():
            print(f"{log.parent.parent.name}: its tests did not run")
            failed += 1
            continue
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            test = json.loads(line)
            p, f, s = count(test)
            passed, failed, skipped = passed + p, failed + f, skipped + s
            if f:
                print(f"FAILED {log.parent.parent.name}: {test['name']} ({test['result']})")
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    raise SystemExit(failed > 0 or passed == 0)


if __name__ == "__main__":
    main()
