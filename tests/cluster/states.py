"""A model with recurrent layers: their states go along when layers move while texts are generated,
as keys and values do, so that the texts stay what they were and nothing is computed again. The next
turn of a conversation goes on from where its state stands. MEDLEY_IN_PROCESS: as in moves.py."""
import json
import os
import pathlib
import re
import threading
import time

from harness import chat_body, check, check_equal, run, wait

MODEL = "tests/golden/more/models/qwen3next.gguf"
NAME = "qwen3next"
PROMPT = " ".join(
    f"There was a {animal} who liked to play with a red ball in the park."
    for animal in ("bear", "fox", "duck", "cat", "dog", "bird", "frog")
)
# some 50 ms for a token, and 3 ms for each token of a prompt: a replay of this prompt is seen
DEVICE = {"memory": "64MiB", "decode": "4MB/s", "flops": "50MFLOP/s"}
TOKENS = 60


class Reader(threading.Thread):
    """Reads a stream of a node's API in the background."""

    def __init__(self, node, tokens=TOKENS):
        super().__init__(daemon=True)
        self.node, self.tokens, self.pieces, self.problem = node, tokens, [], None
        self.start()

    def run(self):
        try:
            for _, piece in self.node.stream(PROMPT, model=NAME, max_tokens=self.tokens):
                self.pieces.append((time.monotonic(), piece))
        except Exception as problem:  # noqa: BLE001 (it is the scenario's to judge)
            self.problem = problem

    def text(self):
        self.join()
        check(not self.problem, f"{self.node.name}: {self.problem!r}")
        return "".join(piece for _, piece in self.pieces)

    def longest_gap(self, since):
        moments = [moment for moment, _ in self.pieces]
        return max(
            after - before for before, after in zip(moments, moments[1:]) if after > since
        )


def read_all(nodes):
    readers = [Reader(node) for node in nodes]
    wait(
        "all hear something",
        lambda: all(len(reader.pieces) > 5 or reader.problem for reader in readers),
        60,
    )
    return readers


def count(nodes, text):
    return sum(node.log_text().count(text) for node in nodes)


def tokens_given(nodes):
    """Of the hand-over that was last begun."""
    found = []
    for node in nodes:
        for line in node.log_text().splitlines():
            if match := re.search(r"(\d+) of (\d+) caches, (\d+) tokens", line):
                found.append((line[:12], [int(number) for number in match.groups()]))
    return max(found)[1]


def pause(readers, wanted, since):
    for reader in readers:
        check_equal(reader.text(), wanted, f"text of {reader.node.name}")
    return max(reader.longest_gap(since) for reader in readers)


def move(world, nodes, wanted, name, *command):
    readers, before, began = read_all(nodes), count(world.nodes, "has taken over"), time.monotonic()
    nodes[0].medley(*command)
    longest = pause(readers, wanted, began)
    check_equal(count(world.nodes, "has taken over") - before, 1, "drivers that have taken over")
    given, of, tokens = tokens_given(world.nodes)
    check_equal(given, of, "caches that were handed over")
    check(tokens >= len(readers) * len(PROMPT) // 2, f"only {tokens} tokens were handed over")
    world.say(f"{name}: {tokens} tokens not computed again, longest pause {1e3 * longest:.0f} ms")


def ask(node, messages, **more):
    body = chat_body("", model=NAME, **more) | {"messages": messages}
    status, answer = node.http("POST", "/v1/chat/completions", body)
    check_equal(status, 200, json.dumps(answer))
    return answer


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def converse(node):
    """Digits alone, which are a token each however a text is cut."""
    messages = [{"role": "user", "content": "Please say a number."}]
    first = ask(node, messages, guided_regex="[0-9]{30}", max_tokens=40)
    said = first["choices"][0]["message"]["content"]
    check_equal(len(said), 30, "digits")
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And more?"}]
    second = ask(node, messages, max_tokens=4)
    check_equal(
        cached(second), first["usage"]["prompt_tokens"] + 30, "tokens of the turn before"
    )
    again = ask(node, messages, max_tokens=4)  # from the state that was kept as the turn began
    check_equal(again["choices"], second["choices"], "the same turn asked again")
    check_equal(cached(again), cached(second), "tokens of the same turn")


def scenario(world):
    world.model = str(pathlib.Path(os.environ["MEDLEY_SOURCE"]) / MODEL)
    with world.step("three nodes, the model on one of them"):
        in_process = os.environ.get("MEDLEY_IN_PROCESS")
        options = {
            name: [
                "--sim",
                world.sim(name, **DEVICE),
                *(["--in-process"] if name == in_process else []),
            ]
            for name in ("laptop", "tower", "attic")
        }
        laptop, tower, attic = nodes = world.cluster("laptop", "tower", "attic", **options)
        laptop.medley("place", world.model, "--streams", "2", "-c", "1024")
        for node in nodes:
            node.medley("add", world.model)
            wait(f"{node.name} knows it", lambda node=node: node.status()["instances"])
        laptop.medley("move", "--off")
        laptop.medley("move", NAME, "--to", "laptop/sim:laptop:4")
    with world.step("the next turn goes on from the state of the last one"):
        converse(laptop)
    began = time.monotonic()
    alone = Reader(laptop)
    wanted = alone.text()
    world.say(f"the prompt alone takes {1e3 * (alone.pieces[0][0] - began):.0f} ms")
    to = "tower/sim:tower:3,laptop/sim:laptop:1"
    with world.step(f"layers move under load: to {to}"):
        move(world, [laptop, tower], wanted, to, "move", NAME, "--to", to)
    with world.step("a node is drained under load"):
        move(world, [laptop, tower], wanted, "drained", "drain", "laptop")
        laptop.medley("drain", "laptop", "--undo")
    with world.step("half of the layers move, and the node that has them is killed"):
        laptop.medley("move", NAME, "--to", "laptop/sim:laptop:2,attic/sim:attic:2")
        readers, killed = read_all([laptop, tower]), time.monotonic()
        attic.kill()
        longest = pause(readers, wanted, killed)
        world.say(f"killed, all computed again: longest pause {1e3 * longest:.0f} ms")


run(scenario)
