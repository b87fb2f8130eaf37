"""Weights of a smaller type, which each machine makes of its own layers: the replies are those of a
file that was converted, on two machines of which only one has the file; the plan, the placement and
the state say so."""
from harness import check, check_equal, run, wait

NAME = "Medley Stories"
QUESTION = "Tell me a story about a cat."
DEMAND = ["--streams", "2", "-c", "256"]


def instance(node):
    return node.status()["instances"][0]


def scenario(world):
    converted = world.folder / "converted.gguf"
    with world.step("a file that was converted: its replies"):
        alone = world.node("alone")
        alone.start("--new", "--sim", world.sim("alone", memory="64MiB"))
        wait("alone founds a cluster", lambda: alone.leader() == "alone")
        alone.medley("convert", world.model, "--to", "q4_k", "-o", str(converted))
        alone.medley("place", str(converted), *DEMAND)
        expected = alone.chat(QUESTION, model=NAME)
        alone.medley("unload", NAME)
        alone.medley("place", world.model, *DEMAND)
        check(alone.chat(QUESTION, model=NAME) != expected, "q4_k makes no difference")
        alone.end()
    with world.step("as stored it fits nowhere, as q4_k on a machine without the file"):
        options = {"tower": ["--sim", world.sim("tower", memory="5MiB", decode="40MB/s")],
                   "attic": ["--sim", world.sim("attic", memory="12.5MiB", decode="30MB/s")],
                   "laptop": ["--sim", world.sim("laptop", memory="5MiB", decode="30MB/s")]}
        tower, attic, laptop = world.cluster("tower", "attic", "laptop", **options)
        tower.medley("add", world.model)
        stored, lower = (tower.json("plan", world.model, *DEMAND, *more, ok=None)
                         for more in ([], ["--precision", "q4_k"]))
        check_equal((stored["outcome"], lower["outcome"]), ("infeasible", "placed"), "outcomes")
        sizes = [plan["model"]["weight_bytes"] for plan in (stored, lower)]
        check(sizes[1] < 0.75 * sizes[0], f"bytes of weights: {sizes}")
        placed = tower.medley("place", world.model, *DEMAND, "--precision", "Q4_K")
        check("attic sim:attic layers 0-4, weights as q4_k" in placed.out, placed.out)
        check_equal(instance(tower)["precision"], "q4_k", "the precision")
        check("weights as q4_k" in tower.medley("status").out, "status says nothing of it")
        check(" q4_k: fetched" in attic.log_text(), "the layers did not come as q4_k")
        check_equal(len(list((attic.state / "models").glob("*.gguf"))), 2, "files: header, layers")
        check_equal(tower.chat(QUESTION, model=NAME), expected, "the reply")
        attic.end()
    with world.step("divided over two machines, and moved: the same replies"):
        roomy = {name: ["--sim", world.sim(name, memory="64MiB")] for name in ("left", "right")}
        left, right = world.cluster("left", "right", **roomy)
        left.medley("place", world.model, *DEMAND, "--precision", "q4_k")
        for to in ("left/sim:left:3,right/sim:right:2", "right/sim:right:4,left/sim:left:1"):
            wait("it is moved, once the link is measured",
                 lambda t=to: left.medley("move", NAME, "--to", t, ok=None).code == 0)
            found = wait("moved", lambda: instance(left)["state"] == "ready" and instance(left))
            check_equal((len(found["stages"]), found["precision"]), (2, "q4_k"), "the placement")
            for node in (left, right):
                check_equal(node.chat(QUESTION, model=NAME), expected, f"reply by {node.name}")
    with world.step("read from the disk in that type: converted once, the same replies"):
        limit = ["--precision", "q4_k", "--weights-memory", "700KiB"]
        placed = left.medley("place", world.model, *DEMAND, *limit)
        check("from its disk" in placed.out, placed.out)
        check(any(" q4_k: converted" in node.log_text() for node in (left, right)),
              "both have the file by now, and neither converted it")
        check_equal(left.chat(QUESTION, model=NAME), expected, "the reply")
        refused = left.medley("place", NAME, *limit, "--allow-precision", "q2_k", ok=False)
        check("may become smaller still" in refused.err, f"{refused}")
    with world.step("whoever asks for no precision takes it as it is; another one makes it anew"):
        left.medley("place", NAME)
        check_equal(instance(left)["precision"], "q4_k", "the precision")
        placed = left.medley("place", NAME, "--precision", "q5_k", "--weights-memory", "64MiB")  # 700 KiB would be kept
        check("--streams 2" in placed.out, placed.out)
        check_equal(instance(left)["precision"], "q5_k", "the precision")
        check(right.chat(QUESTION, model=NAME), "no reply")
    with world.step("what there is not"):
        for word, why in (("q9", "take one of"), ("iq2_xs", "importance matrix")):
            refused = left.medley("place", NAME, "--precision", word, ok=False)
            check(why in refused.err, f"{refused}")


run(scenario)
