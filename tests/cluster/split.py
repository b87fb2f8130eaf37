"""A model that no node holds alone: placed over three, fetched in parts, the same text from every
entry. MEDLEY_TRANSPORT: tcp or quic."""
import json
import os
import threading

from harness import check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME = "Medley Stories"
PROMPTS = [f"Tell me a story about a {animal}." for animal in ("fox", "cat", "bear", "duck")]
GREEDY = ["--temp", "0", "--seed", "1", "-n", "40", "--json"]
CONTEXT = ["-c", "256"]
# With 256 tokens of context 4.5 MiB hold three layers of the model, 5.7 MiB the last with the
# output: three nodes or none.
MEMORY = {"laptop": "4.5MiB", "tower": "4.5MiB", "attic": "5.7MiB"}
LAYER_BYTES, HEADER_BYTES = 432333, 160 << 10


def stages_of(stages):
    return [(stage["node"], stage["first_layer"], stage["n_layers"]) for stage in stages]


def place(world, laptop):
    with world.step("medley plan and medley place agree on three stages"):
        best = laptop.json("plan", world.model, *CONTEXT)["best"]
        planned = [
            (stage["node"], stage["first_layer"], stage["layers"]) for stage in best["stages"]
        ]
        ready = laptop.json("place", world.model, *CONTEXT, "--streams", "1")["ready"]
        world.say(f"stages: {planned}")
        check_equal(stages_of(ready["stages"]), planned, "stages")
        check_equal({stage[0] for stage in planned}, set(MEMORY), "nodes with stages")
        for node in world.nodes:
            wait(
                f"{node.name} sees it ready",
                lambda node=node: node.status()["instances"][0]["state"] == "ready",
            )
            check_equal(node.status()["models"][0]["name"], NAME, "model")
    return ready["stages"]


def fetched_bytes(node):
    return sum(path.stat().st_blocks * 512 for path in (node.state / "models").glob("*.gguf"))


def shelves(world, stages):
    """More than the own layers only as spare copies, which come slowly, and of what is copied
    while others still fetch it."""
    with world.step("who had no copy has its own layers, and none comes to it twice"):
        for node, stage in (
            (node, stage) for stage in stages for node in world.nodes if node.name == stage["node"]
        ):
            fetched = fetched_bytes(node)
            world.say(f"{node.name}: {stage['n_layers']} layers, {fetched} bytes")
            if node.name == "laptop":
                check_equal(fetched, 0, "bytes on the shelf of the node that has the file")
                continue
            most = os.path.getsize(world.model) + HEADER_BYTES
            check(
                stage["n_layers"] * LAYER_BYTES <= fetched <= most,
                f"{node.name} has {fetched} bytes for {stage['n_layers']} layers",
            )


def texts_here(world, laptop):
    """What the whole model says on one machine, without any cluster."""
    return {
        prompt: json.loads(
            laptop.medley("run", "--here", world.model, *CONTEXT, "-p", prompt, *GREEDY).out
        )["text"]
        for prompt in PROMPTS
    }


def entries(world, wanted):
    with world.step("the API of each node gives the text of the whole model"):
        for node in world.nodes:
            models = node.http("GET", "/v1/models")[1]["data"]
            check_equal([model["id"] for model in models], [NAME], f"models of {node.name}")
            check_equal(
                node.chat(PROMPTS[0], model=NAME), wanted[PROMPTS[0]], f"text of {node.name}"
            )
    with world.step("and piece by piece, too"):
        for node in world.nodes:
            pieces = [piece for _, piece in node.stream(PROMPTS[1], model=NAME)]
            check(len(pieces) > 5, f"{node.name}: {len(pieces)} pieces")
            check_equal("".join(pieces), wanted[PROMPTS[1]], f"text of {node.name}")


