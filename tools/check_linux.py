#!/usr/bin/env python3
"""Checks where src/ relies on Linux: its own headers, and paths in /proc and /sys.

A file named *_linux.c or *_linux.h may; any other must be in REMAINS below with exactly what it
uses. So the list only shrinks: a new use goes into a file named so, behind a header that any system
can have, and what a file no longer uses leaves the list.

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
USE = re.compile(rf'#\s*include\s*<({HEADERS})>|"/(proc|sys)/')
COMMENT = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')|/\*.*?\*/""", re.DOTALL  # strings stay
)
REMAINS = {
    "api/server.c": "/proc",
    "cli/convert.c": "/proc",
    "cli/devices.c": "/proc",
    "cli/doctor.c": "/proc",
    "cli/doctor_hardware.c": "/proc",
    "cli/main.c": "/proc",
    "cli/plan_here.c": "/proc",
    "cli/remote.c": "sys/eventfd.h",
    "cli/remote_read.c": "sys/eventfd.h",
    "cli/serve.c": "/proc",
    "cli/service.c": "/proc",
    "cli/session.c": "/proc",
    "cli/top.c": "/proc",
    "cli/up.c": "/proc",
    "engine/weight_disk.c": "/proc",
    "gpu/cpu_runtime.c": "/proc",
    "gpu/device_ggml_describe.c": "/sys",
    "gpu/host.c": "/proc /sys",
    "gpu/plugins.c": "/proc",
    "gpu/probe_child.c": "/proc sys/prctl.h",
    "gpu/registry.c": "/sys",
    "hub/pull_disk.c": "/proc",
    "mesh/tcp_packets.c": "linux/tcp.h",
    "node/lend_load.c": "/proc",
    "pipeline/child_main.c": "/proc sys/prctl.h",
    "pipeline/children.c": "/proc sys/eventfd.h",
    "pipeline/ring.c": "linux/futex.h",
    "precision/output_file.c": "/proc",
    "precision/trial_file.c": "/proc",
    "sandbox/sandbox_calls.c": "seccomp.h sys/prctl.h",
    "sandbox/sandbox_landlock.c": "/proc linux/landlock.h",
    "sandbox/sandbox_rules.c": "/proc /sys",
    "sensors/rapl.c": "/sys",
    "sensors/thermal_zone.c": "/sys",
    "trust/credentials.c": "sys/auxv.h",
}


def used(text):
    """What of Linux a file's text uses: headers, "/proc", "/sys"."""
    text = COMMENT.sub(r"\1", text)
    return {match[1] or "/" + match[2] for match in USE.finditer(text)}


def check(root, remains):
    """The list of complaints about the tree below root."""
    complaints = []
    for path in sorted((root / "src").rglob("*.[ch]")):
        where = path.relative_to(root / "src").as_posix()
        uses = set() if path.stem.endswith("_linux") else used(path.read_text(encoding="utf-8"))
        listed = set(remains.get(where, "").split())
        for use in sorted(uses - listed):
            complaints.append(f"src/{where}: {use} is Linux's: write it in a file *_linux.c")
        for use in sorted(listed - uses):
            complaints.append(f"src/{where}: {use} is not used: tools/check_linux.py lists it")
    for where in sorted(remains):
        if not (root / "src" / where).exists():
            complaints.append(f"src/{where}: does not exist: tools/check_linux.py lists it")
    return complaints


def self_test():
    files = {
        "a/header.c": "#include <sys/epoll.h>\n",
        "b/path.c": 'open("/proc/self/exe");\n',
        "c/left.c": "/* no more */\n",
        "d/good_linux.c": "#include <linux/futex.h>\n",
        "e/good.c": '/* "/proc/self" */\n#include <sys/stat.h>\n',
        "f/listed.c": "#  include <sys/prctl.h>\n",
    }
    remains = {"c/left.c": "/sys", "f/listed.c": "sys/prctl.h", "g/gone.c": "/proc"}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, "src", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        complaints = check(pathlib.Path(folder), remains)
    found = [complaint.split(":")[0] for complaint in complaints]
    expected = ["src/a/header.c", "src/b/path.c", "src/c/left.c", "src/g/gone.c"]
    if found != expected:
        sys.exit(f"expected complaints about {expected}, got\n  " + "\n  ".join(complaints))
    print(f"{len(found)} broken files were found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    complaints = check(pathlib.Path(__file__).resolve().parent.parent, REMAINS)
    print("\n".join(complaints) if complaints else f"Linux alone: {len(REMAINS)} files remain")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
