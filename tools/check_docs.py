#!/usr/bin/env python3
"""Checks the documents: every *.md file that git tracks, or could.

1. No line is over 100 columns, but for tables, code blocks and lines that a URL or path makes long.
2. A relative link leads to a file that exists, and to a heading of it where it names one.
3. A path in a code span exists: from the root (`src/base/error.h`), from src (`base/error.h`,
   `base/error`), and on a room's page (docs/rooms/ROOM.md) from that room (`error.h`).
   Spans with a placeholder (NAME, …) are left alone; `*` must match something.
4. `./dev VERB` and `medley COMMAND` exist.
5. Every room of src/FLOORS has a page.

`--self-test` runs the checks against a made-up tree in which each rule is broken once.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

COLUMNS = 100
ROOTS = {"bench", "docs", "examples", "include", "models", "proto", "src", "tests", "tools"}
ENDINGS = r"\.(?:c|h|py|sh|md|ini|json|proto|txt|build|gguf)"
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
DEV = re.compile(r"(?:^|[\s$(`])\./dev ([a-z][a-z-]*)")
MEDLEY = re.compile(r"(?:^\s*(?:[a-z]*\$ +)?|^.*\./dev |`)medley ([a-z][a-z]+)(?=[ `\n]|$)")


def lines_of(text):
    """(number, line, whether it is in a code block)."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            yield number, line, True
        else:
            yield number, line, fenced or (line.startswith("    ") and bool(line.strip()))


def anchors_of(path):
    """The headings of a document, as links name them."""
    found = set()
    for _, line, fenced in lines_of(path.read_text(encoding="utf-8")):
        if line.startswith("#") and not fenced:
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


def is_too_long(line):
    if len(line) <= COLUMNS or line.lstrip().startswith("|"):
        return False
    return not any(len(word) > COLUMNS / 2 and "/" in word for word in line.split())


def check_link(target, path):
    """What is wrong with this link, or None."""
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    file = path.parent / name if name else path
    if not file.exists():
        return f"({target}): there is no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors_of(file):
        return f"({target}): {file.name} has no such heading"
    return None


def rooms_of(root):
    text = (root / "src/FLOORS").read_text()
    return {room for line in text.splitlines() for room in line.split("#")[0].split()}


def exists(folder, name):
    if "*" in name:
        return any(folder.glob(name))
    return (folder / name).exists() or any(folder.glob(name + ".[ch]"))


def check_path(span, path, root, rooms):
    """What is wrong with this code span, if it is a path, or None."""
    if not re.fullmatch(r"[a-z0-9_*-][A-Za-z0-9_.*/-]*", span) or re.search(r"[A-Z]{2}", span):
        return None
    first, slash, _ = span.partition("/")
    if slash and first in ROOTS and (root / first).exists():
        return None if exists(root, span) else f"`{span}`: there is no such path"
    if slash and first in rooms:
        return None if exists(root / "src", span) else f"`{span}`: src has no such path"
    room = path.parent.name == "rooms" and path.stem in rooms and root / "src" / path.stem
    if room and not slash and re.fullmatch(r"[\w*-]+\.[ch]", span):
        return None if exists(room, span) else f"`{span}`: {path.stem} has no such file"
    return None


def words_of(root):
    """The verbs of ./dev and the commands of medley."""
    cases = re.findall(r"^ {2}([a-z][a-z |-]*)\)", (root / "dev").read_text(), re.MULTILINE)
    verbs = set(re.findall(r"[a-z][a-z-]+", " ".join(cases)))
    main = (root / "src/cli/main.c").read_text()
    return verbs, set(re.findall(r"&command_([a-z]+)", main)) | {"help"}


def check_words(line, fenced, verbs, commands):
    for part in [line] if fenced else ["`" + span for span in SPAN.findall(line)]:
        for verb in DEV.findall(part):
            if verb not in verbs:
                yield f"./dev has no verb '{verb}'"
        for command in MEDLEY.findall(part):
            if command not in commands:
                yield f"medley has no command '{command}'"


def check_document(path, root, rooms, verbs, commands):
    for number, line, fenced in lines_of(path.read_text(encoding="utf-8")):
        where = f"{path.relative_to(root)}:{number}"
        complaints = list(check_words(line, fenced, verbs, commands))
        if not fenced:
            if is_too_long(line):
                complaints.append(f"{len(line)} columns; {COLUMNS} are enough")
            complaints += [check_link(target, path) for target in LINK.findall(SPAN.sub("", line))]
            spans = SPAN.findall(line)
            complaints += [check_path(span, path, root, rooms) for span in spans]
        for complaint in filter(None, complaints):
            yield f"{where}: {complaint}"


def check(root, documents):
    """The list of complaints about these documents of the tree below root."""
    rooms = rooms_of(root)
    verbs, commands = words_of(root)
    complaints = []
    for path in documents:
        complaints += check_document(path, root, rooms, verbs, commands)
    for room in sorted(rooms):
        if not (root / f"docs/rooms/{room}.md").exists():
            complaints.append(f"docs/rooms/{room}.md: there is no such page")
    return complaints


def documents_of(root):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
        found = [root / name for name in names.split("\n") if name]
    except (OSError, subprocess.CalledProcessError):  # an archive without git
        found = [path for path in root.rglob("*.md") if "node_modules" not in path.parts]
    return sorted(path for path in found if path.exists())


def self_test():
    good = (
        "# The good\n\n" + "| " + "x" * 120 + " |\n\n```\n" + "y" * 120 + "\n./dev build\n```\n"
        "[itself](#the-good), [the other](rooms/base.md), `base/error.h`, `base/error`, `build/x/y.c`,\n"
        "`./dev build`, `medley run`, `src/base/*.h`, `tests/unit/test_NAME.c`\n"
        "https://example.org/" + "z" * 120 + "\n"
    )
    files = {
        "dev": "case $verb in\n  build | test)\n",
        "src/FLOORS": "base # the ground\ngpu\n",
        "src/base/error.h": "",
        "src/cli/main.c": "&command_run,\n",
        "docs/good.md": good,
        "docs/rooms/base.md": "`error.h`\n",
        "docs/1.md": "w " * 60 + "\n",
        "docs/2.md": "[gone](gone.md)\n",
        "docs/3.md": "[heading](good.md#the-bad)\n",
        "docs/4.md": "`src/base/mistake.h`\n",
        "docs/5.md": "`base/mistake`\n",
        "docs/6.md": "```\n./dev biuld\n```\n",
        "docs/7.md": "`medley urn MODEL`\n",
        "docs/8.md": "`src/base/*.cpp`\n",
    }  # and docs/rooms/gpu.md is not there
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        complaints = check(root, sorted(root.rglob("*.md")))
    found = [complaint.split(":")[0] for complaint in complaints]
    expected = [f"docs/{n}.md" for n in range(1, 9)] + ["docs/rooms/gpu.md"]
    if found != expected:
        sys.exit("expected complaints about\n  " + "\n  ".join(expected) + "\ngot\n  " +
                 "\n  ".join(complaints))
    print(f"{len(found)} broken documents were found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    root = pathlib.Path(__file__).resolve().parent.parent
    complaints = check(root, documents_of(root))
    print("\n".join(complaints) if complaints else "every document is in order")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
