"""Layers move between nodes while texts are being generated: the text stays what it was, and the readers see a short pause.
MEDLEY_TRANSPORT: tcp or quic."""
import os
import threading
import time

from harness import check, check_equal, run, wait

# Hidden states as they are, so that it does not matter for the text how many of them travel.
OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp"), "--wire", "f32"]
NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat and a dog. " + " ".join(f"There was a {animal} who liked to play with a red ball in the park."
                                             for animal in ("bear", "fox", "duck", "cat", "dog", "bird", "frog"))
# 60 ms for a token, and 10 ms for each token of a prompt: a replay of this prompt is seen.
DEVICE = {"memory": "64MiB", "decode": "40MB/s", "flops": "1GFLOP/s"}
TOKENS = 90


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
        return sorted(after - before for before, after in zip(moments, moments[1:]) if after > since)


def move(world, nodes, wanted, to, name):
    """Moves while each node reads a stream; the longest pause and the usual one, in ms."""
    readers = [Reader(node) for node in nodes]
    wait("all hear something", lambda: all(len(reader.pieces) > 5 or reader.problem for reader in readers), 60)
    began = time.monotonic()
    nodes[0].medley("move", NAME, "--to", to)
    took = time.monotonic() - began
    for reader in readers:
        check_equal(reader.text(), wanted, f"text of {reader.node.name}")
    longest = max(reader.gaps(began)[-1] for reader in readers)
    usual = max(reader.gaps(began)[len(reader.gaps(began)) // 2] for reader in readers)
    world.say(f"{name}: moved in {took:.2f} s, longest pause {1e3 * longest:.0f} ms, a token {1e3 * usual:.0f} ms")
    return longest, usual


def scenario(world):
    with world.step("two nodes, the model on one of them"):
        options = {name: ["--sim", world.sim(name, **DEVICE)] for name in ("laptop", "tower")}
        laptop, tower = nodes = world.cluster("laptop", "tower", all=OPTIONS, **options)
        laptop.medley("place", world.model, "--streams", "2", "-c", "512")
        for node in nodes:
            node.medley("add", world.model)
        wait("tower knows it", lambda: tower.status()["instances"])
        laptop.medley("move", "--off")
        laptop.medley("move", NAME, "--to", "laptop/sim:laptop:5")
    wanted = laptop.chat(PROMPT, model=NAME, max_tokens=TOKENS)
    for to in ("laptop/sim:laptop:3,tower/sim:tower:2", "laptop/sim:laptop:2,tower/sim:tower:3",
               "tower/sim:tower:3,laptop/sim:laptop:2", "laptop/sim:laptop:5"):
        with world.step(f"under load to {to}"):
            move(world, nodes, wanted, to, to)


run(scenario)
