"""Answers that follow a grammar in a cluster: tokens are picked in a device's process on another
machine than the driver's and the API's. The machine that picks is killed in mid-answer: the text
goes on to the same end, and is valid."""
import json
import os
import re

import jsonschema

from harness import check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat."
# 30 ms for a token: there is time to kill
DEVICE = {"memory": "64MiB", "decode": "80MB/s", "flops": "4GFLOP/s"}
PET = {
    "type": "object",
    "properties": {
        "animal": {"enum": ["cat", "dog", "duck"]},
        "age": {"type": "integer", "minimum": 1, "maximum": 20},
        "tame": {"type": "boolean"},
    },
    "required": ["animal", "age", "tame"],
    "additionalProperties": False,
}
PETS = {"type": "array", "items": PET["properties"]["animal"], "minItems": 25, "maxItems": 30}


def asking(schema, **more):
    """The fields of a request whose answer is to follow the schema."""
    wanted = {"name": "answer", "schema": schema, "strict": True}
    return {
        "model": NAME,
        "max_tokens": 400,
        "response_format": {"type": "json_schema", "json_schema": wanted},
    } | more


def check_valid(text, schema):
    jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


def answers(world, nodes):
    for node in nodes:
        for temperature in (0, 1.5):
            text = node.chat(PROMPT, **asking(PET, temperature=temperature))
            check_valid(text, PET)
            world.say(f"{node.name}: {text}")
    text = nodes[0].chat(PROMPT, model=NAME, max_tokens=20, guided_regex="(ab|ba){3}")
    check(re.fullmatch("(ab|ba){3}", text), f"{text!r} does not match")
    text = nodes[0].chat(PROMPT, model=NAME, max_tokens=20)
    check(not re.fullmatch("(ab|ba)+", text), f"without a grammar: {text!r}")


def refusals(node):
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
    body = {"messages": [{"role": "user", "content": PROMPT}]} | asking(schema)
    status, answer = node.http("POST", "/v1/chat/completions", body)
    check_equal(status, 400, f"{answer}")


def lose_picker(world, entry, picker):
    """Streams from `entry`, and kills the machine that picks after 20 pieces."""
    wanted = entry.chat(PROMPT, **asking(PETS))
    check_valid(wanted, PETS)
    pieces = []
    for _, piece in entry.stream(PROMPT, **asking(PETS)):
        pieces.append(piece)
        if len(pieces) == 20:
            picker.kill()
    check_equal("".join(pieces), wanted, "text")
    check(len(pieces) > 40, f"only {len(pieces)} pieces")
    world.say(f"{len(pieces)} pieces: {wanted}")


def scenario(world):
    with world.step("three nodes, the model on two of them"):
        options = {
            name: ["--sim", world.sim(name, **DEVICE)] for name in ("laptop", "tower", "attic")
        }
        laptop, tower, attic = nodes = world.cluster(
            "laptop", "tower", "attic", all=OPTIONS, **options
        )
        laptop.medley("place", world.model, "--streams", "2", "-c", "512")
        for node in nodes:
            node.medley("add", world.model)
            wait(f"{node.name} knows it", lambda node=node: node.status()["instances"])
        laptop.medley("move", "--off")
        move = ["move", NAME, "--to", "tower/sim:tower:3,attic/sim:attic:2"]
        wait(
            "it is moved, once their link is measured",
            lambda: laptop.medley(*move, ok=None).code == 0,
        )
    with world.step("answers follow a grammar, at every node"):
        answers(world, nodes)
        refusals(laptop)
    with world.step("the machine that picks is killed in mid-answer"):
        lose_picker(world, laptop, attic)
    with world.step("and those after it follow theirs"):
        check_valid(laptop.chat(PROMPT, **asking(PET)), PET)


run(scenario)
