"""The node that a client streams from is killed in mid-reply; the client repeats its request at
another node with the stream's x-request-id and the last event's id, and gets the rest: together the
text that an undisturbed run gives. No seed is given, and the text is drawn: it depends on the
request's id."""
import http.client
import json
import os
import subprocess

from harness import API_PORT, PATIENCE, check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
NAME = "Medley Stories"
# 30 ms for a token: there is time to kill
DEVICE = {"memory": "64MiB", "decode": "80MB/s", "flops": "4GFLOP/s"}
BODY = {
    "model": NAME,
    "messages": [{"role": "user", "content": "Tell me a story about a cat."}],
    "max_tokens": 50,
    "temperature": 0.9,
    "logprobs": True,
}


class Stream:
    """What a client reads of one stream, until it ends or breaks off."""

    def __init__(self, node, request_id=None, last=None, **more):
        headers = {"x-request-id": request_id, "Last-Event-ID": last}
        self.node, self.ids, self.pieces, self.tokens, self.reason, self.usage = (
            node,
            [],
            [],
            0,
            None,
            None,
        )
        self.done = False
        self.connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=60 * PATIENCE)
        self.connection.sock = node.connect()
        self.connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(BODY | {"stream": True} | more),
            {name: value for name, value in headers.items() if value},
        )
        self.response = self.connection.getresponse()
        check_equal(self.response.status, 200, f"{node.name}: streaming")
        self.request_id = self.response.getheader("x-request-id")

    def read(self, n_events=None):
        """So many events, or all that come."""
        try:
            while n_events is None or len(self.ids) < n_events:
                line = self.response.readline().decode().strip()
                if line.startswith("id: "):
                    self.ids.append(line[4:])
                elif line == "data: [DONE]":
                    self.done = True
                    return self
                elif line.startswith("data: "):
                    self.take(json.loads(line[6:]))
                elif not line and self.response.isclosed():
                    return self
        except (OSError, http.client.HTTPException):
            pass  # it broke off
        return self

    def take(self, chunk):
        check("error" not in chunk, f"{self.node.name}: {chunk}")
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            self.pieces.append(choice["delta"].get("content", ""))
            self.tokens += len((choice["logprobs"] or {"content": []})["content"])
            self.reason = choice["finish_reason"] or self.reason

    def text(self):
        return "".join(self.pieces)


def plain(node, request_id):
    """The same request without a stream: text, reason and usage."""
    connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=60 * PATIENCE)
    connection.sock = node.connect()
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(BODY), {"x-request-id": request_id}
    )
    response = connection.getresponse()
    check_equal(
        (response.status, response.getheader("x-request-id")),
        (200, request_id),
        f"{node.name}: whole",
    )
    answer = json.loads(response.read())
    choice = answer["choices"][0]
    return (
        choice["message"]["content"],
        choice["finish_reason"],
        answer["usage"]["completion_tokens"],
    )


def kill_and_go_on(world, entry, other, n_events):
    """Streams from `entry` until it is killed, goes on at `other`, and compares with a whole
    answer."""
    begun = Stream(entry).read(n_events)
    entry.kill()
    begun.read()
    check(not begun.done and begun.request_id, "the stream should have broken off")
    wait(f"{other.name} answers", other.status)
    rest = Stream(
        other, begun.request_id, begun.ids[-1], stream_options={"include_usage": True}
    ).read()
    check(rest.done, f"{other.name}: the stream that goes on broke off")
    text, reason, n_tokens = plain(other, begun.request_id)
    check_equal(begun.text() + rest.text(), text, "text")
    check_equal(
        (rest.reason, begun.tokens + rest.tokens, rest.usage["completion_tokens"]),
        (reason, n_tokens, n_tokens),
        "reason to end, tokens shown, tokens counted",
    )
    world.say(
        f"{len(begun.ids)} events of {entry.name}, {len(rest.ids)} of {other.name}; {n_tokens} "
        f"tokens: {text!r}"
    )


def run_through_a_restart(node):
    words = ["run", NAME, "-p", BODY["messages"][0]["content"], "-n", "50", "--seed", "3"]
    wanted = node.medley(*words).out
    command = node.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    begun = command.stdout.read(1)
    while len(begun) < 40:
        begun += command.stdout.read(1)
    node.kill()
    node.start()
    rest, said = command.communicate(timeout=60 * PATIENCE)
    check_equal(
        (command.returncode, (begun + rest).decode()),
        (0, wanted),
        f"what the command wrote; it said {said!r}",
    )
    check(b"goes on when it is back" in said, f"it said {said!r}")


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
    with world.step("two ids give two texts, one id one text"):
        texts = [
            plain(node, name)[0] for node, name in ((laptop, "one"), (attic, "one"), (tower, "two"))
        ]
        check_equal(texts[0], texts[1], "text of another node")
        check(texts[0] != texts[2], f"two ids gave one text: {texts[0]!r}")
    with world.step("the entry is killed; neither driver nor layers are on it"):
        kill_and_go_on(world, laptop, attic, 20)
        laptop.start()
        wait("laptop is back", lambda: attic.nodes().get("laptop") == "up" and laptop.leader(), 20)
    with world.step("a node is killed under `medley run`, and started again"):
        run_through_a_restart(laptop)
    with world.step("the entry is killed, and with it the driver and half of the layers"):
        kill_and_go_on(world, tower, laptop, 30)


run(scenario)
