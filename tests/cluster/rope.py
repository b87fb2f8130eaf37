"""A context that is stretched by flags: refused without them, the same on every node that has a
stage, said by status, and kept when the instance is placed anew."""
from harness import check, check_equal, run, wait

NAME = "Medley Stories"
QUESTION = "Tell me a story about a cat."
ROPE = ["--rope-scaling", "linear", "--rope-scale", "4"]


def rope(node):
    return node.status()["instances"][0].get("rope")


def scenario(world):
    with world.step("a context beyond training is refused, and a scaling that is none"):
        alone = world.node("alone")
        alone.start("--new", "--sim", world.sim("alone", memory="64MiB"))
        wait("alone founds a cluster", lambda: alone.leader() == "alone")
        alone.medley("add", world.model)
        refused = alone.medley("place", NAME, "-c", "1024", ok=False)
        check("stretch it with --rope-scaling yarn --rope-scale 2" in refused.err, f"{refused.err}")
        refused = alone.medley("place", NAME, "-c", "4096", *ROPE, ok=False)
        check("the model reaches 2048" in refused.err, f"{refused.err}")
        refused = alone.medley("place", NAME, "--rope-scale", "0.5", ok=False)
        check("--rope-scale takes 1 to" in refused.err, f"{refused.err}")
    with world.step("on one machine: another reply than unscaled, and status says why"):
        alone.medley("place", NAME, "--streams", "1", "-c", "256")
        plain = alone.chat(QUESTION, model=NAME)
        check_equal(rope(alone), None, "no scaling")
        alone.medley("place", NAME, "-c", "1024", *ROPE)
        check_equal(rope(alone), {"scaling": "linear", "scale": 4.0}, "the scaling")
        check("rope linear x 4" in alone.medley("status").out, "status does not say it")
        scaled = alone.chat(QUESTION, model=NAME)
        check(scaled != plain, "the flags change nothing")
        kept = alone.medley("place", NAME, "--streams", "2")
        check("--rope-scaling linear, --rope-scale 4" in kept.out, f"{kept.out}")
        check_equal(alone.chat(QUESTION, model=NAME), scaled, "the reply of the next placement")
        alone.end()
    with world.step("on two machines, and in the devices' processes: the same reply"):
        tower, attic = world.cluster(
            "tower",
            "attic",
            tower=["--sim", world.sim("tower", memory="13MiB", decode="400MB/s")],
            attic=["--sim", world.sim("attic", memory="13MiB", decode="400MB/s")],
        )
        tower.medley("place", world.model, "--streams", "2", "-c", "1024", *ROPE)
        stages = tower.status()["instances"][0]["stages"]
        check_equal(len({stage["node"] for stage in stages}), 2, f"machines of {stages}")
        check(not any(stage.get("n_streamed") for stage in stages), f"{stages}")
        check_equal(tower.chat(QUESTION, model=NAME), scaled, "the reply of both")


run(scenario)
