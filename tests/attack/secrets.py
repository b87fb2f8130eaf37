"""What a node leaves for others to find: modes of its files, core files, and how its program was
built. A model file that is cut while it is served."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import stat
import subprocess
import time

from attack import check, check_equal, run, wait



def check_process(pid):
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    core = re.search(r"^Max core file size\s+(\S+)\s+(\S+)", limits, re.MULTILINE)
    check_equal(core.groups(), ("0", "0"), "limits of a core file")


def check_files(folder):
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        check_equal(mode & 0o077, 0, f"what others may do with {path} (mode {mode:04o})")


def check_node(world):
    with world.step("a node's files are its user's alone, and it leaves no core"):
        os.umask(0o022)
        resource.setrlimit(resource.RLIMIT_CORE, (4096, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        node = world.node("a")
        node.start("--new", "--no-discovery")
        wait("its log", lambda: (node.state / "cluster.db-wal").exists())
        check_process(node.process.pid)
        check_files(node.state)
        node.end()


def check_program(world):
    with world.step("the program is built so that a flaw is harder to use"):
        told = subprocess.run(["readelf", "-hldW", "--dyn-syms", world.binary], text=True,
                              capture_output=True, check=True).stdout
        check("GNU_RELRO" in told, "no RELRO")
        check(re.search(r"FLAGS_1.*\bNOW\b", told), "symbols are not bound before it starts")
        check(re.search(r"GNU_STACK.* RW ", told), "the stack can be executed")
        check("__stack_chk_fail" in told, "no stack protector")
        if "asan" not in told:  # with sanitizers, which check more, these do not go together
            check(re.search(r"Type:\s+DYN", told), "not position-independent")
            check("__memcpy_chk" in told, "no _FORTIFY_SOURCE")


def children_of(pid):
    lists = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for path in lists for word in path.read_text().split()]


def post(server, path, **asked):
    asked["model"] = server.ask("GET", "/v1/models").json()["data"][0]["id"]
    body = json.dumps(asked | {"max_tokens": 4})
    lines = (f"Content-Length: {len(body)}", "Content-Type: application/json")
    return server.raw(server.head("POST", path, *lines) + body.encode())


def check_chat(server):
    answer = post(server, "/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}])
    check_equal(answer.status, 200, f"a chat's status: {answer}")


def check_template(world):
    with world.step("a chat template runs in a sandbox; when its process ends, the next one serves"):
        server = world.serve()
        found = children_of(server.process.pid)
        check_equal(len(found), 1, "processes of medley serve")
        status = pathlib.Path(f"/proc/{found[0]}/status").read_text()
        for line in ("Seccomp:\t2", "NoNewPrivs:\t1", "CapPrm:\t0000000000000000"):
            check(line in status, f"{line!r} is not in {status}")
        check_chat(server)
        check_equal(children_of(server.process.pid), found, "its process after a request")
        os.kill(found[0], signal.SIGKILL)
        time.sleep(0.2)
        check_chat(server)
        check(children_of(server.process.pid) not in ([], found), "no other process")
        server.stop()


def check_cut_model(world):
    model = world.folder / "cut.gguf"
    shutil.copy(world.model, model)
    world.model = str(model)
    server = world.serve()
    check_process(server.process.pid)

    def answer():
        return post(server, "/v1/completions", prompt="Once upon a time")

    with world.step("a model file that is cut fails requests with its name, and not the server"):
        check_equal(answer().status, 200, "before")
        os.truncate(model, 64 * 1024)
        for _ in range(2):
            cut = answer()
            check_equal(cut.status, 500, f"after it was cut: {cut}")
            check("cut.gguf was cut" in cut.body.decode(), f"it does not say so: {cut}")
        check_equal(server.status("GET", "/health"), 200, "/health")
        server.stop()


def scenario(world):
    check_program(world)
    check_node(world)
    check_template(world)
    check_cut_model(world)


run(scenario)
