"""A call that the model chooses to make (tool_choice "auto"), held to its tool's schema, while the
machine that picks its tokens is killed: in the call's arguments, and in the text before it. The
answer is that of an undisturbed run, and the call is valid. So it is where the layers move."""
import json
import threading
import time

import jsonschema

from harness import check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat."
DEVICE = {"memory": "64MiB", "decode": "160MB/s", "flops": "8GFLOP/s"}  # 15 ms for a token
WORD, MARK, ALIGNMENT = b"Waffle", b"<tool_call>", 32
TOOL = {
    "name": "pets",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {
            "pets": {
                "type": "array",
                "items": {"enum": ["cat", "dog", "duck"]},
                "minItems": 12,
                "maxItems": 14,
            },
            "age": {"type": "integer", "minimum": 1, "maximum": 20},
        },
        "required": ["pets", "age"],
        "additionalProperties": False,
    },
}


def sized(text):
    return len(text).to_bytes(8, "little") + text


def make_calling_model(world):
    """The bundled model with a template of Hermes' format, and one of its words made the mark of a
    call, which a bias makes it say. What is added is a multiple of the alignment, so that tensors
    stay where they are. The number of that token."""
    path = world.copy_of_model("calling.gguf")
    data = path.read_bytes()

    def number(at):
        return int.from_bytes(data[at : at + 8], "little")

    key = b"tokenizer.ggml.tokens"
    token, at = 0, data.index(key) + len(key) + 16
    while data[at + 8 : at + 8 + number(at)] != WORD:
        token, at = token + 1, at + 8 + number(at)
    key = b"tokenizer.chat_template"
    template = data.index(key) + len(key) + 4
    old = data[template + 8 : template + 8 + number(template)]
    comment = b"{#- <tool_call>%b -#}"
    grown = len(MARK) - len(WORD) + len(comment) - 2
    new = comment % (b" " * (ALIGNMENT - grown % ALIGNMENT)) + old
    parts = [(at, len(sized(WORD)), sized(MARK)), (template, len(sized(old)), sized(new))]
    for begin, size, text in sorted(parts, reverse=True):
        data = data[:begin] + text + data[begin + size :]
    path.write_bytes(data)
    world.model = str(path)
    return token


def asking(token, bias, **more):
    return {
        "model": NAME,
        "max_tokens": 400,
        "temperature": 1.5,
        "tools": [{"type": "function", "function": TOOL}],
        "parallel_tool_calls": False,
        "logit_bias": {str(token): bias},
    } | more


class Answer:
    """Text, and the arguments of a call, which come at once with its end. `then` is called so
    many seconds after that many parts of the text."""

    def __init__(self, node, fields, then=None, parts=0, seconds=0.0):
        self.text, self.arguments, self.text_s, self.n_parts = "", "", 0.0, 0
        begin, begun, done, timer = time.monotonic(), [], [], None

        def act():
            begun.append(True)
            done.append(then())

        for event in node.events(PROMPT, **fields):
            for choice in event.get("choices", []):
                for call in choice["delta"].get("tool_calls", []):
                    self.arguments += call["function"].get("arguments", "")
                if not choice["delta"].get("content"):
                    continue
                self.text += choice["delta"]["content"]
                self.text_s = time.monotonic() - begin
                self.n_parts += 1
                if then and self.n_parts == parts:
                    timer = threading.Timer(seconds, act)
                    timer.start()
        self.all_s = time.monotonic() - begin
        if then:
            check(begun, f"it took {self.all_s:.1f} s only")
            timer.join()
            check(done, "what was to be done meanwhile has failed")

    def both(self):
        return self.text, self.arguments


def check_valid(answer):
    arguments = json.loads(answer.arguments)
    jsonschema.validate(arguments, TOOL["parameters"], jsonschema.Draft202012Validator)


def place(laptop, to):
    move = ["move", NAME, "--to", to]
    wait("it is moved", lambda: laptop.medley(*move, ok=None).code == 0)


def scenario(world):
    with world.step("three nodes, the model on two of them"):
        token = make_calling_model(world)
        options = {
            name: ["--sim", world.sim(name, **DEVICE)] for name in ("laptop", "tower", "attic")
        }
        laptop, tower, attic = nodes = world.cluster("laptop", "tower", "attic", **options)
        laptop.medley("place", world.model, "--streams", "2", "-c", "512")
        for node in nodes:
            node.medley("add", world.model)
            wait(f"{node.name} knows it", lambda node=node: node.status()["instances"])
        laptop.medley("move", "--off")
        place(laptop, "tower/sim:tower:3,attic/sim:attic:2")
    fields = asking(token, 12, seed=5)
    with world.step("text and a call that nothing disturbs"):
        whole = Answer(laptop, fields)
        check_valid(whole)
        check(whole.text, "no text before the call")
        in_call = {"parts": whole.n_parts, "seconds": (whole.all_s - whole.text_s) / 4}
        world.say(f"{whole.both()}, the call from {whole.text_s:.1f} to {whole.all_s:.1f} s")
    with world.step("layers move in mid-call"):
        there, back = "attic/sim:attic:2,tower/sim:tower:3", "tower/sim:tower:3,attic/sim:attic:2"
        found = Answer(laptop, fields, lambda: place(laptop, there), **in_call)
        check_equal(found.both(), whole.both(), "text and call")
        place(laptop, back)
    with world.step("the machine that picks is killed in mid-call"):
        found = Answer(laptop, fields, attic.kill, **in_call)
        check_equal(found.both(), whole.both(), "text and call")
    with world.step("it comes back, and is killed in the text before the call"):
        attic.start()
        place(laptop, back)
        found = Answer(laptop, fields, attic.kill, parts=3)
        check_equal(found.both(), whole.both(), "text and call")


run(scenario)
