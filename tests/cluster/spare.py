"""The machine that alone had a model's file is killed in mid-reply and never comes back: its layers
were copied in the background, and the reply goes on with the same text. With little room nothing is
copied, and `medley status` says so."""
import os
import threading

from harness import check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat and a dog."
TOKENS = 60
SPARE = 1 << 30  # what a node leaves free on its disk
FAST = {"memory": "64MiB", "decode": "120MB/s", "flops": "12GFLOP/s"}  # 20 ms a token
SLOW = {"memory": "64MiB", "decode": "20MB/s", "flops": "2GFLOP/s"}  # 120 ms: not worth a stage


class Reader(threading.Thread):
    """Reads a stream of a node's API in the background."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node, self.pieces, self.problem = node, [], None
        self.start()

    def run(self):
        try:
            for _, piece in self.node.stream(PROMPT, model=NAME, max_tokens=TOKENS):
                self.pieces.append(piece)
        except Exception as problem:  # noqa: BLE001 (it is the scenario's to judge)
            self.problem = problem

    def text(self):
        self.join()
        check(not self.problem, f"{self.node.name}: {self.problem!r}")
        return "".join(self.pieces)


def instance(node):
    status = node.status()
    return status["instances"][0] if status and status["instances"] else {}


def has_layers(node):
    """More than the header, which every node fetches that is asked about the model."""
    paths = (node.state / "models").glob("*.gguf")
    return sum(512 * path.stat().st_blocks for path in paths) > 300_000


def placed_on_laptop(laptop):
    laptop.medley("place", laptop.world.model, "--streams", "2", "-c", "512")
    laptop.medley("move", "--off")
    stages = instance(laptop)["stages"]
    check_equal([stage["node"] for stage in stages], ["laptop"], "where it runs")


def scenario(world):
    with world.step("three nodes; two have no room on their disks, the first the file"):
        nodes = laptop, tower, attic = [world.node(name) for name in ("laptop", "tower", "attic")]
        for node in (tower, attic):
            world.disk(node, SPARE + (512 << 10))
        laptop.start("--new", *OPTIONS, "--sim", world.sim("laptop", **FAST))
        wait("laptop leads", lambda: laptop.leader() == "laptop")
        for node in (tower, attic):
            words = ["--peer", laptop.address, "--join", laptop.invite()]
            node.start(*words, *OPTIONS, "--sim", world.sim(node.name, **SLOW))
            laptop.wait_until({other.name: "up" for other in nodes if other.process}, 20)
    with world.step("its weights are on one disk, and nothing is copied where there is no room"):
        placed_on_laptop(laptop)
        wait("all is told", lambda: "survives" in instance(tower))
        wait("all three vote", lambda: laptop.status()["cluster"]["voters"] == 3, 30)
        check_equal(instance(tower)["survives"], 0, "losses that it survives")
        check_equal(instance(tower)["survives_limit"], "weights", "and why no more")
        check(not any(has_layers(node) for node in (tower, attic)), "something was copied")
    with world.step("so its loss stops a reply, the reason is said, and its return ends that"):
        wanted = tower.chat(PROMPT, model=NAME, max_tokens=TOKENS)
        reader = Reader(tower)
        wait("it has begun", lambda: len(reader.pieces) > 8 or reader.problem, 60)
        laptop.kill()
        wait(
            "it is said",
            lambda: "on the disk of no machine that is up" in (instance(tower)["problem"] or ""),
            40,
        )
        laptop.start()
        check_equal(reader.text(), wanted, "text")
        laptop.wait_until({node.name: "up" for node in nodes}, 20)
    with world.step("there is room: every layer is copied to one of them"):
        for node in (tower, attic):
            world.disk(node, SPARE + (64 << 20))
        wait("it survives a loss", lambda: instance(tower).get("survives") == 1, 60)
        keepers = [node.name for node in (tower, attic) if has_layers(node)]
        check(keepers, "status says that there is a copy, and there is none")
        world.say(f"kept by {keepers}; {tower.medley('status').out}")
    with world.step("the machine with the file is killed for ever in mid-reply"):
        reader = Reader(tower)
        wait("it has begun", lambda: len(reader.pieces) > 8 or reader.problem, 60)
        laptop.kill()
        check_equal(reader.text(), wanted, "text")
        stages = instance(tower)["stages"]
        check("laptop" not in [stage["node"] for stage in stages], f"it runs on {stages}")
        check_equal(attic.chat(PROMPT, model=NAME, max_tokens=TOKENS), wanted, "text of attic")
    with world.step("what is left copies it again, so that both have all of it"):
        wait(
            "both have it",
            lambda: all(has_layers(node) for node in (tower, attic))
            and instance(tower).get("survives_limit") != "weights",
            60,
        )


run(scenario)
