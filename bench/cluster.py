#!/usr/bin/env python3
"""Measures a cluster of real nodes in network namespaces: ./dev bench cluster. One part, one side, one round:

  cluster.py PART SIDE [options]

prints lines `CLAIM SIDE VALUE` on standard output, and what it is doing on standard error. Parts and sides:

  half    medley | llama.cpp         2 nodes, half of the layers each, 1 Gbit/s, 0.25 ms, beside one node alone; llama.cpp over RPC
  chain   medley | llama.cpp         3 nodes in a chain, a small model, 2 ms each way
  drafts  medley                     the chain with guesses and without, in turn: text that repeats, text that does not
  guesser medley                     a draft model: none, a copy on the model's own device, and one that is asked on a quicker machine
  prefill medley                     a prompt over two nodes beside one, with --pin on a core each
  join    medley                     from a process's start to a member with its links: known peer, mDNS, after a restart
  load    medley                     a model of 1.2 GB comes to a node that lacks it, beside a bare TCP connection
  rest    medley                     what a node costs that does nothing
  unlike  medley | best              two unlike simulated devices, 8 streams; the better one alone
  wire    medley                     bytes on the network over those of the hidden states

The layers are forced to where they are by simulated devices with little memory that are as fast as the CPU.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

from cluster_world import Node, World, complete, decode_rate, form, made_up_text, prefill_rate

# Faster than any CPU: the device takes as long as the CPU does.
UNPACED = "decode = 1000TB/s\nflops = 1000PFLOP/s\ncopy = 1000TB/s\nlaunch = 0s\n"
CONTEXT = 1024


def say(text):
    print(text, file=sys.stderr, flush=True)


def tell(claim, side, value):
    print(claim, side, f"{value:.6g}", flush=True)


def sim_file(args, name, memory, speed=UNPACED):
    path = args.folder / f"{name}.ini"
    path.write_text(f"[{name}]\nmemory = {memory}\n{speed}")
    return path


def make_world(args, n, delay_us, **more):
    world = World(n, args.delay, delay_us, **more)
    say(f"    {n} machines, ping {world.round_trip_ms:.3f} ms, load {os.getloadavg()[0]:.2f}")
    return world


def make_nodes(args, world, devices, model=None, folder="."):
    """One node with each of the simulated devices, in one cluster; the model's file lies on all of them."""
    nodes = []
    for machine, sim in zip(world.machines, devices):
        options = ["--sim", sim, "-t", args.threads, "--no-governor", "--no-discovery", *args.more]
        nodes.append(Node(machine, args.medley, args.folder / folder, options))
    args.running += nodes
    form(nodes)
    for node in nodes if model else []:
        args.name = node.add(model)
    return nodes


def stop(args):
    for node in reversed(args.running):
        node.stop()
    args.running = []


def show(ready):
    stages = ", ".join(f"{s['node']} {s['first_layer']}+{s['n_layers']}" for s in ready["stages"])
    say(f"    {ready['instance']}: {stages}; forecast {ready.get('forecast_decode_tokens_per_s', 0):.1f} tok/s")


def first_machine(nodes, ready):
    """Where the driver is, and a client need not go over the network."""
    return next(node.machine for node in nodes if node.machine.name == ready["stages"][0]["node"])


def measure(args, machine, nodes, claim, side, turn=0):
    """Decode of one sequence and prefill of about 512 tokens, over HTTP. Beside it, what the nodes computed."""
    complete(machine, args.name, [made_up_text(100 * turn + 1, 8)], 4)
    before, began = sum(node.processor_s() for node in nodes), time.monotonic()
    rate = decode_rate(complete(machine, args.name, [made_up_text(100 * turn + 2, 4)], args.tokens))
    computed, passed = sum(node.processor_s() for node in nodes) - before, time.monotonic() - began
    say(f"    {side}: computed {100 * computed / passed:.1f} % of the time that passed")
    tell(f"{claim}_decode", side, rate)
    if args.words:
        tell(f"{claim}_prefill", side, prefill_rate(complete(machine, args.name, [made_up_text(100 * turn + 3, args.words)], 2)[0]))


def pin_machines(machines):
    """One core each, in turn: two nodes then compute at the same time, and one alone has one core, too."""
    cores = sorted(os.sched_getaffinity(0))
    for i, machine in enumerate(machines):
        machine.core = cores[i % len(cores)]


# ---- half of the layers each ------------------------------------------------------------------------------


