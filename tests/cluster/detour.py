"""The node that a client streams from cannot reach the node that computes, both ways or one, but a
third reaches both: the text goes on through the third, and is what an undisturbed run gives. So do
requests that come while the way is cut."""
import json
import os
import threading
import time

from harness import check, check_equal, run, wait
from namespaces import ip

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME = "Medley Stories"
PROMPT = "Tell me a story about a bird."
DEVICE = {"memory": "64MiB", "decode": "80MB/s", "flops": "4GFLOP/s"}


class Reader(threading.Thread):
    def __init__(self, node, **more):
        super().__init__(daemon=True)
        self.node, self.more, self.pieces, self.problem = node, more, [], None
        self.start()

    def run(self):
        try:
            for _, piece in self.node.stream(PROMPT, model=NAME, **self.more):
                self.pieces.append((time.monotonic(), piece))
        except Exception as problem:  # noqa: BLE001 (it is the scenario's to judge)
            self.problem = problem

    def text(self):
        self.join(60)
        check(not self.problem and not self.is_alive(), f"{self.node.name}: {self.problem!r}")
        return "".join(piece for _, piece in self.pieces)

    def longest_s(self):
        return max(after - before for (before, _), (after, _) in zip(self.pieces, self.pieces[1:]))


def isolate(nodes, on):
    """Those hear all others, but not each other."""
    for node in nodes:
        ip(
            "link",
            "set",
            node.network.port,
            "type",
            "bridge_slave",
            "isolated",
            "on" if on else "off",
        )


def misdirect(sender, receiver, on):
    """What `sender` sends to `receiver` goes astray."""
    with receiver.network.inside():
        found = json.loads(ip("-j", "address", "show", "cable"))[0]["addr_info"]
    with sender.network.inside():
        for address in found:
            words = ["to", address["local"], "dev", "cable"]
            if on:
                ip("neigh", "replace", *words, "lladdr", "02:00:00:00:00:99", "nud", "permanent")
            else:
                ip("neigh", "del", *words)


def go_on_through_a_third(world, laptop, cut, mend):
    wanted = laptop.chat(PROMPT, model=NAME, max_tokens=90)
    reader = Reader(laptop, max_tokens=90)
    wait("it hears something", lambda: len(reader.pieces) > 10 or reader.problem, 60)
    cut()
    check_equal(reader.text(), wanted, "text")
    begin = time.monotonic()
    check_equal(
        laptop.chat(PROMPT, model=NAME, max_tokens=20),
        wanted_start(wanted, laptop),
        "text of a new request",
    )
    world.say(
        f"longest pause {reader.longest_s():.2f} s; a new request took "
        f"{time.monotonic() - begin:.2f} s"
    )
    tower = world.nodes[2]
    wait(
        "one misses the other",
        lambda: laptop.nodes().get("tower") != "up" or tower.nodes().get("laptop") != "up",
        10,
    )
    mend()


def wanted_start(wanted, laptop):
    """What 20 tokens of it are, as said by the node that computes."""
    text = laptop.world.nodes[2].chat(PROMPT, model=NAME, max_tokens=20)
    check(wanted.startswith(text), f"{text!r} does not begin {wanted!r}")
    return text


def hear_again(world, one, other):
    begin = time.monotonic()
    wait(
        "they hear each other again",
        lambda: one.nodes().get(other.name) == "up" == other.nodes().get(one.name),
        10,
    )
    world.say(f"they hear each other again {time.monotonic() - begin:.2f} s after the way is free")


def scenario(world):
    with world.step("three nodes; attic leads, and tower has the model"):
        options = {
            name: ["--sim", world.sim(name, **DEVICE)] for name in ("laptop", "tower", "attic")
        }
        attic, laptop, tower = world.cluster("attic", "laptop", "tower", all=OPTIONS, **options)
        attic.medley("place", world.model, "--streams", "2", "-c", "512")
        wait("tower knows it", lambda: tower.status()["instances"])
        attic.medley("move", "--off")
        attic.medley("move", NAME, "--to", "tower/sim:tower:5")
        wait("laptop knows it", lambda: laptop.status()["instances"])
    with world.step("both ways are cut between laptop and tower"):
        go_on_through_a_third(
            world,
            laptop,
            lambda: isolate((laptop, tower), True),
            lambda: isolate((laptop, tower), False),
        )
        hear_again(world, laptop, tower)
    for sender, receiver in ((laptop, tower), (tower, laptop)):
        with world.step(f"one way is cut, from {sender.name} to {receiver.name}"):
            go_on_through_a_third(
                world,
                laptop,
                lambda s=sender, r=receiver: misdirect(s, r, True),
                lambda s=sender, r=receiver: misdirect(s, r, False),
            )
            hear_again(world, laptop, tower)
    with world.step("nothing was placed anew meanwhile"):
        stages = [stage["node"] for stage in attic.status()["instances"][0]["stages"]]
        check_equal(stages, ["tower"], "where it runs")


run(scenario)
