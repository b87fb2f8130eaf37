#!/usr/bin/env python3
"""tools/version.sh in a repository of its own: tagged, after a tag, before one, changed, archived,
copied without git, and told."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAID = [0]


def run(*words, cwd, more=None):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("GIT_", "MEDLEY_"))}
    mine = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    for who in ("AUTHOR", "COMMITTER"):
        mine |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@example.org"}
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True,
                          env=kept | mine | (more or {})).stdout.strip()


def says(tree, pattern, what, more=None):
    found = run("tools/version.sh", cwd=tree, more=more)
    if not re.fullmatch(pattern, found):
        raise SystemExit(f"version.py: {what}: '{found}', not {pattern}")
    SAID[0] += 1
    print(f"ok {SAID[0]} - {what}: {found}")


def commit(tree, name):
    (tree / name).write_text(name)
    run("git", "add", ".", cwd=tree)
    run("git", "commit", "-q", "-m", name, cwd=tree)


def archived(tree, folder):
    folder.mkdir()
    run("sh", "-c", 'git archive HEAD | tar -x -C "$0"', folder, cwd=tree)
    return folder


def main(work):
    print("1..10")
    tree = work / "tree"
    (tree / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools/version.sh", tree / "tools")
    shutil.copy(ROOT / ".gitattributes", tree)
    says(tree, r"0\.0\.0\+unknown", "without git")
    says(tree, r"4\.5\.6", "told", {"MEDLEY_VERSION": "4.5.6"})
    run("git", "init", "-q", cwd=tree)
    commit(tree, "one")
    commit(tree, "two")
    says(tree, r"0\.0\.0\+2\.g[0-9a-f]+", "before the first tag")
    says(archived(tree, work / "early"), r"0\.0\.0\+g[0-9a-f]+", "an archive of that")
    run("git", "tag", "v1.2.3", cwd=tree)
    run("git", "tag", "other", cwd=tree)
    says(tree, r"1\.2\.3", "at a tag")
    (tree / "one").write_text("changed")
    says(tree, r"1\.2\.3\+dirty", "changed")
    run("git", "checkout", "-q", "one", cwd=tree)
    commit(tree, "three")
    says(tree, r"1\.2\.3\+1\.g[0-9a-f]+", "after a tag")
    says(archived(tree, work / "late"), r"1\.2\.3\+1\.g[0-9a-f]+", "an archive of that")
    (tree / "new").write_text("")
    says(tree, r"1\.2\.3\+1\.g[0-9a-f]+", "a file that git does not track is no change")
    (tree / "inner/tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools/version.sh", tree / "inner/tools")
    says(tree / "inner", r"0\.0\.0\+unknown", "without git of its own, inside another tree")


with tempfile.TemporaryDirectory() as folder:
    main(pathlib.Path(folder).resolve())
