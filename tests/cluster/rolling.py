"""An update, node by node, while texts are being read: nodes of this version and of the next one (tests/next) work together,
and back. What only the next one knows is used when the last node has been updated, and not before."""
import os
import sqlite3
import threading

from harness import check, check_equal, run, wait

NOW, NEXT = os.path.abspath(os.environ["MEDLEY"]), os.path.abspath(os.environ["MEDLEY_NEXT"])
NAME = "Medley Stories"
PROMPT = "Tell me a story about a fox."
DEVICE = {"memory": "5.7MiB", "decode": "100MB/s", "flops": "4GFLOP/s"}  # two hold the model, one does not
OPTIONS = ["--wire", "f32", "--exact"]
TOKENS = 40
NEW_KIND = bytes([31 << 3 & 0x7f | 0x82, 31 >> 4])  # an event's field 31


class Reader(threading.Thread):
    """Reads one text after the other from a node's API, until it is told to stop."""

    def __init__(self, node, wanted):
        super().__init__(daemon=True)
        self.node, self.wanted, self.stopping = node, wanted, False
        self.n_texts, self.n_pieces, self.problem = 0, 0, None
        self.start()

    def run(self):
        try:
            while not self.stopping:
                text = ""
                for _, piece in self.node.stream(PROMPT, model=NAME, max_tokens=TOKENS):
                    text += piece
                    self.n_pieces += 1
                check_equal(text, self.wanted, "text")
                self.n_texts += 1
        except Exception as problem:  # noqa: BLE001 (it is the scenario's to judge)
            self.problem = problem

    def stop(self):
        self.stopping = True
        self.join(60)
        check(not self.problem, f"{self.node.name}: {self.problem!r}")
        check(self.n_texts, f"{self.node.name} has read nothing to its end")
        return self.n_texts


def is_ready(node):
    status = node.status()
    return status and [instance["state"] for instance in status["instances"]] == ["ready"]


def restart(world, node, binary, wanted):
    """While the others read; then it answers itself."""
    others = [other for other in world.nodes if other is not node]
    readers = [Reader(other, wanted) for other in others]
    wait("all read", lambda: all(reader.n_pieces > 3 or reader.problem for reader in readers))
    node.end()
    node.binary = binary
    node.start()
    for other in world.nodes:
        other.wait_until({each.name: "up" for each in world.nodes}, 20)
    check_equal(node.chat(PROMPT, model=NAME, max_tokens=TOKENS), wanted, f"text of {node.name}")
    world.say(f"texts read meanwhile: {[reader.stop() for reader in readers]}")
    for other in world.nodes:
        wait(f"{other.name} sees it ready", lambda other=other: is_ready(other))


def agreed(node):
    """What it believes of the cluster, without what is its own."""
    status, nodes = node.status(), node.json("nodes")["nodes"]
    return (status["cluster"]["id"], status["cluster"]["voters"],
            [(each["id"], each["name"], each["version"]) for each in nodes],
            [(each["id"], each["stages"]) for each in status["instances"]])


def same_on_all(world):
    first = world.nodes[0]
    for node in world.nodes[1:]:
        wait(f"{node.name} agrees with {first.name}", lambda node=node: agreed(node) == agreed(first))


def uses_new_kind(node):
    return node.log_text().count("does not know") or any(NEW_KIND in event for event in entries(node).values())


def entries(node):
    """The log of a node, which may run: its file and write-ahead log are copied."""
    copy = node.folder / "copy.db"
    for ending in ("", "-wal"):
        source = node.state / f"cluster.db{ending}"
        (node.folder / f"copy.db{ending}").write_bytes(source.read_bytes() if source.exists() else b"")
    with sqlite3.connect(copy) as db:
        return dict(db.execute("SELECT idx, term || ':' || type || ':' || hex(bytes) FROM entry"))


def same_logs(world):
    """Entries that two nodes have are the same."""
    logs = [entries(node) for node in world.nodes]
    common = set(logs[0]).intersection(*logs[1:])
    check(len(common) > 10, f"{len(common)} entries are on all nodes")
    for index in common:
        check_equal({log[index] for log in logs}, {logs[0][index]}, f"entry {index}")
    return logs


def scenario(world):
    with world.step("three nodes of this version, a model on two of them"):
        options = {name: ["--sim", world.sim(name, **DEVICE)] for name in ("laptop", "tower", "attic")}
        laptop, tower, attic = world.cluster("laptop", "tower", "attic", all=OPTIONS, **options)
        laptop.medley("place", world.model, "--streams", "2", "-c", "256")
        wanted = laptop.chat(PROMPT, model=NAME, max_tokens=TOKENS)
    for node in (attic, laptop):
        with world.step(f"{node.name} is updated"):
            restart(world, node, NEXT, wanted)
            same_on_all(world)


run(scenario)