def times(world, laptop):
    with world.step("a record has what each stage and link took"):
        laptop.chat(PROMPTS[3], model=NAME)
        record = laptop.http("GET", "/api/requests")[1]["finished"][0]
        stages, ran = record["stages"], record["prefill_ms"] + record["decode_ms"]
        check_equal(len({stage["node"] for stage in stages}), 3, f"{record}")
        for stage in stages:
            check(0 < stage["compute_ms"] <= ran and stage["link_bytes"] > 0, f"{record}")
        parts = ("compute_ms", "wait_ms", "link_ms")
        shares = {part: sum(stage[part] for stage in stages) for part in parts}
        world.say(f"{ran:.1f} ms: {shares}, back {record['back_ms']}")
        # One short prompt, then a token after the other: nothing is under way twice.
        check(0.5 * ran < sum(shares.values()) + record["back_ms"] < 1.05 * ran, f"{record}")


def at_once(world, wanted):
    with world.step("eight requests at once, at all nodes"):
        answers = {}

        def ask(number):
            node, prompt = world.nodes[number % 3], PROMPTS[number % 4]
            answers[number] = (prompt, node.chat(prompt, model=NAME))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_equal(len(answers), 8, "answers")
        for prompt, text in answers.values():
            check_equal(text, wanted[prompt], prompt)


def measured(node):
    return [link for link in node.json("links")["links"]
            if None not in (link["latency_ns"], link["loss_ppm"], link["bytes_per_s"])]


def links(world, node):
    """What is between the two that do not lead is measured by them, and told to everybody."""
    with world.step("each direction has a latency, a loss and a bandwidth"):
        wait("all six are measured", lambda: len(measured(node)) == 6, 60)
        leader = [each["name"] for each in node.json("nodes")["nodes"] if each["leads"]]
        for link in measured(node):
            world.say(f"{link['from']} -> {link['to']}: {link['loss_ppm']} ppm lost, "
                      f"{link['bytes_per_s'] / 1e6:.0f} MB/s")
        check_equal(len([link for link in measured(node)
                         if not {link["from"], link["to"]} & set(leader)]), 2,
                    "directions between those that do not lead")


def scenario(world):
    with world.step("three nodes with small devices are one cluster"):
        options = {
            name: ["--sim", world.sim(name, memory=memory)] for name, memory in MEMORY.items()
        }
        laptop, tower, attic = world.cluster(*MEMORY, all=OPTIONS, **options)
        wait(
            "what is between them is known",
            lambda: len(
                [
                    link
                    for link in laptop.json("links")["links"]
                    if link["latency_ns"] is not None
                    and (link["class"] == "ethernet" or link["bytes_per_s"])
                ]
            )
            == 6,
            30,
        )
    stages = place(world, laptop)
    shelves(world, stages)
    wanted = texts_here(world, laptop)
    entries(world, wanted)
    times(world, laptop)
    at_once(world, wanted)
    links(world, tower)
    with world.step("medley run on each node gives it, too"):
        for node in world.nodes:
            answer = json.loads(node.medley("run", world.model, "-p", PROMPTS[2], *GREEDY).out)
            check_equal(answer["text"], wanted[PROMPTS[2]], f"text of {node.name}")
            check_equal(stages_of(answer["stages"]), stages_of(stages), f"stages on {node.name}")
    with world.step(
        "medley unload frees the devices, and medley place on another node takes them again"
    ):
        laptop.medley("unload", NAME)
        for node in world.nodes:
            wait(f"{node.name} has no instance", lambda node=node: node.status()["instances"] == [])
        wait(
            "the devices are free",
            lambda: [
                device["free_bytes"]
                for node in tower.json("nodes")["nodes"]
                for device in node["devices"]
            ]
            == [
                device["memory_bytes"]
                for node in tower.json("nodes")["nodes"]
                for device in node["devices"]
            ],
        )
        tower.medley("place", NAME, *CONTEXT, "--streams", "1")
        check_equal(attic.chat(PROMPTS[3], model=NAME), wanted[PROMPTS[3]], "text")


run(scenario)
