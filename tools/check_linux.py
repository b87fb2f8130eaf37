#!/usr/bin/env python3
"""Checks where src/ relies on Linux: its own headers, and paths in /proc and /sys.

Only files named *_linux.c or *_linux.h may, behind a header that any system can have.

`--self-test` runs the check against a made-up tree in which each rule is broken once.
"""
import pathlib
import re
import sys
import tempfile

HEADERS = (
    r"linux/[^>]+|sys/(?:auxv|epoll|eventfd|fanotify|inotify|prctl|signalfd|sysinfo|timerfd|vfs)\.h"
    r"|seccomp\.h"
)
USE = re.compile(rf'#\s*include\s*<({HEADERS})>|"/?(proc|sys)/')
COMMENT = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')|/\*.*?\*/""", re.DOTALL  # strings stay
)


def used(text):
    """What of Linux a file's text uses: headers, "/proc", "/sys"."""
    text = COMMENT.sub(r"\1", text)
    return {match[1] or "/" + match[2] for match in USE.finditer(text)}


def check(root):
    """The list of complaints about the tree below root."""
    return [
        f"src/{path.relative_to(root / 'src').as_posix()}: {use} is Linux's: "
        "write it in a file *_linux.c"
        for path in sorted((root / "src").rglob("*.[ch]"))
        if not path.stem.endswith("_linux")
        for use in sorted(used(path.read_text(encoding="utf-8")))
    ]


def self_test():
    files = {
        "a/header.c": "#include <sys/epoll.h>\n",
        "b/path.c": 'open("/proc/self/exe");\n',
        "c/below_a_root.c": 'sysfs_text(fs, text, size, "sys/class/hwmon");\n',
        "d/good_linux.c": "#include <linux/futex.h>\n",
        "e/good.c": '/* "/proc/self" */\n#include <sys/stat.h>\n',
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, "src", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        complaints = check(pathlib.Path(folder))
    found = [complaint.split(":")[0] for complaint in complaints]
    expected = ["src/a/header.c", "src/b/path.c", "src/c/below_a_root.c"]
    if found != expected:
        sys.exit(f"expected complaints about {expected}, got\n  " + "\n  ".join(complaints))
    print(f"{len(found)} broken files were found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    complaints = check(pathlib.Path(__file__).resolve().parent.parent)
    print("\n".join(complaints) if complaints else "all that is Linux alone is in files named so")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
