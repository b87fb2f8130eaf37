"""A device that would not keep its limit loses its layers before its governor takes any of its
time: real nodes with simulated devices (docs/simulated-devices.md: heat). Five minutes, for metal
is slow: a benchmark of meson's, not a test (`meson test --benchmark cluster-heat`)."""
import re
import time

from harness import World, check, check_equal, run

NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat and a dog."
# 80 ms for a token; at full load it settles at 120 C, half-way in 140 s, and its limit is 90 C.
HOT = {
    "memory": "64MiB",
    "decode": "30MB/s",
    "flops": "1GFLOP/s",
    "power_idle": "5W",
    "power_max": "105W",
    "thermal_mass": "222J/K",
    "thermal_resistance": "0.9K/W",
    "limit": "90C",
    "throttle": "30%",
}
COOL = {"memory": "64MiB", "decode": "26MB/s", "flops": "1GFLOP/s"}


class Governed(World):
    governed = True


def generate(node, seconds):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        node.chat(PROMPT, model=NAME, max_tokens=40)


def temperature(node):
    found = re.findall(r"device sim:tower: ([^;]*); ([0-9.]+) C", node.log_text())
    return found[-1] if found else ("free", "below 73")


def devices(node):
    return [
        stage["device"] for instance in node.status()["instances"] for stage in instance["stages"]
    ]


def scenario(world):
    with world.step("two nodes, the model on the faster one, which gets hot"):
        laptop, tower = world.cluster(
            "laptop",
            "tower",
            laptop=["--sim", world.sim("laptop", **COOL)],
            tower=["--sim", world.sim("tower", **HOT)],
        )
        laptop.medley("place", world.model, "--streams", "1", "-c", "512")
        check_equal(devices(laptop), ["sim:tower"], "devices with layers")
    with world.step("used now and then, it keeps its limit, and its body becomes known"):
        for _ in range(8):
            generate(laptop, 9)
            time.sleep(20)
        check_equal(devices(laptop), ["sim:tower"], "devices with layers")
    with world.step("used all the time, it is left before any of its time is taken"):
        began = time.monotonic()
        while devices(laptop) == ["sim:tower"]:
            check(time.monotonic() - began < 240, f"it keeps its layers: {temperature(tower)}")
            generate(laptop, 1)
        why = [
            line
            for line in laptop.medley("events").out.splitlines()
            if "hot: tower/sim:tower" in line
        ]
        check(why, laptop.medley("events").out)
        world.say(f"left after {time.monotonic() - began:.0f} s of work: {why[-1]}")
        world.say(
            "\n".join(
                line
                for line in tower.log_text().splitlines()
                if "heat" in line and "sim:tower" in line
            )
        )
        check(
            "held" not in tower.log_text() and "paused" not in tower.log_text(),
            f"it was held: {temperature(tower)}",
        )
    with world.step("it would be hot again: its layers stay away"):
        began = time.monotonic()
        while time.monotonic() - began < 60:
            generate(laptop, 1)
            check_equal(devices(laptop), ["sim:laptop"], "devices with layers")


run(scenario, Governed)
