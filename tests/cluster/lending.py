"""An owner takes back what a machine lends, in mid-reply: layers move away, the text stays what it
was, and the machine stays a member. With nowhere to go the reply waits until more is lent again.
What was said is remembered over a restart."""
import os
import threading

from harness import check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat and a dog."
TOKENS = 80
FAST = {"memory": "64MiB", "decode": "60MB/s", "flops": "12GFLOP/s"}  # 40 ms a token
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

    def has_begun(self):
        wait("it has begun", lambda: len(self.pieces) > 5 or self.problem, 60)
        check(self.is_alive(), "the reply was over before anything was changed")
        return self

    def text(self):
        self.join()
        check(not self.problem, f"{self.node.name}: {self.problem!r}")
        return "".join(self.pieces)


def instance(node):
    status = node.status()
    return status["instances"][0] if status and status["instances"] else {}


def places(node):
    """Layers by machine, of what is loaded."""
    stages = instance(node).get("stages", [])
    if any(stage["state"] != "ready" for stage in stages):
        return None
    return {stage["node"]: stage["n_layers"] for stage in stages}


def closed(node):
    """The machines that lend nothing now, as `node` says."""
    return [item["name"] for item in node.json("nodes")["nodes"] if item["lends_nothing"]]


def until_off(node, name):
    wait(f"nothing is on {name}", lambda: (found := places(node)) and name not in found, 60)


def scenario(world):
    with world.step("two nodes, the model on the faster one"):
        options = {
            "laptop": ["--sim", world.sim("laptop", **FAST)],
            "tower": ["--sim", world.sim("tower", **SLOW)],
        }
        laptop, tower = world.cluster("laptop", "tower", all=OPTIONS, **options)
        laptop.medley("place", world.model, "--streams", "2", "-c", "512")
        tower.medley("add", world.model)
        wait("tower knows it", lambda: places(tower))
        check_equal(places(laptop), {"laptop": 5}, "where it runs")
        wanted = tower.chat(PROMPT, model=NAME, max_tokens=TOKENS)
        wait("the link is measured", lambda: laptop.try_json("links"), 20)
    with world.step("lends nothing, in mid-reply: it moves, and the text is the same"):
        reader = Reader(tower).has_begun()
        said = laptop.medley("lend", "off").out
        check("Nothing is lent now" in said, said)
        until_off(tower, "laptop")
        check_equal(reader.text(), wanted, "text")
        check_equal(laptop.nodes(), {"laptop": "up", "tower": "up"}, "members")
        wait("medley nodes says so", lambda: closed(tower) == ["laptop"])
    with world.step("that is remembered; so is an option of `medley up`"):
        laptop.end()
        laptop.start(*laptop.options, "--lend", "90%", "--lend-hours", "00:00-23:59")
        wait("it is back", lambda: tower.nodes() == {"laptop": "up", "tower": "up"}, 30)
        lends = laptop.json("lend")["lends"]
        check_equal((lends["now"], lends["share"], lends["hours"]),
                    ("no", "90%", "00:00-23:59"), "what it lends")
        check_equal(laptop.json("lend", "--hours", "always", "--share", "all")["lends"]["hours"],
                    "always", "hours")
        check_equal(laptop.medley("lend", "--hours", "nine", ok=False).code, 2, "exit status")
    with world.step("it lends again; the other takes back: what goes on, goes on here"):
        laptop.medley("lend", "on")
        reader = Reader(laptop).has_begun()
        tower.medley("lend", "off")
        until_off(laptop, "tower")
        check_equal(reader.text(), wanted, "text")
    with world.step("a limit in memory is kept: layers go"):
        tower.medley("lend", "on")
        reader = Reader(tower).has_begun()
        laptop.medley("lend", "--memory", "7MiB")
        wait("layers have gone", lambda: 0 < (places(tower) or {}).get("tower", 0), 60)
        check_equal(reader.text(), wanted, "text")
        world.say(f"with 7 MiB lent: {places(tower)}")
    with world.step("nowhere to go: the reply waits, and goes on when it is lent again"):
        laptop.medley("lend", "--memory", "all")
        reader = Reader(tower).has_begun()
        tower.medley("lend", "off")
        laptop.medley("lend", "off")
        wait("nothing is loaded", lambda: not (instance(tower).get("stages")), 60)
        laptop.medley("lend", "on")
        check_equal(reader.text(), wanted, "text")


run(scenario)