def llama_bench(machine, args, model, layers, servers, tests):
    command = ["llama-bench", "-m", model, "--rpc", ",".join(servers), "-ngl", layers, "-t", args.threads, "-r", 1, "-o", "json",
               *tests]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, preexec_fn=machine.enter)
    if done.returncode:
        raise SystemExit(f"llama-bench failed: {done.stderr[-2000:]}")
    return {f"pp{t['n_prompt']}" if t["n_prompt"] else f"tg{t['n_gen']}": t["avg_ts"] for t in json.loads(done.stdout)}


def run_llama(args, n, delay_us, model, layers, tests):
    world = make_world(args, n, delay_us)
    if args.pin:
        pin_machines(world.machines)
    servers = [m.start([args.rpc_server, "-H", m.address, "-p", 50052, "-t", args.threads], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL) for m in world.machines[1:]]
    time.sleep(1)
    try:
        return llama_bench(world.machines[0], args, model, layers, [f"{m.address}:50052" for m in world.machines[1:]], tests)
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        world.close()


def half(args):
    model = args.models / f"synth-1b-{args.type}.gguf"
    if args.side == "llama.cpp":
        # The last 7 layers and the output, which counts as one, are the server's: as ours are split.
        results = run_llama(args, 2, 250, model, 8, ["-p", 512, "-n", args.tokens])
        tell("cluster_decode", args.side, results[f"tg{args.tokens}"])
        tell("cluster_prefill", args.side, results["pp512"])
        return
    # Both at the same time, one of them idle: taking turns is then a matter of seconds.
    pair, single = make_world(args, 2, 250), make_world(args, 2, 250)
    if args.pin:
        pin_machines([*pair.machines, *single.machines])
    nodes = make_nodes(args, pair, [sim_file(args, f"d{i}", m) for i, m in enumerate(args.memory.split(","))], model)
    alone = make_nodes(args, single, [sim_file(args, "all", "4GiB")], model, "alone")[0]
    ready = nodes[0].place(args.name, context=CONTEXT, streams=1, goal="latency")
    show(ready)
    # The output matrix is as much work as a layer: 9 layers, and 7 with the output, are halves.
    if [stage["n_layers"] for stage in ready["stages"]] != [9, 7]:
        raise SystemExit("the layers did not fall in halves")
    show(alone.place(args.name, context=CONTEXT, streams=1, goal="latency"))
    first = first_machine(nodes, ready)
    for turn in range(args.turns):
        measure(args, alone.machine, [alone], "cluster", "one node", turn)
        measure(args, first, nodes, "cluster", "medley", turn)
    stop(args)
    pair.close()
    single.close()


def chain(args):
    model = args.models / "synth-small-q4_0.gguf"
    if args.side == "llama.cpp":
        tests = ["-p", 0, "-n", args.tokens]
        tell("chain_decode", args.side, run_llama(args, 3, 2000, model, 9, tests)[f"tg{args.tokens}"])
        return
    world = make_world(args, 3, 2000)
    nodes = make_nodes(args, world, [sim_file(args, f"d{i}", "96MiB") for i in range(3)], model)
    nodes[0].place(args.name, context=256, streams=1, goal="latency", speculate="off")
    nodes[0].move(args.name, ",".join(f"m{i + 1}/sim:d{i}:{n}" for i, n in enumerate(args.layers.split(","))))
    args.words = 0
    measure(args, world.machines[0], nodes, "chain", "medley")
    stop(args)
    world.close()


# ---- guesses over the chain -----------------------------------------------------------------------------------

# Made-up weights say nothing twice by themselves: what an answer must look like makes it repeat. Capitals are tokens of their
# own, if those of bytes are kept out.
DRAFTED = {
    "same": r"(THE LITTLE DOG SAT ON THE BIG MAT AGAIN\. )*",
    "edits": r"((THE|ONE) LITTLE DOG SAT ON THE BIG (MAT|LOG) AGAIN\. )*",
    "dice": r"[AB]*",
    "free": None,
}
NO_BYTES = {str(3 + byte): -100 for byte in (2 - 3, *b" .ABCDEFGHIJKLMNOPQRSTUVWXYZ")}


