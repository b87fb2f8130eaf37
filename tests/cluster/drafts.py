"""Guessed tokens in a cluster: the driver, and the machine that checks the guesses, are not the
same. A machine is killed in the middle of an answer that repeats itself, so in the middle of
guesses: the text is that of an undisturbed answer without guesses."""
import os

from harness import check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat."
# 30 ms for a token: there is time to kill
DEVICE = {"memory": "64MiB", "decode": "80MB/s", "flops": "4GFLOP/s"}
# What must come is always the same but for two words, which the sampler chooses.
ASKED = {
    "model": NAME,
    "guided_regex": r"((The|One) little dog sat on the big (mat|log) again\. ){7}",
    "temperature": 1,
    "max_tokens": 400,
}


def lose_a_machine(world, entry, lost, wanted):
    pieces = []
    for _, piece in entry.stream(PROMPT, **ASKED):
        pieces.append(piece)
        if lost.is_running() and sum(map(len, pieces)) > len(wanted) // 3:
            lost.kill()
    check(not lost.is_running(), "the answer was over before a third of it had come")
    check_equal("".join(pieces), wanted, "text")
    world.say(f"{len(pieces)} pieces")


def ask(node):
    """The answer, and what it says of guesses."""
    messages = [{"role": "user", "content": PROMPT}]
    _, answer = node.http("POST", "/v1/chat/completions", {"messages": messages, "seed": 1} | ASKED)
    return answer["choices"][0]["message"]["content"], answer.get("timings")


def instance(node):
    return node.status()["instances"][0]


def scenario(world):
    with world.step("three nodes, the model on two of them"):
        options = {
            name: ["--sim", world.sim(name, **DEVICE)] for name in ("laptop", "tower", "attic")
        }
        laptop, tower, attic = nodes = world.cluster(
            "laptop", "tower", "attic", all=OPTIONS, **options
        )
        laptop.medley("place", world.model, "--streams", "2", "-c", "512", "--speculate", "off")
        for node in nodes:
            node.medley("add", world.model)
            wait(f"{node.name} knows it", lambda node=node: node.status()["instances"])
        laptop.medley("move", "--off")
    with world.step("nothing is guessed where nobody may"):
        wanted, timings = ask(laptop)
        check(len(wanted) > 200, wanted)
        check(timings is None, f"{timings}")
        check_equal(instance(laptop)["speculate"], "off", "status")
        check("speculation off" in laptop.medley("status").out, "status says it")
        laptop.medley("place", NAME, "--speculate", "lookup")
        check("speculate" not in instance(laptop), f"{instance(laptop)}")
        move = ["move", NAME, "--to", "tower/sim:tower:3,attic/sim:attic:2"]
        wait(
            "it is moved, once their link is measured",
            lambda: laptop.medley(*move, ok=None).code == 0,
        )
    with world.step("an answer that repeats itself is guessed"):
        text, timings = ask(laptop)
        check_equal(text, wanted, "the text of plain decoding")
        check(0 < timings["draft_n_accepted"] <= timings["draft_n"], f"{timings}")
        world.say(f"{timings}")
    with world.step("the machine that checks the guesses is killed in mid-answer"):
        lose_a_machine(world, laptop, attic, wanted)
    with world.step("and the next answer is the same"):
        check_equal(laptop.chat(PROMPT, **ASKED), wanted, "text")


run(scenario)
