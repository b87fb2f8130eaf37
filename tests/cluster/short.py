"""Others take the memory of a machine's device while it answers: its weights go to the disk for as
long, the replies stay the same, and every node says so."""
import http.client
import json

from harness import API_PORT, check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat and a dog."
MEMORY = 64 << 20
DEVICE = "sim:tower"
BEGINS_S, ENDS_S = 9, 17  # after the device's process has opened it


def metric(node, name):
    """Of the device, by the node's metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=20)
    connection.sock = node.connect()
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    prefix = f'{name}{{device="{DEVICE}"}} '
    return [float(line[len(prefix) :]) for line in text.splitlines() if line.startswith(prefix)][0]


def free_bytes(node):
    return metric(node, "medley_device_memory_free_bytes")


def step(node):
    return metric(node, "medley_device_memory_step")


def told(node):
    """The lines of the events about memory."""
    lines = node.medley("events", "--json").out.splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    return [text for text in texts if text.startswith("memory of ")]


def first_stage(node):
    return node.status()["instances"][0]["stages"][0]


def is_ready(node):
    status = node.status()
    return bool(status and status["instances"] and status["instances"][0]["state"] == "ready")


def scenario(world):
    with world.step("two nodes; one computes, and this is what it takes"):
        options = {
            "laptop": ["--sim", world.sim("laptop", memory="4MiB")],
            "tower": ["--sim", world.sim("tower", memory="64MiB", decode="400MB/s")],
        }
        laptop, tower = world.cluster("laptop", "tower", **options)
        tower.medley("place", world.model, "--streams", "2", "-c", "512")
        wanted = laptop.chat(PROMPT, model=NAME, max_tokens=40)
        check_equal(laptop.chat(PROMPT, model=NAME, max_tokens=40), wanted, "the same, again")
        used = MEMORY - free_bytes(tower)
        check(0 < used < MEMORY, f"{used} bytes are used")
        check_equal(step(tower), 0, "step as placed")
        check_equal(told(laptop), [], "events of memory")
    with world.step("it starts again, and others take so much that it lacks a little"):
        tower.end()
        others = f"{(MEMORY - used) / (1 << 20) + 0.4:.3f}MiB at {BEGINS_S}s, 0B at {ENDS_S}s"
        world.sim("tower", memory="64MiB", decode="400MB/s", others=others)
        tower.start()
        wait("it is loaded", lambda: is_ready(tower) and is_ready(laptop), 30)
    with world.step("replies go on with the same text, and all say what was given up"):
        said, measured = set(), set()
        for _ in range(200):
            check_equal(laptop.chat(PROMPT, model=NAME, max_tokens=40), wanted, "text")
            stage = first_stage(laptop)
            said.add(stage.get("memory_step", 0))
            measured.add(step(tower))
            if 7 in said and not stage.get("memory_step"):
                break
            if stage.get("memory_step") == 7:
                check("from the disk" in stage["memory_given"], stage)
                check("short of memory" in laptop.medley("status").out, "status says nothing")
        check(7 in said, f"steps seen: {said}")
        check(7 in measured, f"steps in the metrics: {measured}")
    with world.step("the events tell of the way down and up"):
        wait("all is back", lambda: told(laptop) and "free again" in told(laptop)[-1], 40)
        wait("it is as placed", lambda: not first_stage(laptop).get("memory_step"))
        found = told(laptop)
        world.say("\n".join(found))
        check(any("is short" in text and "step 7" in text for text in found), found)
        check(any("is less short" in text and "step 3" in text for text in found), found)
        check("is free again" in found[-1], found)
        check_equal(told(tower), found, "events on the other")


run(scenario)