def drafts(args):
    """Two clusters of three nodes, one of which is idle while the other answers; every answer must be the same."""
    model = args.models / args.model
    firsts, worlds, names = {}, [], {}
    for side in "off", "lookup":
        world = make_world(args, 3, args.each_way)
        nodes = make_nodes(args, world, [sim_file(args, f"{side}{i}", "96MiB", args.speed or UNPACED) for i in range(3)],
                           model, side)
        nodes[0].place(args.name, context=args.context, streams=1, speculate=side)
        nodes[0].move(args.name, ",".join(f"m{i + 1}/sim:{side}{i}:{n}" for i, n in enumerate(args.layers.split(","))))
        firsts[side] = world.machines[0]
        worlds.append(world)
    for kind in args.kinds.split(","):
        sampling = {"guided_regex": DRAFTED[kind], "logit_bias": NO_BYTES} if DRAFTED[kind] else {}
        ratios = []
        for turn in range(args.turns):
            rates, answers, guesses = {}, {}, None
            for side in ("off", "lookup") if turn % 2 else ("lookup", "off"):
                done = complete(firsts[side], args.name, [made_up_text(50 + turn, 12)], args.tokens, temperature=1, seed=turn + 1,
                                **sampling)[0]
                rates[side], answers[side] = (args.tokens - 1) / (done.times[-1] - done.times[0]), done.text
                guesses = done.timings or guesses
                tell(f"drafts_{kind}", "medley" if side == "lookup" else "no guesses", rates[side])
            if answers["off"] != answers["lookup"]:
                raise SystemExit(f"{kind}, turn {turn}: another answer with guesses")
            ratios.append(rates["lookup"] / rates["off"])
            say(f"    {kind}: {rates['off']:.1f} and {rates['lookup']:.1f} tok/s, {ratios[-1]:.3f}; {guesses}")
        tell(f"drafts_{kind}_ratio", "medley", statistics.median(ratios))
    stop(args)
    for world in worlds:
        world.close()


def small_of(args):
    """The model --model in Q4_0, under another name of the same length."""
    model, small = args.models / args.model, args.folder / "small.gguf"
    subprocess.run([args.medley, "convert", model, "--to", "q4_0", "--pure", "-o", small], check=True, stdout=subprocess.DEVNULL)
    bytes_, name = small.read_bytes(), args.name.encode()
    if bytes_.count(name) != 1:
        raise SystemExit(f"{model} does not say once that it is {args.name}")
    small.write_bytes(bytes_.replace(name, name[:-1] + b"2"))
    return small


def place_drafted(args, nodes, side, small):
    """The model on m1's device, by hand, once its draft model is where it is to be."""
    wishes = {"context": args.context, "streams": 1, "speculate": "off" if side == "none" else "lookup"}
    if side != "none":
        wishes["draft"] = nodes[0].add(small)
    if side == "asked":
        nodes[0].place(wishes["draft"], context=args.context, streams=1)
        nodes[0].move(wishes["draft"], f"m2/sim:{side}1:{args.layers}")
    nodes[0].place(args.name, **wishes)
    nodes[0].move(args.name, f"m1/sim:{side}0:{args.layers}")
    if side != "none":
        nodes[0].wait_for(lambda: " guesses " in (nodes[0].folder / "log").read_text(), "its draft model")


def guesser(args):
    """Three clusters of two machines, of which one answers at a time; every answer must be the same."""
    model, small = args.models / args.model, None
    slow, quick = (f"decode = {args.slow}MB/s\nflops = 40GFLOP/s\ncopy = 100GB/s\nlaunch = 0s\n",
                   f"decode = {args.quick}MB/s\nflops = 40GFLOP/s\ncopy = 100GB/s\nlaunch = 0s\n")
    sides, worlds, firsts = ["none", "copy", "asked"], [], {}
    for side in sides:
        world = make_world(args, 2, args.each_way)
        devices = [sim_file(args, f"{side}0", "64MiB", slow), sim_file(args, f"{side}1", "64MiB", quick)]
        nodes = make_nodes(args, world, devices, model, side)
        small = small or small_of(args)
        place_drafted(args, nodes, side, small)
        firsts[side] = world.machines[0]
        worlds.append(world)
    ratios = {side: [] for side in sides}
    for turn in range(args.turns + 1):
        rates, answers, guesses = {}, {}, {}
        for side in sides[turn % 3:] + sides[:turn % 3]:
            text = "Once upon a time there was a " + ["cat", "dog", "girl", "boy", "bird", "tree"][turn % 6]
            done = complete(firsts[side], args.name, [text], args.tokens, temperature=0.7, seed=turn + 1)[0]
            rates[side], answers[side] = (len(done.times) - 1) / (done.times[-1] - done.times[0]), done.text
            guesses[side] = done.timings
        if len(set(answers.values())) != 1:
            raise SystemExit(f"turn {turn}: another answer with guesses")
        say(f"    {', '.join(f'{side} {rates[side]:.1f}' for side in sides)} tok/s; {guesses['copy']}; {guesses['asked']}")
        for side in sides if turn else []:  # in the first, prices are learnt
            tell("guesser", side, rates[side])
            ratios[side].append(rates[side] / rates["none"])
    for side in sides[1:]:
        tell("guesser_ratio", side, statistics.median(ratios[side]))
    stop(args)
    for world in worlds:
        world.close()


