#!/usr/bin/env python3
"""An image in OCI's form, unpacked and started with crun: image.py ARCHIVE FOLDER, as root, in
namespaces of its own of network and mounts. Its API must answer, and generate."""
import ctypes
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

ARCHIVE, FOLDER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
MODEL = "/opt/medley/share/medley/demo.gguf"


def check(what, is_so, more=""):
    if not is_so:
        raise SystemExit(f"FAILED: {what} {more}")
    print(f"ok  {what}", flush=True)


def blob(entry):
    """A part of the image; its digest is checked."""
    kind, digest = entry["digest"].split(":")
    path = FOLDER / "image/blobs" / kind / digest
    if hashlib.new(kind, path.read_bytes()).hexdigest() != digest:
        raise SystemExit(f"FAILED: {path} is not what its name says")
    return path


def unpack():
    """The image's settings; its files are in FOLDER/rootfs."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(FOLDER / "image", filter="data")
    index = json.loads((FOLDER / "image/index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]).read_text())
    for layer in manifest["layers"]:
        with tarfile.open(blob(layer)) as tar:
            tar.extractall(FOLDER / "rootfs", numeric_owner=True, filter="fully_trusted")
    return json.loads(blob(manifest["config"]).read_text())


def runtime(config, words):
    """OCI's settings for the runtime: what the image says, and no right that it does not need."""
    uid, gid = map(int, config["User"].split(":"))
    state = FOLDER / "state"
    state.mkdir()
    os.chown(state, uid, gid)

    def mount(where, kind, source, *options):
        return {"destination": where, "type": kind, "source": str(source), "options": options}
    return {
        "ociVersion": "1.0.2",
        "process": {"args": config["Entrypoint"] + words, "env": config["Env"],
                    "cwd": config["WorkingDir"], "user": {"uid": uid, "gid": gid},
                    "noNewPrivileges": True, "capabilities": {}},
        "root": {"path": str(FOLDER / "rootfs"), "readonly": True},
        "mounts": [mount("/proc", "proc", "proc"),
                   mount("/dev", "tmpfs", "tmpfs", "nosuid", "mode=755"),
                   mount("/dev/shm", "tmpfs", "shm", "nosuid", "nodev", "mode=1777"),
                   mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777"),
                   mount("/sys", "bind", "/sys", "rbind", "ro"),
                   mount("/var/lib/medley", "bind", state, "bind", "rw")],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }


def ask(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    connection.request(method, path, body and json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or "null")


def models(process):
    """Their names, when it has one."""
    for _ in range(600):
        check_runs(process)
        try:
            found = [model["id"] for model in ask("GET", "/v1/models")[1]["data"]]
            if found:
                return found
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("FAILED: it has no model after 60 s")


def check_runs(process):
    if process.poll() is not None:
        raise SystemExit(f"FAILED: it ended by itself, with {process.returncode}")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # crun refuses a machine that shows control groups of both versions, though it makes none here.
    if ctypes.CDLL(None).mount(b"none", b"/sys/fs/cgroup", b"cgroup2", ctypes.c_ulong(0), None):
        raise SystemExit("FAILED: no control groups of version 2 can be mounted here")
    config = unpack()["config"]
    check(f"its user is {config['User']}, not root", config["User"].split(":")[0] not in ("", "0"))
    check("it has no shell", not (FOLDER / "rootfs/usr/bin/sh").exists())
    (FOLDER / "config.json").write_text(json.dumps(
        runtime(config, [*config["Cmd"], "--no-discovery", "--model", MODEL])))
    process = subprocess.Popen(
        ["crun", "--root", FOLDER / "crun", "--cgroup-manager=disabled", "run", "--bundle", FOLDER,
         "medley-image"], stdin=subprocess.DEVNULL)
    try:
        begin = time.monotonic()
        name = models(process)[0]
        status, answer = ask("POST", "/v1/completions",
                             {"model": name, "prompt": "A fox", "max_tokens": 8})
        check(f"it generates, {time.monotonic() - begin:.1f} s after its start",
              status == 200 and answer["usage"]["completion_tokens"] == 8, str(answer))
    finally:
        process.terminate()  # crun passes it on
        code = process.wait(30)
    check("it ends on SIGTERM, in order", code == 0, f"with {code}")
    shutil.rmtree(FOLDER)


main()
