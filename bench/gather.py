#!/usr/bin/env python3
"""Time to the first answer of a model that is only in a hub: three machines that gather it, beside one that
pulls all of it and shares. Each machine has a connection of so many Mbit/s each way (tc tbf on both ends of its
cable); the hub is tests/hub's, in this process, on a connection that is not limited unless --server-mbit says so.

    bench/gather.py [--mbit 100] [--server-mbit 0] [--layers 16] [--rounds 1]

Needs root, or namespaces for users; MEDLEY and SYNTH name the programs. The model is of 1.2 GB (F16, random
weights); no two machines have room for it. Prints a line of JSON for each run, and the ratio of the medians."""
import argparse
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
os.environ.setdefault("MEDLEY", str(ROOT / "build/release/src/cli/medley"))
os.environ.setdefault("MEDLEY_MODEL", str(ROOT / "models/demo.gguf"))
sys.path += [str(ROOT / "tests/cluster"), str(ROOT / "tests/hub")]
from harness import World, run, wait  # noqa: E402
from hub_server import Hub  # noqa: E402
from namespaces import ip  # noqa: E402

SYNTH = os.environ.get("SYNTH", str(ROOT / "build/release/tools/synth-model"))
NAMES = ("laptop", "tower", "mini")


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mbit", type=float, default=100)
    parser.add_argument("--server-mbit", type=float, default=0)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args()


def limit(device, mbit):
    subprocess.run(f"tc qdisc add dev {device} root tbf rate {mbit}mbit burst 64kb latency 50ms".split(), check=True)


def limit_node(node, mbit):
    limit(node.network.port, mbit)
    with node.network.inside():
        limit("cable", mbit)


def make_model(folder, layers):
    path = folder / "model.gguf"
    shape = "--embd 1536 --ff 6144 --heads 16 --kv-heads 4 --vocab 16384 --context 512"
    subprocess.run([SYNTH, "--type", "f16", "--layers", str(layers), *shape.split(), path], check=True)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), f"synthetic {layers}x1536 f16"


def first_answer(node, name):
    for seconds, _ in node.stream("Hello.", model=name, max_tokens=1):
        return seconds
    return None


def once(world, hub, how, number, args, size, name):
    """A cluster of its own, which knows nothing of the model."""
    # three have room for it together, two have not
    memory = f"{size * 45 // 100 >> 20}MiB"
    sims = {n: ["--no-discovery", "--sim", world.sim(n, memory=memory, decode="20GB/s", flops="400GFLOP/s")]
            for n in NAMES}
    nodes = world.cluster(*NAMES, **sims)
    for node in nodes:
        limit_node(node, args.mbit)
    hub.sent, hub.sent_to = 0, {}
    word, demand = "hf:org/big:F16", ("-c", "256", "--streams", "1", "--goal", "latency")
    begin = time.monotonic()
    said, pulled_s = [], None
    if how == "gather":
        out = nodes[0].medley("place", word, *demand, "--json", seconds=3600).out
        said = [json.loads(line)["gathering"] for line in out.splitlines() if '"gathering"' in line]
    else:
        path = nodes[0].medley("pull", word, seconds=3600).out.splitlines()[-1]
        pulled_s = time.monotonic() - begin
        nodes[0].medley("place", path, *demand, seconds=3600)
    ready_s = time.monotonic() - begin
    first_answer(nodes[0], name)
    answer_s = time.monotonic() - begin
    forecasts = [round(line["forecast_s"], 1) for line in said if "forecast_s" in line]
    result = {"how": how, "mbit": args.mbit, "server_mbit": args.server_mbit, "bytes": size, "round": number,
              "pulled_s": pulled_s and round(pulled_s, 1), "ready_s": round(ready_s, 1),
              "answer_s": round(answer_s, 1), "sent": hub.sent, "sent_to": list(hub.sent_to.values()),
              "forecasts_s": forecasts[:3] + forecasts[3::10]}
    world.say(json.dumps(result))
    for node in nodes:
        node.end()
        subprocess.run(["rm", "-rf", str(node.state)], check=True)
        ip("link", "del", node.network.port)
    world.nodes.clear()
    return answer_s


def bench(world):
    args = options()
    ip("address", "add", "10.77.0.254/24", "dev", "switch")
    if args.server_mbit:
        limit("switch", args.server_mbit)
    hub = Hub(address="10.77.0.254")
    os.environ["HF_ENDPOINT"] = hub.url
    data, name = make_model(world.folder, args.layers)
    hub.files["org/big"] = {"big-F16.gguf": data}
    times = {"whole": [], "gather": []}
    with world.step(f"{len(data)} bytes, {args.mbit:g} Mbit/s a machine"):
        for number in range(args.rounds):
            for how, found in times.items():
                found.append(once(world, hub, how, number, args, len(data), name))
    whole, gather = (statistics.median(times[how]) for how in ("whole", "gather"))
    world.say(f"first answer: {whole:.1f} s pulled and shared, {gather:.1f} s gathered: {gather / whole:.2f}x")


if __name__ == "__main__":
    run(bench)
