"""The leader dies: another leads, text that is being generated elsewhere goes on without a gap, and
who died follows when it is back."""
import threading
import time

from harness import check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a long story about a bear and a duck."


class Listener(threading.Thread):
    """Reads a stream of a node's API in the background."""

    def __init__(self, node, **more):
        super().__init__(daemon=True)
        self.node, self.more, self.pieces, self.problem = node, more, [], None
        self.start()

    def run(self):
        try:
            for moment, piece in self.node.stream(PROMPT, **self.more):
                self.pieces.append((moment, piece))
        except Exception as problem:  # noqa: BLE001 (it is the scenario's to judge)
            self.problem = problem

    def text(self):
        self.join()
        check(not self.problem, f"{self.node.name}: {self.problem!r}")
        return "".join(piece for _, piece in self.pieces)

    def gap(self):
        moments = [moment for moment, _ in self.pieces]
        return max(after - before for before, after in zip(moments, moments[1:]))


def new_leader(world, others, old, step):
    begin = time.monotonic()
    names = {node.name for node in others}
    wait(
        "another leads",
        lambda: {node.leader() for node in others} <= names
        and len({node.leader() for node in others}) == 1,
        30,
    )
    world.say(f"{step}: {others[0].leader()} leads after {time.monotonic() - begin:.1f} s")
    for node in others:
        states = {other.name: "up" for other in others} | {old.name: "down"}
        node.wait_until(states, 30)


def scenario(world):
    # Only tower has room for the model, and it is slow: some 15 tokens a second.
    options = {
        "laptop": ["--sim", world.sim("laptop", memory="4MiB")],
        "tower": ["--sim", world.sim("tower", memory="64MiB", decode="40MB/s")],
        "attic": ["--sim", world.sim("attic", memory="4MiB")],
    }
    with world.step("three nodes, the model on one that does not lead"):
        laptop, tower, attic = nodes = world.cluster("laptop", "tower", "attic", **options)
        wait("three vote", lambda: laptop.status()["cluster"]["voters"] == 3)
        check_equal(laptop.leader(), "laptop", "leader")
        ready = laptop.json("place", world.model, "--streams", "2", "-c", "512")["ready"]
        check_equal([stage["node"] for stage in ready["stages"]], ["tower"], "nodes of the stages")
        wait("attic knows it", lambda: attic.status()["instances"])
    wanted = tower.chat(PROMPT, model=NAME, max_tokens=60)

    with world.step("the leader is killed: two others' streams go on without a gap"):
        listeners = [Listener(node, model=NAME, max_tokens=60) for node in (tower, attic)]
        wait("both hear something", lambda: all(len(listener.pieces) > 3 for listener in listeners))
        laptop.kill()
        killed = time.monotonic()
        new_leader(world, [tower, attic], laptop, "killed")
        for listener in listeners:
            check_equal(listener.text(), wanted, f"text of {listener.node.name}")
            world.say(f"{listener.node.name}: longest gap {listener.gap():.2f} s")
            check(listener.gap() < 2, f"a gap of {listener.gap():.2f} s on {listener.node.name}")
        world.say(f"the streams ended {time.monotonic() - killed:.1f} s after the kill")

    with world.step("the two go on: a request, and the log"):
        check_equal(attic.chat(PROMPT, model=NAME, max_tokens=60), wanted, "text")
        added = world.copy_of_model("other.gguf")
        attic.medley("add", added)

    with world.step("the killed one comes back and follows"):
        laptop.start()
        for node in nodes:
            node.wait_until({"laptop": "up", "tower": "up", "attic": "up"}, 30)
        check_equal(laptop.chat(PROMPT, model=NAME, max_tokens=60), wanted, "text of laptop")
        wait("all know the same leader", lambda: len({node.leader() for node in nodes}) == 1)
        check(laptop.leader() != "laptop", "laptop leads again at once")
        check_equal(laptop.status()["cluster"]["voters"], 3, "voters")

    with world.step("a leader whose cable is cut is replaced, and follows when the cable is back"):
        old = next(node for node in nodes if node.name == laptop.leader())
        others = [node for node in nodes if node is not old]
        old.cut()
        new_leader(world, others, old, "cut")
        wait(f"{old.name} knows that it does not lead", lambda: old.leader() is None, 30)
        old.mend()
        for node in nodes:
            node.wait_until({"laptop": "up", "tower": "up", "attic": "up"}, 40)
        wait(
            "all know the same leader",
            lambda: len({node.leader() for node in nodes}) == 1 and laptop.leader(),
            30,
        )


run(scenario)
