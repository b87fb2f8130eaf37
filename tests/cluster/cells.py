"""Streams share KV cache cells over machines: there are more of them than the memory holds whole
contexts, some are parked on the way, a machine is killed in mid-reply, and all texts are those of
streams that share nothing."""
import http.client
import threading

from harness import check, check_equal, run, wait
from live_view import LiveView

NAME = "Medley Stories"
CONTEXT, CELLS = 512, 1024
SHARED = " ".join(
    f"There was a {animal} who liked to play with a red ball in the park."
    for animal in ("bear", "fox", "duck", "cat", "dog", "bird", "frog", "mouse")
)
PROMPTS = [f"{SHARED} Tell me a story about {what}." for what in
           ("a cat", "a dog", "the sea", "a tree", "my house", "a ship")]
TOKENS = 160
DEVICE = {"memory": "64MiB", "decode": "400MB/s"}


class Reader(threading.Thread):
    """Reads a stream of a node's API in the background."""

    def __init__(self, node, prompt):
        super().__init__(daemon=True)
        self.node, self.prompt, self.pieces, self.problem = node, prompt, [], None
        self.start()

    def run(self):
        try:
            for _, piece in self.node.stream(self.prompt, model=NAME, max_tokens=TOKENS):
                self.pieces.append(piece)
        except Exception as problem:  # noqa: BLE001 (it is the scenario's to judge)
            self.problem = problem

    def text(self):
        self.join()
        check(not self.problem, f"{self.node.name}: {self.problem!r}")
        return "".join(self.pieces)


def metric(node, name):
    """Of the node that has the driver."""
    connection = http.client.HTTPConnection("127.0.0.1")
    connection.sock = node.connect()
    try:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    finally:
        connection.close()
    values = [line.split()[-1] for line in page.splitlines() if line.startswith(name + "{")]
    check_equal(len(values), 1, f"lines of {name}")
    return float(values[0])


def instance(node):
    return node.status()["instances"][0]


def read_all(world, nodes, wanted, what, meanwhile=None):
    readers = [
        Reader(nodes[i % len(nodes)], prompt) for i, prompt in enumerate(PROMPTS)
    ]
    wait(
        "some hear something",
        lambda: sum(len(reader.pieces) > 10 for reader in readers) > 2
        or any(reader.problem for reader in readers),
        60,
    )
    if meanwhile:
        meanwhile()
    for reader in readers:
        check_equal(reader.text(), wanted[reader.prompt], f"{what}: text of {reader.node.name}")


def move_under_load(world, nodes, to):
    """Whose attention is another computes in other bits, so texts are whole, but not compared."""
    readers = [Reader(nodes[i % 2], prompt) for i, prompt in enumerate(PROMPTS)]
    wait("some hear something", lambda: sum(len(r.pieces) > 5 for r in readers) > 1, 60)
    nodes[0].medley("move", NAME, "--to", to)
    for reader in readers:
        reader.text()
        check(len(reader.pieces) > TOKENS // 2, f"a text of {len(reader.pieces)} pieces")
    return instance(nodes[0])


def scenario(world):
    with world.step("three nodes; nobody says how many streams: more, in the memory of four"):
        options = {
            name: ["--sim", world.sim(name, **DEVICE)] for name in ("laptop", "tower", "attic")
        }
        options["card"] = ["--sim", world.sim("card", **DEVICE, cannot="cells")]
        nodes = world.cluster("laptop", "tower", "attic", "card", **options)
        laptop, tower, attic, card = nodes
        laptop.medley("drain", "card")
        ready = laptop.json("place", world.model, "-c", str(CONTEXT))["ready"]
        check_equal((ready["streams"], ready["cells"]), (16, 4 * CONTEXT), "streams and cells")
        said = laptop.medley("status").out
        check(f"16 streams share {4 * CONTEXT} tokens of context" in said, said)
        ready = laptop.json("place", NAME, "-c", str(CONTEXT), "--streams", "1")["ready"]
        check_equal((ready["streams"], ready.get("cells")), (1, None), "streams and cells")
        wanted = {
            prompt: laptop.chat(prompt, model=NAME, max_tokens=TOKENS) for prompt in PROMPTS
        }

    with world.step("more cells than one context, fewer than all: over two machines"):
        result = laptop.medley(
            "place", NAME, "-c", str(CONTEXT), "--cells", str(CONTEXT - 256), ok=False
        )
        check("more --cells" in result.err, result.err)
        laptop.medley("place", NAME, "-c", str(CONTEXT), "--streams", "6", "--cells", str(CELLS))
        laptop.medley("move", "--off")
        laptop.medley("move", NAME, "--to", "laptop/sim:laptop:3,attic/sim:attic:2")
        found = instance(tower)
        check_equal((found["streams"], found["cells"]), (6, CELLS), "streams and cells")
        for _ in range(5):  # what is likely to be needed is little now, so many begin at once
            laptop.chat("Hello", model=NAME, max_tokens=2)

    with world.step("six streams in the cells of two contexts"):
        read_all(world, [laptop, tower], wanted, "shared")
        parked = metric(laptop, "medley_slots_parked_total")
        world.say(f"{parked:.0f} streams were parked on the way")
        check(parked > 0, "no stream had to give its cells to others")
        cells = [metric(laptop, f"medley_cells_{what}") for what in ("used", "free")]
        check(cells[0] > 0 and sum(cells) == CELLS, f"cells used and free: {cells}")
        check_equal(instance(laptop)["cells_free"], cells[1], "free cells in the status")
        live = LiveView(tower)
        live.wait("cells", lambda live: live.view["instances"][NAME].get("cells_free") == cells[1])
        check_equal(instance(tower)["cells_free"], cells[1], "what another node tells")
        live.close()

    with world.step("layers move under load: what fits goes along"):
        read_all(
            world, [laptop, tower], wanted, "moved",
            lambda: laptop.medley(
                "move", NAME, "--to", "attic/sim:attic:2,laptop/sim:laptop:3"
            ),
        )
        check_equal(instance(tower)["cells"], CELLS, "cells after a move")

    with world.step("onto a device that cannot share, and back"):
        laptop.medley("drain", "card", "--undo")
        found = move_under_load(world, nodes, "laptop/sim:laptop:3,card/sim:card:2")
        check_equal(
            (found["streams"], found["cells"], found["apart"]),
            (CELLS // CONTEXT, 0, "sim:card of card"),
            "streams, cells, and who cannot share",
        )
        found = move_under_load(world, nodes, "laptop/sim:laptop:3,attic/sim:attic:2")
        check_equal((found["streams"], found["cells"]), (6, CELLS), "streams and cells")
        laptop.medley("drain", "card")

    with world.step("a machine with layers is killed in mid-reply"):
        read_all(world, [laptop, tower], wanted, "killed", attic.kill)
        check_equal(instance(tower)["cells"], CELLS, "cells after a loss")


run(scenario)
