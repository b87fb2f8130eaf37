"""Layers move between nodes while texts are being generated: the texts stay what they were, nothing
is computed again, and the readers see a short pause. MEDLEY_TRANSPORT: tcp or quic.
MEDLEY_IN_PROCESS: a node whose devices compute in its own process; the others' have processes of
their own."""
import os
import signal
import threading
import time

from harness import check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat and a dog. " + " ".join(
    f"There was a {animal} who liked to play with a red ball in the park."
    for animal in ("bear", "fox", "duck", "cat", "dog", "bird", "frog")
)
# 60 ms for a token, and 10 ms for each token of a prompt: a replay of this prompt is seen.
DEVICE = {"memory": "64MiB", "decode": "40MB/s", "flops": "1GFLOP/s"}
TOKENS = 60


class Reader(threading.Thread):
    """Reads a stream of a node's API in the background."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node, self.pieces, self.problem = node, [], None
        self.start()

    def run(self):
        try:
            for _, piece in self.node.stream(PROMPT, model=NAME, max_tokens=TOKENS):
                self.pieces.append((time.monotonic(), piece))
        except Exception as problem:  # noqa: BLE001 (it is the scenario's to judge)
            self.problem = problem

    def text(self):
        self.join()
        check(not self.problem, f"{self.node.name}: {self.problem!r}")
        return "".join(piece for _, piece in self.pieces)

    def gaps(self, since=0):
        moments = [moment for moment, _ in self.pieces]
        return sorted(
            after - before for before, after in zip(moments, moments[1:]) if after > since
        )


def pauses(world, readers, wanted, name, since):
    """Texts as they should be; says the longest pause and the usual one."""
    for reader in readers:
        check_equal(reader.text(), wanted, f"text of {reader.node.name}")
    longest = max(reader.gaps(since)[-1] for reader in readers)
    usual = max(reader.gaps(since)[len(reader.gaps(since)) // 2] for reader in readers)
    world.say(f"{name}: longest pause {1e3 * longest:.0f} ms, a token {1e3 * usual:.0f} ms")


def read_all(nodes):
    readers = [Reader(node) for node in nodes]
    wait(
        "all hear something",
        lambda: all(len(reader.pieces) > 5 or reader.problem for reader in readers),
        60,
    )
    return readers


def taken_over(nodes):
    return sum(node.log_text().count("has taken over 2 caches") for node in nodes)


def move(world, nodes, wanted, name, *command):
    """Moves while two nodes read a stream each: nothing is computed again."""
    readers, before, began = read_all(nodes), taken_over(world.nodes), time.monotonic()
    nodes[0].medley(*command)
    pauses(world, readers, wanted, name, began)
    check_equal(taken_over(world.nodes) - before, 1, "drivers that have taken over both caches")


def kill_device(world, nodes, wanted, to):
    """The process that has the caches dies while they are handed over, or just before or after."""
    readers, before = read_all(nodes), nodes[0].log_text().count(" caches, ")
    child = nodes[0].children()
    check_equal(len(child), 1, "processes of a node with one device")
    nodes[0].medley("move", NAME, "--to", to)
    wait("the caches are handed over", lambda: nodes[0].log_text().count(" caches, ") > before)
    os.kill(child[0], signal.SIGKILL)
    pauses(world, readers, wanted, "a device's process is killed", 0)
    check(nodes[0].is_running(), "the node itself does not run any more")


def kill(world, nodes, wanted):
    """The node with half of the layers: the others compute the texts anew up to where they were."""
    readers, began = read_all(nodes[:2]), time.time()
    killed, killed_at = (
        time.monotonic(),
        time.strftime("%H:%M:%S", time.gmtime(began)) + f"{began % 1:.3f}"[1:],
    )
    nodes[2].kill()
    pauses(world, readers, wanted, f"killed at {killed_at}", killed)
    for node in nodes[:2]:
        lines = [
            line
            for line in node.log_text().splitlines()
            if line[2:3] == ":"
            and line[:12] >= killed_at
            and any(word in line for word in ("link to", "engine", "hosting"))
        ]
        world.say("\n".join(f"{node.name} {line}" for line in lines[:12]))


def scenario(world):
    with world.step("three nodes, the model on one of them"):
        in_process = os.environ.get("MEDLEY_IN_PROCESS")
        options = {
            name: [
                "--sim",
                world.sim(name, **DEVICE),
                *(["--in-process"] if name == in_process else []),
            ]
            for name in ("laptop", "tower", "attic")
        }
        laptop, tower, attic = nodes = world.cluster(
            "laptop", "tower", "attic", all=OPTIONS, **options
        )
        laptop.medley("place", world.model, "--streams", "2", "-c", "512")
        for node in nodes:
            node.medley("add", world.model)
            wait(f"{node.name} knows it", lambda node=node: node.status()["instances"])
        laptop.medley("move", "--off")
        laptop.medley("move", NAME, "--to", "laptop/sim:laptop:5")
    wanted = laptop.chat(PROMPT, model=NAME, max_tokens=TOKENS)
    for to in ("laptop/sim:laptop:3,tower/sim:tower:2", "tower/sim:tower:2,laptop/sim:laptop:3"):
        with world.step(f"half of the layers move under load: to {to}"):
            move(world, [laptop, tower], wanted, to, "move", NAME, "--to", to)
    with world.step("a node is drained under load"):
        move(world, [laptop, tower], wanted, "drained", "drain", "laptop")
        laptop.medley("drain", "laptop", "--undo")
    with world.step("layers move, and the process of the device that has them is killed"):
        laptop.medley("move", NAME, "--to", "laptop/sim:laptop:5")
        kill_device(world, [laptop, tower], wanted, "tower/sim:tower:2,laptop/sim:laptop:3")
    with world.step("half of the layers move, and the node that has them is killed"):
        laptop.medley("move", NAME, "--to", "laptop/sim:laptop:3,attic/sim:attic:2")
        kill(world, nodes, wanted)


run(scenario)
