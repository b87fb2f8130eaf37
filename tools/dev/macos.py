#!/usr/bin/env python3
"""Compiles the sources of build/release for macOS as far as that goes without Apple's headers:
macos.py BUILD MUSL WORK [FILE...], a FILE by its path in src; without one all.

Clang compiles each file of src/ that BUILD/compile_commands.json names for the target
x86_64-apple-macos13, so with __APPLE__ and without __linux__. The C library's headers are musl's
(MUSL, a folder), which are POSIX' and little more, without those that Linux alone has; the
libraries' are Debian's. WORK becomes two folders of headers. Nothing is linked and nothing runs,
and what Apple's headers lack that musl's have is not seen.

Prints the first error of each file that does not compile. Files *_linux.c may not; any other must
be in NOT_YET.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import musl  # noqa: E402

# Files that need other headers than these: {path in src: whose}. It can only shrink.
NOT_YET = {"sensors/macos.c": "Apple's own"}

LINUX_ALONE = re.compile(
    r"(auxv|epoll|eventfd|fanotify|inotify|prctl|signalfd|sysinfo|timerfd|vfs|personality|sendfile"
    r"|capability|fsuid|io|kd|klog|quota|reboot|soundcard|swap|vt)\.h")
LINUX_FOLDERS = ("linux", "asm", "asm-generic", "scsi", "netpacket")
# What libuv's and libwebsockets' headers ask of macOS: types that stand in none of ours.
STUBS = {
    "mach/mach.h": "typedef unsigned semaphore_t, mach_port_t;\n",
    "mach/task.h": "",
    "mach/semaphore.h": "",
    "mach-o/dyld.h": "",
    "TargetConditionals.h": "#define TARGET_OS_IPHONE 0\n#define TARGET_OS_OSX 1\n",
    "AvailabilityMacros.h": "",
    "sys/capability.h": "typedef int cap_value_t;\n",
}


def make_headers(musl_headers, work):
    """The C library's and the libraries', two folders."""
    libc, libraries = work / "libc", work / "libraries"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    shutil.copytree(musl_headers, libc, symlinks=False)
    for folder in LINUX_FOLDERS:
        shutil.rmtree(libc / folder, ignore_errors=True)
    for path in (libc / "sys").iterdir():
        if LINUX_ALONE.fullmatch(path.name):
            path.unlink()
    musl.PATTERNS = [pattern for pattern in musl.PATTERNS
                     if pattern not in (*LINUX_FOLDERS, "seccomp*.h")]
    musl.link_headers(libraries)
    (libraries / "sys/capability.h").unlink()
    for name, text in STUBS.items():
        path = libraries / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return libc, libraries


def compile_one(entry, libc, libraries):
    words = [word for word in musl.command_of(entry, libraries)[1:] if word != "-fno-plt"]
    done = subprocess.run(
        ["clang", "--target=x86_64-apple-macos13", "-nostdlibinc", "-Qunused-arguments",
         "-Wno-everything", "-isystem", str(libc), *words],
        cwd=entry["directory"], capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    return None if done.returncode == 0 else (errors or done.stderr.splitlines() or ["?"])[0]


def may_use_linux(path):
    return path.endswith("_linux.c")


def main():
    build, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[3]).resolve()
    source = build.resolve().parents[1] / "src"
    libc, libraries = make_headers(pathlib.Path(sys.argv[2]), work)
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        name = path.is_relative_to(source) and path.relative_to(source).as_posix()
        if name and name in (sys.argv[4:] or [name]):
            entries.setdefault(name, entry)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = dict(zip(entries, pool.map(
            lambda entry: compile_one(entry, libc, libraries), entries.values())))
    failed = {path for path, error in said.items() if error}
    linux = {path for path in failed if may_use_linux(path)}
    for path in sorted(failed):
        kind = "Linux' own" if path in linux else NOT_YET.get(path, "NEW")
        print(f"{path}: {said[path]}   ({kind})")
    for path in sorted(set(NOT_YET) & set(said) - failed):
        print(f"{path} compiles, or is gone: take it out of NOT_YET in tools/dev/macos.py")
    print(f"macOS: {len(said) - len(failed)} of {len(said)} files compile; {len(linux)} more may "
          "use Linux' headers")
    return failed - linux != set(NOT_YET) & set(said) or not said


if __name__ == "__main__":
    sys.exit(main())
