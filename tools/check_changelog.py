#!/usr/bin/env python3
"""Checks CHANGELOG.md: its form (keepachangelog.com), and that a release has a section.

    check_changelog.py [--version VERSION]

1. The first section is `## [Unreleased]`; the others are `## [X.Y.Z] - YYYY-MM-DD`, the newest
first, each version once. 2. Below them are `### Added`, Changed, Deprecated, Removed, Fixed or
Security, each once a section and none of them empty. 3. A released version has a section that is
not empty. With --version: that one must have a section, if it is a release's (X.Y.Z alone, as
tools/version.sh prints it where a tag is).

`--self-test` breaks each rule once.
"""
import argparse
import datetime
import pathlib
import re
import sys

KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
RELEASE = re.compile(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)")


def sections(text):
    """[(heading, {kind: lines})]; a kind that comes twice or is unknown is a complaint."""
    found, complaints, lines = [], [], []
    for line in text.splitlines():
        if line.startswith("## "):
            lines = []
            found.append((line[3:], {}))
        elif line.startswith("### ") and found:
            lines, (heading, kinds) = [], found[-1]
            kind = line[4:]
            if kind not in KINDS or kind in kinds:
                complaints.append(f"{heading}: '{line}' is not one of {', '.join(KINDS)}, once")
            kinds[kind] = lines
        elif line.strip():
            lines.append(line)
    return found, complaints


def order_of(heading):
    """(version, date), or None."""
    match = RELEASE.fullmatch(heading)
    try:
        return match and (tuple(map(int, match.groups()[:3])),
                          datetime.date.fromisoformat(match[4]))
    except ValueError:
        return None


def check(text, version=None):
    found, complaints = sections(text)
    if not found or found[0][0] != "[Unreleased]":
        complaints.append("the first section is not '## [Unreleased]'")
    releases = []
    for heading, kinds in found:
        complaints += [f"{heading}: '### {kind}' is empty"
                       for kind, lines in kinds.items() if not lines]
        if heading == "[Unreleased]":
            continue
        order = order_of(heading)
        if not order:
            complaints.append(f"'## {heading}' is not '## [X.Y.Z] - YYYY-MM-DD'")
        elif releases and not (order[0] < releases[-1][0] and order[1] <= releases[-1][1]):
            complaints.append(f"{heading} is not older than the one above it")
        if order:
            releases.append(order)
        if not any(kinds.values()):
            complaints.append(f"{heading} says nothing")
    if version and re.fullmatch(r"\d+\.\d+\.\d+", version):
        if tuple(map(int, version.split("."))) not in [release[0] for release in releases]:
            complaints.append(f"{version} is released, and has no section '## [{version}] - DATE'")
    return complaints


GOOD = """# Changelog
## [Unreleased]
## [1.10.0] - 2026-12-01
### Added
- A thing.
### Fixed
- Another.
## [1.9.0] - 2026-11-30
### Removed
- One.
"""


def self_test():
    assert not check(GOOD) and not check(GOOD, "1.9.0") and not check(GOOD, "1.11.0+3.gabc")
    for version, change, complaint in (
        (None, ("## [Unreleased]\n", ""), "first section"),
        (None, ("[1.10.0]", "[1.8.0]"), "not older"),
        (None, ("2026-12-01", "2026-11-01"), "not older"),
        (None, ("[1.10.0]", "[1.9.0]"), "not older"),
        (None, ("2026-12-01", "2026-13-01"), "is not '## [X.Y.Z]"),
        (None, ("[1.10.0] - ", "1.10.0 "), "is not '## [X.Y.Z]"),
        (None, ("### Fixed", "### Mended"), "is not one of"),
        (None, ("### Fixed", "### Added"), "is not one of"),
        (None, ("- Another.\n", ""), "is empty"),
        (None, ("### Removed\n- One.\n", ""), "says nothing"),
        ("1.10.1", ("", ""), "has no section"),
    ):
        found = check(GOOD.replace(*change), version)
        assert any(complaint in each for each in found), (change, found)
    print("each rule was broken once, and found")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        self_test()
        return
    path = pathlib.Path(__file__).resolve().parent.parent / "CHANGELOG.md"
    complaints = check(path.read_text(encoding="utf-8"), options.version)
    for complaint in complaints:
        print(f"CHANGELOG.md: {complaint}", file=sys.stderr)
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