# ---- a prompt over two nodes ------------------------------------------------------------------------------------


def prefill(args):
    """A prompt of about --words read on two nodes, with --layers on each, and on one, in turn."""
    model, layers = args.models / args.model, [int(n) for n in args.layers.split(",")]
    pair, single = make_world(args, 2, 250), make_world(args, 2, 250)
    if args.pin:
        pin_machines([*pair.machines, *single.machines])
    both = make_nodes(args, pair, [sim_file(args, f"half{i}", "4GiB", args.speed or UNPACED) for i in range(2)], model)
    alone = make_nodes(args, single, [sim_file(args, "all", "4GiB", args.speed or UNPACED)], model, "alone")[0]
    context = max(CONTEXT, args.context)
    both[0].place(args.name, context=context, streams=1)
    both[0].move(args.name, ",".join(f"m{i + 1}/sim:half{i}:{n}" for i, n in enumerate(layers)))
    alone.place(args.name, context=context, streams=1)
    ratios = []
    for turn in range(args.turns + 1):
        rates = {}
        for side, machine in [("one node", alone.machine), ("medley", pair.machines[0])][:: 1 if turn % 2 else -1]:
            done = complete(machine, args.name, [made_up_text(100 * turn + 3, args.words)], 2)[0]
            rates[side] = prefill_rate(done)
            if turn:  # the first learns how long a chunk takes
                tell("nodes_prefill", side, rates[side])
        say(f"    {rates['one node']:.1f} and {rates['medley']:.1f} tok/s of {done.usage['prompt_tokens']} tokens, "
            f"{rates['medley'] / rates['one node']:.3f}")
        ratios += [rates["medley"] / rates["one node"]] if turn else []
    tell("nodes_prefill_ratio", "medley", statistics.median(ratios))
    stop(args)
    pair.close()
    single.close()


# ---- joining -------------------------------------------------------------------------------------------------


def join(args):
    world = make_world(args, 2, 250)
    for way in "peer", "mdns":
        more = ["-t", args.threads, "--no-governor"] + (["--no-discovery"] if way == "peer" else [])
        nodes = [Node(machine, args.medley, args.folder / way, more) for machine in world.machines]
        args.running = nodes
        nodes[0].start("--new")
        nodes[0].wait_for(nodes[0].is_member, "its cluster")
        time.sleep(3)  # the first's own start, and its first announcement, are not what is measured
        code = nodes[0].ask({"do": "invite", "minutes": 5})["code"]
        peer = ["--peer", world.machines[0].address] if way == "peer" else []
        nodes[1].start(*peer, "--join", code)
        tell(f"join_{way}", "medley", nodes[1].wait_for(lambda: nodes[1].sees(2), "its links"))
        time.sleep(2)
        nodes[1].stop()
        time.sleep(2)
        nodes[1].start(*peer)
        tell(f"join_{way}_again", "medley", nodes[1].wait_for(lambda: nodes[1].sees(2), "its links"))
        stop(args)
    world.close()


# ---- weights ---------------------------------------------------------------------------------------------------


def bare_tcp(world, size):
    """Bytes a second that one TCP connection carries from the first machine to the second."""
    code = ("import socket, sys\n"
            "s = socket.create_server((sys.argv[1], 5001)); print(flush=True); c = s.accept()[0]\n"
            "room = bytearray(1 << 20)\nwhile c.recv_into(room): pass\nc.sendall(b'x')")
    sink = world.machines[1].start([sys.executable, "-c", code, world.machines[1].address], stdout=subprocess.PIPE)
    sink.stdout.readline()
    with world.machines[0].inside():
        sock = socket.create_connection((world.machines[1].address, 5001))
    block = bytes(1 << 20)
    begin = time.monotonic()
    for _ in range(size >> 20):
        sock.sendall(block)
    sock.shutdown(1)
    sock.recv(1)
    sink.wait()
    return size / (time.monotonic() - begin)


