"""A CPU and a GPU of another machine run a model together, and share their cells: the text is that
of one machine with both devices, from each entry, and when the GPU's machine is killed in
mid-reply, the CPU goes on alone. The GPU is software Vulkan: skipped where there is
none."""
import json

from harness import check, check_equal, run, wait

NAME = "Medley Stories"
CONTEXT, CELLS, TOKENS = 512, 1024, 40
VULKAN = {"GGML_VK_VISIBLE_DEVICES": "0"}
SHARED = "There was a bear who liked to play with a red ball in the park."
PROMPTS = [f"{SHARED} Tell me a story about {what}." for what in ("a cat", "the sea", "a tree")]


def has_vulkan(node):
    said = node.popen("devices", "--json", env=VULKAN, stdout=-1, text=True).communicate()[0]
    return any(device["id"] == "vulkan0" for device in json.loads(said)["devices"])


def alone(world, node, prompt):
    """What one machine with both devices says."""
    process = node.popen(
        "run", "--here", world.model, "-c", str(CONTEXT), "--split", "3,2",
        "--devices", "cpu,vulkan0", "-p", prompt, "--temp", "0", "-n",
        str(TOKENS), "--json", env=VULKAN, stdout=-1, text=True,
    )
    return json.loads(process.communicate()[0])["text"]


def instance(node):
    return node.status()["instances"][0]


def scenario(world):
    with world.step("a machine with a CPU, and one with a GPU"):
        laptop, card = world.node("laptop"), world.node("card")
        if not has_vulkan(laptop):
            world.say("there is no software Vulkan here")
            return
        card.more = VULKAN
        laptop.start("--new", "--no-calibrate")
        wait("laptop founds a cluster", lambda: laptop.leader() == "laptop")
        code = laptop.invite()
        card.start("--peer", laptop.address, "--devices", "vulkan0", "--no-calibrate")
        wait("card listens to commands", card.status)
        card.medley("join", code, laptop.address)
        wait("both are up", lambda: len(laptop.nodes()) == 2)
        wanted = alone(world, laptop, PROMPTS[0])

    with world.step("layers on both, which share their cells"):
        laptop.medley("move", "--off")
        laptop.medley(
            "place", world.model, "-c", str(CONTEXT), "--streams", "4", "--cells", str(CELLS)
        )
        laptop.medley("move", NAME, "--to", "laptop/cpu:3,card/vulkan0:2")
        found = instance(card)
        check_equal((found["streams"], found["cells"]), (4, CELLS), "streams and cells")
        check_equal(found.get("apart"), None, "who cannot share")

    with world.step("the text of one machine with both devices, and the same from each entry"):
        for prompt in PROMPTS:
            texts = [node.chat(prompt, model=NAME, max_tokens=TOKENS) for node in (laptop, card)]
            check_equal(texts[0], texts[1], prompt)
            if prompt == PROMPTS[0]:
                check_equal(texts[0], wanted, prompt)

    with world.step("the GPU's machine is killed in mid-reply: the CPU goes on alone"):
        pieces = []
        for _, piece in laptop.stream(PROMPTS[0], model=NAME, max_tokens=TOKENS):
            pieces.append(piece)
            if len(pieces) == 10:
                card.kill()
        text = "".join(pieces)
        check(text.startswith("".join(pieces[:10])) and len(pieces) > TOKENS // 2, text)
        stages = instance(laptop)["stages"]
        check_equal([stage["node"] for stage in stages], ["laptop"], "who has the layers")
        laptop.chat(PROMPTS[1], model=NAME, max_tokens=TOKENS)


run(scenario)
