"""Moves one right after another where memory is short: what a replaced stage still holds for a
moment refuses none."""
from harness import check, run, wait

NAME = "Medley Stories"
LAYOUTS = [
    "laptop/sim:laptop:3,tower/sim:tower:2",
    "tower/sim:tower:2,laptop/sim:laptop:3",
    "laptop/sim:laptop:2,tower/sim:tower:3",
    "laptop/sim:laptop:4,tower/sim:tower:1",
]


def scenario(world):
    with world.step("two nodes, on each of which just a bit more than half of the model fits"):
        options = {
            name: ["--sim", world.sim(name, memory="14MiB", decode="400MB/s")]
            for name in ("laptop", "tower")
        }
        laptop, tower = world.cluster("laptop", "tower", **options)
        laptop.medley("place", world.model, "--streams", "2", "-c", "512")
        for node in (laptop, tower):
            node.medley("add", world.model)
            wait(f"{node.name} knows it", lambda node=node: node.status()["instances"])
        laptop.medley("move", "--off")
    with world.step("eight moves in a row, by both nodes"):
        move = ["move", NAME, "--to", LAYOUTS[3]]
        wait(
            "the first, once their link is measured",
            lambda: laptop.medley(*move, ok=None).code == 0,
        )
        for number in range(8):
            node = (laptop, tower)[number // 2 % 2]
            node.medley("move", NAME, "--to", LAYOUTS[number % 4])
        check(laptop.chat("Hello.", model=NAME, max_tokens=5), "it answers")
    with world.step("what does not fit is refused all the same, soon"):
        refused = laptop.medley("move", NAME, "--to", "tower/sim:tower:5", ok=False)
        check("need" in refused.err and refused.seconds < 5, f"{refused} after {refused.seconds} s")


run(scenario)
