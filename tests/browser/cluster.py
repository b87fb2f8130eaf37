"""A page's test against real nodes in network namespaces (tests/cluster/harness.py): the test is a
file for node's runner, and it and its browser are on the same switch, in a namespace of their own.

    cluster.py NODE FILE.test.mjs

The test steers the nodes through a socket in MEDLEY_WORLD (cluster.mjs): a line of JSON with a node's
name, one of its methods and the arguments; a line with what it returned. The status is the test's;
77 where namespaces are not allowed. At the end every node that still runs must end in order."""
import functools
import json
import os
import pathlib
import socket
import subprocess
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))

from harness import API_PORT, Failure, Result, World, die_with_parent, wait  # noqa: E402
from namespaces import NotAllowed, enter_namespaces, ip  # noqa: E402

SKIPPED = 77


class Stage(World):
    """The nodes, and the machine that looks at them."""

    governed = True

    def __init__(self):
        super().__init__()
        self.viewer = self.network(99)
        with self.viewer.inside():
            # An IPv6 address that comes a second later ends what Chromium is loading.
            ip("link", "set", "cable", "addrgenmode", "none")
            ip("-6", "address", "flush", "dev", "cable")
        self.joining = {}

    def named(self, name):
        return next(node for node in self.nodes if node.name == name)

    def starts(self, name, keys, *options):
        """A node whose page the viewer may open without a token: its address."""
        node = self.node(name)
        sim = self.sim(name, **keys)
        node.start("--sim", sim, "--api", f"{node.address}:{API_PORT}", "--open", *options)
        wait(f"{name} listens to commands", node.status)
        return f"https://{node.address}:{API_PORT}"

    def founds(self, name, keys, *options):
        url = self.starts(name, keys, "--new", *options)
        wait(f"{name} founds a cluster", lambda: self.named(name).leader() == name)
        return url

    def joins(self, name, keys, by):
        """One more node of the cluster of `by`."""
        inviter = self.named(by)
        url = self.starts(name, keys, "--peer", inviter.address)
        self.named(name).medley("join", inviter.invite(), inviter.address)
        wait(f"{by} sees {name}", lambda: (inviter.nodes() or {}).get(name) == "up")
        return url

    def knocks(self, name, at):
        """`medley join` at a terminal of a machine that has no code: the words that it shows."""
        self.joining[name] = self.named(name).answering("join", self.named(at).address)
        return self.joining[name].question()

    def agrees(self, name):
        self.joining[name].say("y")
        return self.joining.pop(name).result().code

    def carries(self, there):
        """Whether the switch carries the viewer's packets; its cable stays plugged in, so that
        neither end is told."""
        where = ["master", "switch"] if there else ["nomaster"]
        ip("link", "set", self.viewer.port, *where)


def answer(world, line):
    asked = json.loads(line)
    on = world.named(asked["node"]) if asked.get("node") else world
    try:
        found = getattr(on, asked["do"])(*asked["args"])
    except (Failure, OSError, StopIteration) as problem:
        return {"error": str(problem) or repr(problem)}
    if isinstance(found, Result):
        found = {"code": found.code, "out": found.out, "err": found.err}
    plain = found is None or isinstance(found, (str, int, float, bool, dict, list))
    return {"value": found if plain else None}


def serve(world, test, listener):
    """Until the test has ended: its one connection."""
    listener.settimeout(0.2)
    while test.poll() is None:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        connection.setblocking(True)
        with connection, connection.makefile("rw") as lines:
            for line in lines:
                lines.write(json.dumps(answer(world, line)) + "\n")
                lines.flush()
    return test.returncode


def run_test(world, words):
    path = str(world.folder / "world.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    with world.viewer.inside():
        test = subprocess.Popen(
            [words[0], "--test", *words[1:]],
            env=os.environ | {"MEDLEY_WORLD": path},
            preexec_fn=functools.partial(die_with_parent),
        )
    return serve(world, test, listener)


def main():
    try:
        enter_namespaces()
        world = Stage()
    except (NotAllowed, OSError) as problem:
        print(f"skipped: {problem}")
        return SKIPPED
    status = 1
    try:
        status = run_test(world, sys.argv[1:])
        world.check_running()
        world.close()
    except BaseException:  # noqa: BLE001 (the logs are shown whatever it was)
        status = 1
        traceback.print_exc()
    if status:
        world.show_logs()
    world.clear()
    return status


sys.exit(main())