def load(args):
    model = args.models / "synth-1b-q8_0.gguf"
    world = make_world(args, 2, 250, offload=True)
    tell("load", "bare TCP", bare_tcp(world, 1 << 30) / 1e6)
    sims = [sim_file(args, "small", "64MiB"), sim_file(args, "large", "4GiB")]
    nodes = make_nodes(args, world, sims)
    args.name = nodes[0].add(model)
    samples, began = [], time.monotonic()
    before = [node.processor_s() for node in nodes]
    done = threading.Event()

    def watch():
        while not done.is_set():
            samples.append((time.monotonic(), world.machines[1].traffic()["rx"]))
            time.sleep(0.02)
    watcher = threading.Thread(target=watch)
    watcher.start()
    ready = nodes[0].place(args.name, context=CONTEXT, streams=1)
    all_s = time.monotonic() - began
    done.set()
    watcher.join()
    show(ready)
    first, last = samples[0][1], samples[-1][1]
    part = [s for s in samples if first + 0.01 * (last - first) <= s[1] <= first + 0.99 * (last - first)]
    rate = (part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0])
    size = sum(f.stat().st_blocks * 512 for f in nodes[1].folder.glob("models/*.gguf"))
    spent = [node.processor_s() - b for node, b in zip(nodes, before)]
    say(f"    {size / 1e6:.0f} MB in {all_s:.2f} s from `place` to ready; while bytes came {rate / 1e6:.1f} MB/s; "
        f"processor {spent[0]:.1f} s and {spent[1]:.1f} s")
    tell("load", "medley", rate / 1e6)
    tell("load_whole", "medley", size / all_s / 1e6)
    stop(args)
    world.close()


# ---- at rest ---------------------------------------------------------------------------------------------------------


def rest(args):
    world = make_world(args, 3, 250)
    # Without Vulkan: where no graphics card is, its software driver would be most of the memory.
    nodes = [Node(machine, args.medley, args.folder, ["--backend", "cpu"]) for machine in world.machines]
    args.running = nodes
    form(nodes)
    time.sleep(30)
    begin = [(time.monotonic(), node.processor_s(), node.machine.traffic()) for node in nodes]
    time.sleep(args.seconds)
    for node, (at, processor, traffic) in zip(nodes, begin):
        seconds, now = time.monotonic() - at, node.machine.traffic()
        tell("rest_cpu", "medley", 100 * (node.processor_s() - processor) / seconds)
        tell("rest_sent", "medley", (now["tx"] - traffic["tx"]) / seconds)
        tell("rest_received", "medley", (now["rx"] - traffic["rx"]) / seconds)
        say(f"    {node.machine.name}: {(now['tx_packets'] - traffic['tx_packets']) / seconds:.1f} packets sent a second")
        memory = node.memory()
        tell("rest_memory", "medley", memory["VmRSS"] / 1024)
        tell("rest_memory_own", "medley", memory["RssAnon"] / 1024)
    stop(args)
    world.close()


# ---- unlike devices ----------------------------------------------------------------------------------------------------

UNLIKE = ["decode = 1250MB/s\nflops = 8GFLOP/s\ncopy = 10GB/s\nlaunch = 20us\n",
          "decode = 750MB/s\nflops = 5GFLOP/s\ncopy = 10GB/s\nlaunch = 20us\n"]


def unlike(args):
    model = args.models / "synth-1b-q4_0.gguf"
    both = args.side == "medley"
    world = make_world(args, 2, 250)
    sims = [sim_file(args, f"d{i}", "4GiB", speed) for i, speed in enumerate(UNLIKE[:2 if both else 1])]
    nodes = make_nodes(args, world, sims, model)
    ready = nodes[0].place(args.name, context=256, streams=8, goal="throughput")
    show(ready)
    tell("unlike_forecast", "medley" if both else "better device alone", ready["forecast_decode_tokens_per_s"])
    complete(world.machines[0], args.name, [made_up_text(1, 8)], 2)
    requests = complete(world.machines[0], args.name, [made_up_text(10 + i, 8) for i in range(8)], args.tokens)
    tell("unlike", "medley" if both else "better device alone", decode_rate(requests))
    late = sum("simulated too slowly" in (node.folder / "log").read_text() for node in nodes)
    if late:
        say("    this machine's CPU was too slow for the devices: the figure means nothing")
    stop(args)
    world.close()


