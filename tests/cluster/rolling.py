"""An update, node by node, while texts are being read: nodes of this version and of the next one
(tests/next) work together, and back. What only the next one knows is used when the last node has
been updated, and not before."""
import os
import pathlib
import re
import sqlite3
import threading

from harness import check, check_equal, run, wait

NOW, NEXT = os.path.abspath(os.environ["MEDLEY"]), os.path.abspath(os.environ["MEDLEY_NEXT"])
NAME = "Medley Stories"
PROMPT = "Tell me a story about a fox."
# two hold the model, one does not
DEVICE = {"memory": "12MiB", "decode": "100MB/s", "flops": "4GFLOP/s"}
TOKENS = 40
PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto" / "cluster.proto"


def new_kind():
    """An event of the kind after the highest, of no bytes: the event ends so."""
    kinds = PROTO.read_text().split("oneof kind {")[1].split("}")[0]
    tag = (max(int(number) for number in re.findall(r"= (\d+);", kinds)) + 1) << 3 | 2
    return bytes([tag & 0x7F | 0x80, tag >> 7, 0])


NEW_KIND = new_kind()


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
    return (
        status["cluster"]["id"],
        status["cluster"]["voters"],
        [(each["id"], each["name"], each["version"]) for each in nodes],
        [(each["id"], each["stages"]) for each in status["instances"]],
    )


def same_on_all(world):
    first = world.nodes[0]
    for node in world.nodes[1:]:
        wait(
            f"{node.name} agrees with {first.name}", lambda node=node: agreed(node) == agreed(first)
        )


def read_log(node):
    """The entries in its file, which it may be writing: file and write-ahead log are copied. None:
    they did not fit."""
    for copy in node.folder.glob("copy.db*"):
        copy.unlink()
    for source in node.state.glob("cluster.db*"):
        (node.folder / source.name.replace("cluster", "copy")).write_bytes(source.read_bytes())
    try:
        with sqlite3.connect(node.folder / "copy.db") as db:
            return {
                index: rest
                for index, *rest in db.execute("SELECT idx, term, type, bytes FROM entry")
            }
    except (sqlite3.Error, OSError):
        return None


def entries(node):
    return wait(f"the log of {node.name} can be read", lambda: read_log(node))


def n_new_events(world):
    """How many events of the new kind there are, once all logs were found to be the same where they
    overlap."""
    logs = [entries(node) for node in world.nodes]
    common = set(logs[0]).intersection(*logs[1:])
    check(len(common) > 10, f"{len(common)} entries are on all nodes")
    for index in common:
        for log in logs:
            check_equal(log[index], logs[0][index], f"entry {index}")
    return sum(logs[0][index][2].endswith(NEW_KIND) for index in common)


def goes_back_too_late(world, node, others, wanted):
    """The log has what this version does not know: the node says so, and the others go on."""
    node.end()
    node.binary = NOW
    node.start()
    problem = wait(
        f"{node.name} says what to do",
        lambda: (status := node.status()) and status["cluster"] and status["cluster"]["problem"],
    )
    check("update the medley here" in problem, problem)
    check("update the medley here" in node.medley("status").out, "medley status does not say it")
    for other in others:
        check_equal(
            other.chat(PROMPT, model=NAME, max_tokens=TOKENS), wanted, f"text of {other.name}"
        )
    node.end()
    node.binary = NEXT
    node.start()
    for other in world.nodes:
        other.wait_until({each.name: "up" for each in world.nodes}, 20)


def is_too_new(world, node, others):
    """Two minor versions above the others: no link, and words on both sides."""
    node.end()
    node.more = {"MEDLEY_NEXT_MINORS": "3"}
    begin = {each.name: len(each.log_text()) for each in world.nodes}
    node.start()

    def says(each, words):
        return words in each.log_text()[begin[each.name] :]

    wait(f"{node.name} is told", lambda: says(node, "update the medley there"))
    wait(
        "the others are told",
        lambda: all(says(other, "update the medley here") for other in others),
    )
    check_equal(others[0].nodes()[node.name], "down", f"state of {node.name}")
    wait(
        "medley nodes says it",
        lambda: any("update the medley" in each.medley("nodes").out for each in world.nodes),
    )
    node.end()
    node.more = {}
    node.start()
    for other in world.nodes:
        other.wait_until({each.name: "up" for each in world.nodes}, 20)


def scenario(world):
    with world.step("three nodes of this version, a model on two of them"):
        options = {
            name: ["--sim", world.sim(name, **DEVICE)] for name in ("laptop", "tower", "attic")
        }
        laptop, tower, attic = world.cluster("laptop", "tower", "attic", **options)
        laptop.medley("place", world.model, "--streams", "2", "-c", "256")
        wanted = laptop.chat(PROMPT, model=NAME, max_tokens=TOKENS)
    for node in (attic, laptop):
        with world.step(f"{node.name} is updated"):
            restart(world, node, NEXT, wanted)
            same_on_all(world)
    with world.step("laptop goes back, and is updated again"):
        restart(world, laptop, NOW, wanted)
        same_on_all(world)
        restart(world, laptop, NEXT, wanted)
        check_equal(n_new_events(world), 0, "events that tower does not know")
    with world.step("tower is updated, too: now the new kind is used"):
        restart(world, tower, NEXT, wanted)
        same_on_all(world)
        wait("it is in all logs", lambda: n_new_events(world) > 0)
    with world.step("who goes back now takes no part, and says why"):
        goes_back_too_late(world, attic, [laptop, tower], wanted)
    with world.step("two versions apart: refused, with words"):
        is_too_new(world, attic, [laptop, tower])
        check_equal(laptop.chat(PROMPT, model=NAME, max_tokens=TOKENS), wanted, "text")
        same_on_all(world)


run(scenario)
