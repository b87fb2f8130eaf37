"""A draft model that is placed as a model of its own: the machine that drives asks it where it is,
through the network, and opens none. The text is that of plain decoding, with one stage and with
two. Its machine hangs, and where it went is killed in the middle of an answer: that goes on without
guesses. Later ones have those of where the draft model is then. Once it is unloaded, it is not loaded again for the sake
of guesses; the driver opens a copy."""
import os

from harness import check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME, DRAFT = "Medley Stories", "Medley Storie2"
PROMPT = "Tell me a story about a cat."
# Some 45 ms for a token, and 4 for one of the draft model elsewhere: there is time to kill.
SLOW = {"memory": "64MiB", "decode": "60MB/s", "flops": "4GFLOP/s"}
FAST = SLOW | {"decode": "320MB/s"}
SAMPLED = {"model": NAME, "temperature": 0.7, "max_tokens": 150}
GREEDY = {"model": NAME, "temperature": 0, "max_tokens": 60}


def ask(node, **more):
    """The answer, and what it says of guesses."""
    messages = [{"role": "user", "content": PROMPT}]
    _, answer = node.http("POST", "/v1/chat/completions", {"messages": messages, "seed": 1} | more)
    return answer["choices"][0]["message"]["content"], answer.get("timings") or {}


def instance(node, name):
    return next((i for i in node.status()["instances"] if i["model"] == name), None)


def is_on(node, name, *nodes):
    """Whether it is ready there, and nowhere else."""
    found = instance(node, name)
    names = {one["node"] for one in found["stages"]} if found and "stages" in found else None
    return found and found["state"] == "ready" and names == {one.name for one in nodes}


def lose(entry, lost, wanted):
    pieces = []
    for _, piece in entry.stream(PROMPT, **SAMPLED):
        pieces.append(piece)
        if lost.is_running() and sum(map(len, pieces)) > len(wanted) // 3:
            lost.kill()
    check(not lost.is_running(), "the answer was over before a third of it had come")
    check_equal("".join(pieces), wanted, "text")


def move(node, name, *to):
    wait(
        f"{name} is moved, once links are measured",
        lambda: node.medley("move", name, "--to", ",".join(to), ok=None).code == 0,
    )


def scenario(world):
    with world.step("three nodes, the model on the laptop, the draft model in the attic"):
        kinds = {"laptop": SLOW, "tower": FAST, "attic": FAST}
        options = {name: ["--sim", world.sim(name, **kind)] for name, kind in kinds.items()}
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
        laptop.medley("place", small, "--streams", "2", "-c", "512")
        wait("the draft model is placed", lambda: instance(laptop, DRAFT)["state"] == "ready")
        move(laptop, DRAFT, "attic/sim:attic:5")
        wait("it is there", lambda: is_on(laptop, DRAFT, attic))
    with world.step("it guesses where it is placed"):
        laptop.medley("place", NAME, "--draft", DRAFT, "--speculate", "lookup")
        move(laptop, NAME, "laptop/sim:laptop:5")
        says = f"{DRAFT} guesses where it is placed"
        wait("it is asked there", lambda: says in laptop.log_text(), 30)
        check(f"drafts by {DRAFT}, where that is placed" in laptop.medley("status").out, "status")
        forecast = instance(laptop, NAME)["forecast_one_stream"]
        check(forecast["drafted_tokens_per_s"] > 1.1 * forecast["tokens_per_s"], f"{forecast}")
        check(f"{DRAFT} guesses on" not in laptop.log_text(), "no copy is opened")
        text, first = ask(laptop, **GREEDY)
        check_equal(text, greedy, "the greedy text of plain decoding")
        text, second = ask(laptop, **SAMPLED)
        check_equal(text, sampled, "the sampled text of plain decoding")
        world.say(f"greedy {first}, sampled {second}")
        right, all_ = (first.get(n, 0) + second.get(n, 0) for n in ("draft_n_accepted", "draft_n"))
        check(0 < right <= all_, f"{first} {second}")
    with world.step("and beside a pipeline of two machines"):
        move(laptop, NAME, "laptop/sim:laptop:3", "tower/sim:tower:2")
        wait("it is there", lambda: is_on(laptop, NAME, laptop, tower))
        wait("and asks again", lambda: laptop.log_text().count(says) > 1, 30)
        text, timings = ask(laptop, **SAMPLED)
        check_equal(text, sampled, "text")
        world.say(f"{timings}")
        move(laptop, NAME, "laptop/sim:laptop:5")
        wait("it is on the laptop again", lambda: is_on(laptop, NAME, laptop))
        wait("and asks again", lambda: laptop.log_text().count(says) > 2, 30)
    with world.step("its machine hangs, and nothing waits for it"):
        attic.pause()
        text, timings = ask(laptop, **GREEDY)
        attic.go_on()
        check_equal(text, greedy, "text")
        world.say(f"{timings}")
    with world.step("it guesses where it goes then"):
        laptop.medley("move", "--on")

        def guesses_again():
            text, timings = ask(laptop, **SAMPLED)
            check_equal(text, sampled, "text")
            return timings.get("draft_n_accepted")

        wait("it guesses again", guesses_again, 60)
    with world.step("the machine that has it is killed in mid-answer"):
        where = wait("it is somewhere", lambda: [n for n in (tower, attic) if is_on(laptop, DRAFT, n)])
        lose(laptop, where[0], sampled)
    with world.step("and it guesses where it goes then"):
        wait("it guesses again", guesses_again, 60)
    with world.step("what is unloaded is not loaded to guess"):
        laptop.medley("unload", DRAFT)
        text, _ = ask(laptop, **SAMPLED)
        check_equal(text, sampled, "text")
        wait("a copy is opened", lambda: f"{DRAFT} guesses on" in laptop.log_text(), 30)
        check(instance(laptop, DRAFT) is None, f"{instance(laptop, DRAFT)}")
        text, _ = ask(laptop, **SAMPLED)
        check_equal(text, sampled, "text")


run(scenario)
