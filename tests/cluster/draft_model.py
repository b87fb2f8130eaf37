"""A draft model in a cluster: it is fetched to the machine that drives, guesses there, and the
text is that of plain decoding, greedy and sampled. The driver is killed in the middle of an answer:
another takes over, opens the draft model itself, and the text goes on. The tower has a second
device, which is nobody's and quicker: there the draft model guesses."""
import os
import pathlib

from harness import check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME, DRAFT = "Medley Stories", "Medley Storie2"
PROMPT = "Tell me a story about a cat."
# Some 25 ms for a token, and 4 for one of the draft model on the tower: there is time to kill.
SLOW = {"memory": "64MiB", "decode": "60MB/s", "flops": "4GFLOP/s"}
FAST = SLOW | {"decode": "320MB/s"}
SAMPLED = {"model": NAME, "temperature": 0.7, "max_tokens": 150}
GREEDY = {"model": NAME, "temperature": 0, "max_tokens": 60}
OTHER = pathlib.Path(os.environ["MEDLEY_SOURCE"]) / "tests/golden/models/llama.gguf"


def ask(node, **more):
    """The answer, and what it says of guesses."""
    messages = [{"role": "user", "content": PROMPT}]
    _, answer = node.http("POST", "/v1/chat/completions", {"messages": messages, "seed": 1} | more)
    return answer["choices"][0]["message"]["content"], answer.get("timings")


def guesses(node):
    return f"{DRAFT} guesses on" in node.log_text()


def lose_the_driver(world, entry, driver, wanted):
    pieces = []
    for _, piece in entry.stream(PROMPT, **SAMPLED):
        pieces.append(piece)
        if driver.is_running() and sum(map(len, pieces)) > len(wanted) // 3:
            driver.kill()
    check(not driver.is_running(), "the answer was over before a third of it had come")
    check_equal("".join(pieces), wanted, "text")


def scenario(world):
    with world.step("three nodes, the model on two of them"):
        kinds = {"laptop": SLOW, "tower": FAST, "attic": SLOW}
        options = {name: ["--sim", world.sim(name, **kind)] for name, kind in kinds.items()}
        path = world.sim("beside", **FAST | {"decode": "1GB/s", "memory": "16MiB"})
        with options["tower"][1].open("a") as file:
            file.write(path.read_text())  # a second device, on which no layers are placed
        laptop, tower, attic = nodes = world.cluster(
            "laptop", "tower", "attic", all=OPTIONS, **options
        )
        laptop.medley("place", world.model, "--streams", "2", "-c", "512", "--speculate", "off")
        for node in nodes:
            node.medley("add", world.model)
            wait(f"{node.name} knows it", lambda node=node: node.status()["instances"])
        laptop.medley("move", "--off")
        small = world.small_model(laptop, NAME, DRAFT)
        sampled, _ = ask(laptop, **SAMPLED)
        greedy, _ = ask(laptop, **GREEDY)
    with world.step("what cannot draft is refused"):
        other = laptop.medley("place", NAME, "--draft", OTHER, ok=False)
        check("has other tokens than Medley Stories" in other.err, other.err)
        off = laptop.medley("place", NAME, "--draft", small, "--speculate", "off", ok=False)
        check("nothing is to be guessed" in off.err, off.err)
        alone = laptop.medley("place", NAME, "--draft-device", "sim:beside", ok=False)
        check("is where --draft guesses" in alone.err, alone.err)
        flags = ["--draft", small, "--draft-device", "sim:attics", "--speculate", "lookup"]
        nowhere = laptop.medley("place", NAME, *flags, ok=False)
        check("no machine has a device 'sim:attics'" in nowhere.err, nowhere.err)
        check("draft" not in laptop.status()["instances"][0], "nothing has changed")
    with world.step("the draft model goes where the driver is"):
        laptop.medley("place", NAME, "--draft", small, "--speculate", "lookup")
        check_equal(laptop.status()["instances"][0]["draft"], DRAFT, "status")
        forecast = laptop.status()["instances"][0]["forecast_one_stream"]
        check(forecast["repeating_tokens_per_s"] > 1.2 * forecast["tokens_per_s"], f"{forecast}")
        check(f"drafts by {DRAFT}" in laptop.medley("status").out, "status says it")
        check("guesses for" in laptop.medley("forget", DRAFT, ok=False).err, "it is in use")
        move = ["move", NAME, "--to", "tower/sim:tower:3,attic/sim:attic:2"]
        wait(
            "it is moved, once their link is measured",
            lambda: laptop.medley(*move, ok=None).code == 0,
        )
        wait("the draft model is fetched and opened", lambda: guesses(tower), 30)
        check(f"{DRAFT} guesses on sim:beside" in tower.log_text(), "on a device of its own")
        forecast = laptop.status()["instances"][0]["forecast_one_stream"]
        check(forecast["drafted_tokens_per_s"] > 1.1 * forecast["tokens_per_s"], f"{forecast}")
        check("if 70 % of its draft model's guesses" in laptop.medley("status").out, "in words")
    with world.step("its guesses change no text"):
        text, first = ask(laptop, **GREEDY)
        check_equal(text, greedy, "the greedy text of plain decoding")
        text, second = ask(laptop, **SAMPLED)
        check_equal(text, sampled, "the sampled text of plain decoding")
        world.say(f"greedy {first}, sampled {second}")
        # of both: on a busy machine the draft model may come too late for one of them
        right, all_ = (first[name] + second[name] for name in ("draft_n_accepted", "draft_n"))
        check(0 < right <= all_, f"{first} {second}")
    with world.step("where its owner wants it, though that is slower"):
        laptop.medley("place", NAME, "--draft-device", "sim:tower")
        check("wanted on sim:tower" in laptop.medley("status").out, "status says where")
        says = f"{DRAFT} guesses on sim:tower"
        wait("it is opened there", lambda: says in tower.log_text(), 30)
        text, _ = ask(laptop, **SAMPLED)
        check_equal(text, sampled, "text")
    with world.step("the driver is killed in mid-answer"):
        lose_the_driver(world, laptop, tower, sampled)
    with world.step("and the next driver has its own draft model"):
        wait("it is opened", lambda: guesses(laptop) or guesses(attic), 30)
        text, _ = ask(laptop, **SAMPLED)
        check_equal(text, sampled, "text")


run(scenario)
