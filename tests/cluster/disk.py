"""A full disk: weights that do not fit are refused with the reason, harm nothing, and come when
there is room."""
from harness import check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a story about a bear."
SPARE = 1 << 30  # what a node leaves free on its disk


def problem(node):
    return node.status()["instances"][0]["problem"]


def no_room_for_weights(world, laptop, tower):
    with world.step("no room for the layers: medley place and medley status say so"):
        result = laptop.medley(
            "place", world.model, "--streams", "1", "-c", "256", ok=False, seconds=60
        )
        world.say(result.err)
        check(
            "tower" in result.err
            and ("disk" in result.err or "room" in result.err or "free" in result.err),
            f"medley place says {result}",
        )
        for node in (laptop, tower):
            check_equal(node.status()["instances"][0]["state"], "failed", f"state on {node.name}")
            check(
                "free" in (problem(node) or "") or "room" in (problem(node) or ""),
                f"medley status of {node.name} says {problem(node)!r}",
            )
    with world.step("meanwhile the cluster is whole"):
        for node in (laptop, tower):
            check_equal(node.nodes(), {"laptop": "up", "tower": "up"}, f"nodes of {node.name}")
    with world.step("after room was made it is placed, and answers"):
        world.disk(tower, SPARE + (64 << 20))
        laptop.medley("place", world.model, "--streams", "1", "-c", "256", seconds=60)
        text = laptop.chat(PROMPT, model=NAME, max_tokens=20)
        check_equal(tower.chat(PROMPT, model=NAME, max_tokens=20), text, "text of tower")


def scenario(world):
    with world.step("two nodes; the one with the device has little room on its disk"):
        options = {
            "laptop": ["--sim", world.sim("laptop", memory="4MiB")],
            "tower": ["--sim", world.sim("tower", memory="64MiB")],
        }
        laptop, tower = world.node("laptop"), world.node("tower")
        world.disk(tower, SPARE + (1 << 20))
        laptop.start("--new", *options["laptop"])
        wait("laptop leads", lambda: laptop.leader() == "laptop")
        tower.start("--peer", laptop.address, "--join", laptop.invite(), *options["tower"])
        for node in (laptop, tower):
            node.wait_until({"laptop": "up", "tower": "up"}, 20)
    no_room_for_weights(world, laptop, tower)


run(scenario)
