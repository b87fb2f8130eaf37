"""A machine's device gets hot: where the owner allows lower precision, the leader places the same
stages anew with weights of that type, says so in the events, and the replies go on; without leave it
does not."""
from harness import World, check, check_equal, run, wait

NAME = "Medley Stories"
QUESTION = "Tell me a story about a cat and a dog."
DEMAND = ["--streams", "1", "-c", "512"]
# At full load it would pass its limit within a second.
HOT = {"memory": "64MiB", "decode": "50MB/s", "flops": "1GFLOP/s", "power_idle": "5W", "power_max": "100W",
       "thermal_mass": "1J/K", "thermal_resistance": "0.8K/W", "limit": "80C", "throttle": "100%"}


class Governed(World):
    governed = True


def instance(node):
    return node.status()["instances"][0]


def heat_up(node):
    """Replies until its governor asks."""
    for _ in range(8):
        check(node.chat(QUESTION, model=NAME, max_tokens=20), "no reply")
        if "asks for lower precision" in node.log_text():
            return
    check(False, "the device stayed cool")


def scenario(world):
    with world.step("without leave nothing changes"):
        node = world.node("warm")
        node.start("--new", "--sim", world.sim("warm", **HOT))
        wait("warm founds a cluster", lambda: node.leader() == "warm")
        node.medley("place", world.model, *DEMAND)
        epoch = instance(node)["epoch"]
        heat_up(node)
        check(node.chat(QUESTION, model=NAME, max_tokens=20), "no reply")
        check_equal(instance(node)["epoch"], epoch, "the epoch")
        check("precision" not in instance(node), f"{instance(node)}")
    with world.step("with it the weights become smaller"):
        node.medley("place", NAME, *DEMAND, "--allow-precision", "q4_k")
        check_equal(instance(node)["allow_precision"], "q4_k", "what is allowed")
        wait("lower precision", lambda: instance(node).get("precision") == "q4_k", 30)
        wait("ready", lambda: instance(node)["state"] == "ready", 30)
        check(node.chat(QUESTION, model=NAME, max_tokens=20), "no reply")
        check("a device is hot: lower precision" in node.medley("events").out, "no event says so")
        check("weights as q4_k" in node.medley("status").out, "status says nothing of it")


run(scenario, Governed)
