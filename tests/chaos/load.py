"""Readers of streams, and whether what they read is what an undisturbed run says."""
import http.client
import json
import threading
import time

from harness import API_PORT, PATIENCE

GAP_S = 0.25  # shorter pauses are not remembered
REFUSED_S = 0.3


class Refused(Exception):
    """The node does not take the request (yet)."""


class Broken(Exception):
    """The connection ended in the middle."""


class Answer:
    """What came of one request, while it comes."""

    def __init__(self, gaps=None):
        self.text, self.finish, self.tokens, self.error, self.over = "", None, None, None, False
        self.begin = self.last = time.monotonic()
        self.gaps = [] if gaps is None else gaps  # (begin, end) by the monotonic clock
        self.pieces = 0

    def result(self):
        return self.text, self.finish, self.tokens

    def course(self):
        now = time.monotonic()
        gaps = ", ".join(
            f"{now - begin:.1f} for {end - begin:.1f}"
            for begin, end in self.gaps
            if begin >= self.begin
        )
        return f"it began {now - self.begin:.1f} s ago; pauses (seconds ago): {gaps or 'none'}"

    def take(self, event):
        if "error" in event:
            self.error = event["error"].get("message", str(event["error"]))
            return
        for choice in event.get("choices", []):
            piece = choice["delta"].get("content")
            self.finish = choice.get("finish_reason") or self.finish
            if piece:
                self.heard()
                self.text += piece
                self.pieces += 1
        if event.get("usage"):
            self.tokens = event["usage"]["completion_tokens"]

    def heard(self):
        now = time.monotonic()
        if now - self.last > GAP_S and self.pieces:
            self.gaps.append((self.last, now))
        self.last = now


def read(node, body, answer, silence_s=900):
    """One streamed request at a node; fills `answer` as it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=silence_s)
    try:
        connection.sock = node.connect(seconds=5)
        connection.sock.settimeout(silence_s)
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body | {"stream": True, "stream_options": {"include_usage": True}}),
        )
        response = connection.getresponse()
        if response.status != 200:
            raise Refused(f"{response.status} {response.read(400).decode(errors='replace')}")
        for line in response:
            line = line.decode().strip()
            if line == "data: [DONE]":
                answer.over = True
            elif line.startswith("data: "):
                answer.take(json.loads(line[6:]))
        if not answer.over and not answer.error:
            raise Broken("the connection ended")
    except (OSError, http.client.HTTPException) as problem:
        raise (Broken if answer.pieces else Refused)(repr(problem)) from problem
    finally:
        connection.close()


class Reader(threading.Thread):
    """Asks one node again and again, and compares. `report(kind, text)` gets what is wrong."""

    def __init__(self, world, node, requests, wanted, first, report):
        super().__init__(daemon=True)
        self.world, self.node, self.requests, self.wanted, self.report = (
            world,
            node,
            requests,
            wanted,
            report,
        )
        self.number, self.stopping = first, False
        self.answer, self.gaps, self.streams, self.tokens, self.lost = None, [], 0, 0, 0
        self.refused_since = None
        self.start()

    def run(self):
        while not self.stopping:
            number = self.number % len(self.requests)
            self.number += 1
            life = self.node.life
            answer = self.answer = Answer(self.gaps)
            try:
                read(self.node, self.requests[number], answer)
                self.refused_since = None
                self.judge(number, answer)
            except Refused as problem:
                self.refuse(problem)
            except Broken as problem:
                self.broke(number, answer, problem, life)
            except Exception as problem:  # noqa: BLE001
                self.report("checker", f"{self.node.name}: {problem!r}")
            self.answer = None

    def judge(self, number, answer):
        wanted = self.wanted[number]
        if answer.error:
            self.report(
                "failed",
                f"{self.node.name}: request {number} ended after {len(answer.text)} characters: "
                f"{answer.error}",
            )
        elif answer.result() != wanted:
            self.report(
                "wrong",
                f"{self.node.name}: request {number}: {differ(answer.result(), wanted)}; "
                f"{answer.course()}",
            )
        else:
            self.streams += 1
            self.tokens += answer.tokens

    def refuse(self, problem):
        """Right after its start a node may not know its model yet, and says so; who watches says
        when that lasts too long."""
        if str(problem).startswith("404"):
            self.report("failed", f"{self.node.name} denies that there is the model: {problem}")
        self.refused_since = self.refused_since or time.monotonic()
        self.refusal = str(problem)
        time.sleep(REFUSED_S)

    def broke(self, number, answer, problem, life):
        """A reader's connection ends with the node's process; what came is right all the same."""
        wanted = self.wanted[number]
        time.sleep(REFUSED_S)
        if not wanted[0].startswith(answer.text):
            self.report(
                "wrong",
                f"{self.node.name}: request {number}, broken off: "
                f"{differ(answer.result(), wanted)}",
            )
        elif self.node.life == life and self.node.is_running():
            self.report(
                "failed", f"{self.node.name}: request {number}: {problem}, and the node lives"
            )
        else:
            self.lost += 1

    def taken_gaps(self):
        """The pauses that are over, each once."""
        found = self.gaps[:]
        del self.gaps[: len(found)]
        return found


def differ(found, wanted):
    """Where two results part."""
    same = next(
        (i for i, (a, b) in enumerate(zip(found[0], wanted[0])) if a != b),
        min(len(found[0]), len(wanted[0])),
    )
    if found[0] == wanted[0]:
        return f"the text is right, but (finish, tokens) is {found[1:]}, not {wanted[1:]}"
    return (
        f"after {same} characters it goes on with {found[0][same:same + 60]!r}, not "
        f"{wanted[0][same:same + 60]!r} "
        f"({found[1:]}, not {wanted[1:]})"
    )


def undisturbed(node, requests):
    """What each request gives, four at once, by their numbers."""
    answers = [Answer() for _ in requests]
    problems = []

    def ask(first):
        for number in range(first, len(requests), 4):
            try:
                read(node, requests[number], answers[number], 60 * PATIENCE)
            except (Refused, Broken) as problem:
                problems.append(problem)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems or any(answer.error for answer in answers):
        raise RuntimeError(
            f"the undisturbed run failed: {problems or [answer.error for answer in answers]}"
        )
    return [answer.result() for answer in answers]
