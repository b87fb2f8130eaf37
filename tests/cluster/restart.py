"""Nodes that start again, one after the other and all at once: the cluster, its model and its text
come back."""
import re
import time

from harness import check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a story about a duck."
PARTS = 48  # of the model: tensors and header
# as in split.py: no two nodes hold it
MEMORY = {"laptop": "4.5MiB", "tower": "4.5MiB", "attic": "5.7MiB"}
EVERYBODY = {name: "up" for name in MEMORY}


def is_ready(node):
    status = node.status()
    return status and [instance["state"] for instance in status["instances"]] == ["ready"]


def fetched_parts(node):
    """In all its lives: the layers that it computes, and spare copies."""
    return sum(int(n) for n in re.findall(r"fetched (\d+) parts", node.log_text()))


def whole_again(world, wanted, what):
    begin = time.monotonic()
    for node in world.nodes:
        node.wait_until(EVERYBODY, 30)
    world.say(f"{what}: all up after {time.monotonic() - begin:.1f} s")
    for node in world.nodes:
        check_equal(node.chat(PROMPT, model=NAME, max_tokens=20), wanted, f"text of {node.name}")
    world.say(f"{what}: answered after {time.monotonic() - begin:.1f} s")
    for node in world.nodes:
        wait(f"{node.name} sees it ready", lambda node=node: is_ready(node), 20)


def scenario(world):
    options = {name: ["--sim", world.sim(name, memory=memory)] for name, memory in MEMORY.items()}
    with world.step("three nodes hold a model together"):
        laptop, tower, attic = world.cluster(*MEMORY, **options)
        wait(
            "the links are known",
            lambda: len(
                [link for link in laptop.json("links")["links"] if link["class"] == "ethernet"]
            )
            == 6,
        )
        laptop.json("place", world.model, "--streams", "1", "-c", "256")
        wanted = laptop.chat(PROMPT, model=NAME, max_tokens=20)
        cluster = laptop.status()["cluster"]["id"]
        check(fetched_parts(tower), "tower has fetched nothing")
    for node in (attic, tower, laptop):
        with world.step(f"{node.name} ends in order and starts again"):
            node.end()
            node.start()
            whole_again(world, wanted, node.name)
    with world.step("all end at once and start again"):
        for node in world.nodes:
            node.end()
        for node in world.nodes:
            node.start()
        whole_again(world, wanted, "all")
    with world.step("all are killed at once and start again"):
        for node in world.nodes:
            node.kill()
        for node in reversed(world.nodes):
            node.start()
        whole_again(world, wanted, "all, killed")
    with world.step("it is still the same cluster, and nothing was fetched twice"):
        for node in world.nodes:
            check_equal(node.status()["cluster"]["id"], cluster, f"cluster of {node.name}")
            check_equal(node.status()["cluster"]["voters"], 3, f"voters on {node.name}")
        for node in (tower, attic):
            world.say(f"{node.name}: {fetched_parts(node)} parts")
            check(fetched_parts(node) <= PARTS, f"{fetched_parts(node)} parts were fetched")


run(scenario)