# ---- bytes --------------------------------------------------------------------------------------------------------------

HEADERS = 14 + 20 + 32  # Ethernet, IPv4, TCP with time stamps: of every packet, whatever it carries


def wire(args):
    """Both nodes' sent bytes over the hidden states that went from the first to the second (f32)."""
    model, width = args.models / "synth-1b-q4_0.gguf", 2048
    world = make_world(args, 2, 250)
    nodes = make_nodes(args, world, [sim_file(args, f"d{i}", "450MiB") for i in range(2)], model)
    time.sleep(15)  # the first bursts that measure the link are not the pipeline's
    for streams in 1, 8:
        ready = nodes[0].place(args.name, context=CONTEXT if streams == 1 else 128, streams=streams,
                               goal="latency" if streams == 1 else "throughput")
        show(ready)
        complete(world.machines[0], args.name, [made_up_text(1, 8)], 2)
        wire_of(world, args.name, width, f"wire_{streams}", [made_up_text(20 + i, 4) for i in range(streams)], args.tokens)
        if streams == 1:
            wire_of(world, args.name, width, "wire_prefill", [made_up_text(3, args.words)], 1)
    stop(args)
    world.close()


def wire_of(world, name, width, claim, texts, tokens):
    before = [machine.traffic() for machine in world.machines]
    requests = complete(world.machines[0], name, texts, tokens)
    after = [machine.traffic() for machine in world.machines]
    rows = sum(r.usage["prompt_tokens"] + r.usage["completion_tokens"] - 1 for r in requests)
    states = 4 * width * rows
    sent = sum(b["tx"] - a["tx"] for a, b in zip(before, after))
    packets = sum(b["tx_packets"] - a["tx_packets"] for a, b in zip(before, after))
    say(f"    {claim}: {rows} rows, {sent} bytes in {packets} packets over {states} of hidden states")
    tell(claim, "Ethernet", 100 * (sent / states - 1))
    tell(claim, "above TCP", 100 * ((sent - HEADERS * packets) / states - 1))


def main():
    parts = {"half": half, "chain": chain, "drafts": drafts, "guesser": guesser, "prefill": prefill, "join": join, "load": load, "rest": rest, "unlike": unlike, "wire": wire}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    parser.add_argument("side")
    parser.add_argument("--medley", default="build/release/src/cli/medley")
    parser.add_argument("--delay", default="build/release/bench/delay")
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("build/models"))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/bench/nodes"))
    parser.add_argument("--rpc-server", default="/usr/libexec/x86_64-linux-gnu/llama/bin/ggml-rpc-server")
    parser.add_argument("--type", default="q4_0")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=1, help="of `half`, `drafts`, `guesser` and `prefill`, in one session")
    parser.add_argument("--context", type=int, default=256, help="of `drafts` and `guesser`; of `prefill`, if more than 1024")
    parser.add_argument("--each-way", type=int, default=2000, help="microseconds, of the links of `drafts` and `guesser`")
    parser.add_argument("--slow", type=int, default=60, help="MB/s that the device of `guesser` reads which has the model …")
    parser.add_argument("--quick", type=int, default=320, help="… and that of the other machine")
    parser.add_argument("--speed", type=lambda s: s.replace(",", "\n") + "\n", help="of the devices of both, as in a file of --sim")
    parser.add_argument("--model", default="synth-small-q4_0.gguf", help="of `drafts` and `prefill`, with …")
    parser.add_argument("--layers", default="4,4,4", help="… so many layers on each node")
    parser.add_argument("--kinds", default="same,edits,dice,free", help="of text, of `drafts`")
    parser.add_argument("--pin", action="store_true", help="the nodes of `half` and `prefill` to a core each")
    parser.add_argument("--words", type=int, default=511, help="of the long prompt")
    parser.add_argument("--seconds", type=int, default=60, help="at rest")
    parser.add_argument("--memory", default="425MiB,425MiB", help="of the two devices that share the model in halves")
    parser.add_argument("--more", default="", help="further options of medley up")
    args = parser.parse_args()
    args.more, args.running = args.more.split(), []
    args.folder = args.folder.resolve()
    args.medley = str(pathlib.Path(args.medley).resolve())
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    try:
        parts[args.part](args)
    finally:
        stop(args)


if __name__ == "__main__":
    main()
