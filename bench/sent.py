#!/usr/bin/env python3
"""Time until an instance at a smaller type is ready on a machine that lacks the model, over a slow link: the layers
sent in that type, beside sent as stored (as where the instance may become smaller still, --allow-precision, or
the other machine is of an older version). "chose" is what the receiver said when it had weighed link and speeds of
conversion against each other; null: too little came for that.

    bench/sent.py [--mbit 20] [--type f16] [--precision q4_k] [--rounds 1] [--layers 4]
    bench/sent.py --mbit 4000 --layers 16     # a link that carries them as stored sooner than they are converted

Two machines, each with a connection of so many Mbit/s each way (tc tbf on both ends of its cable); the one with
the file has no room to compute the model. Needs root, or namespaces for users; MEDLEY and SYNTH name the programs.
Prints a line of JSON for each run, and the ratio of the medians."""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
os.environ.setdefault("MEDLEY", str(ROOT / "build/release/src/cli/medley"))
os.environ.setdefault("MEDLEY_MODEL", str(ROOT / "models/demo.gguf"))
sys.path += [str(ROOT / "tests/cluster"), str(HERE)]
from gather import limit_node  # noqa: E402
from harness import World, check, run  # noqa: E402, F401
from namespaces import ip  # noqa: E402

SYNTH = os.environ.get("SYNTH", str(ROOT / "build/release/tools/synth-model"))
SHAPE = "--embd 1024 --ff 4096 --heads 16 --kv-heads 4 --vocab 4096 --context 512"


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mbit", type=float, default=20)
    parser.add_argument("--type", default="f16")
    parser.add_argument("--precision", default="q4_k")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--layers", type=int, default=4)
    return parser.parse_args()


def once(world, how, number, args, path):
    memory = {"tower": "8MiB", "mini": "1GiB"}
    nodes = world.cluster(*memory, **{name: ["--no-discovery", "--sim", world.sim(name, memory=size)]
                                      for name, size in memory.items()})
    for node in nodes:
        limit_node(node, args.mbit)
    tower, mini = nodes
    tower.medley("add", str(path))
    words = ["-c", "256", "--streams", "1", "--precision", args.precision]
    if how == "stored":
        words += ["--allow-precision", "q2_k"]
    begin = time.monotonic()
    tower.medley("place", str(path), *words, seconds=3600)
    ready_s = time.monotonic() - begin
    weighed = re.search(r" comes as .*: (fetched as stored|going on)", mini.log_text())
    chose = weighed.group(1) if weighed else None
    if chose != "fetched as stored":
        check((" " + args.precision + ": fetched" in mini.log_text()) == (how == "smaller"),
              "another way than asked for")
    with mini.network.inside():
        seen = json.loads(subprocess.run(["ip", "-s", "-j", "link", "show", "cable"], check=True,
                                         capture_output=True).stdout)[0]
    result = {"how": how, "mbit": args.mbit, "bytes": path.stat().st_size, "round": number, "ready_s": round(ready_s, 1),
              "chose": chose,
              "received": seen["stats64"]["rx"]["bytes"]}
    world.say(json.dumps(result))
    if weighed:
        world.say(weighed.group(0).strip())
    for node in nodes:
        node.end()
        subprocess.run(["rm", "-rf", str(node.state)], check=True)
        ip("link", "del", node.network.port)
    world.nodes.clear()
    return ready_s


def bench(world):
    args = options()
    path = world.folder / "model.gguf"
    subprocess.run([SYNTH, "--type", args.type, "--layers", str(args.layers), *SHAPE.split(), path], check=True)
    times = {"stored": [], "smaller": []}
    with world.step(f"{path.stat().st_size} bytes of {args.type} as {args.precision}, {args.mbit:g} Mbit/s"):
        for number in range(args.rounds):
            for how, found in times.items():
                found.append(once(world, how, number, args, path))
    stored, smaller = (statistics.median(times[how]) for how in ("stored", "smaller"))
    world.say(f"ready: {stored:.1f} s as stored, {smaller:.1f} s as {args.precision}: {smaller / stored:.2f}x")


if __name__ == "__main__":
    run(bench)
