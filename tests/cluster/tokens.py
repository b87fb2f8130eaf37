"""Access tokens in a cluster: made on one node they work on all, revoked on one they are refused by
all at once, and streams that are under way end; what a token is bound to."""
import http.client
import json
import threading
import time

from harness import API_PORT, PATIENCE, chat_body, check, check_equal, run, wait

PROMPT = "Tell me a story about a duck."
CHAT = "/v1/chat/completions"
MODEL = "Medley Stories"


def ask(node, token, method="POST", path=CHAT, body=None, header="Authorization"):
    """(status, answer, headers) of a request that shows the token, or none."""
    connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=60 * PATIENCE)
    connection.sock = node.connect()
    shown = {header: f"Bearer {token}" if header == "Authorization" else token} if token else {}
    if method == "POST" and body is None:
        body = chat_body(PROMPT, model=MODEL, max_tokens=4)
    try:
        connection.request(method, path, json.dumps(body) if body else None, shown)
        response = connection.getresponse()
        text = response.read()
        answer = json.loads(text) if text.startswith(b"{") else text
        return response.status, answer, response.headers
    finally:
        connection.close()


def why(answer):
    return answer["error"]["message"]


def create(node, name, *options):
    return node.medley("token", "create", name, *options).out.strip()


class Stream(threading.Thread):
    """A long answer, until it ends: when, and what its last event said."""

    def __init__(self, node, token):
        super().__init__(daemon=True)
        self.node, self.token = node, token
        self.n_events, self.error, self.ended_s = 0, None, None
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=60 * PATIENCE)
        connection.sock = self.node.connect()
        body = chat_body(PROMPT, model=MODEL, stream=True, max_tokens=4000)
        connection.request("POST", CHAT, json.dumps(body), {"x-api-key": self.token})
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                self.n_events += 1
                self.error = json.loads(line[6:]).get("error")
        self.ended_s = time.monotonic()


def created_and_refused(laptop, tower):
    check_equal(tower.http("GET", "/v1/models")[0], 200, "the first look, before any token")
    token = create(laptop, "ci", "--scope", "read,generate")
    check(token.startswith("medley_") and len(token) == 65, f"a token: {token!r}")
    for node in (laptop, tower):
        wait(f"{node.name} asks for one", lambda node=node: ask(node, None)[0] == 401, 2)
        for header in ("Authorization", "x-api-key"):
            status, answer, _ = ask(node, token, header=header)
            check_equal(status, 200, f"{node.name}, {header}: {answer}")
        status, answer, headers = ask(node, None)
        check(headers["WWW-Authenticate"].startswith("Bearer"), f"{node.name}: {headers}")
        begin = time.monotonic()
        status, answer, _ = ask(node, token[:-1] + ("0" if token[-1] != "0" else "1"))
        check_equal(status, 401, f"a mistyped token: {answer}")
        check("mistyped" in why(answer), f"a mistyped token: {answer}")
        check(time.monotonic() - begin > 0.4, "a wrong token is answered at once")
        check_equal(ask(node, None, "GET", "/health")[1], {"status": "ok"}, "health for everybody")
        check_equal(ask(node, None, "GET", "/metrics")[0], 401, "metrics for everybody")
        check_equal(ask(node, token, "GET", "/metrics")[0], 200, "metrics")
    listed = tower.json("token", "list")["tokens"]
    check_equal([entry["name"] for entry in listed], ["ci"], "the list")
    for path in (node.state / "cluster.db" for node in (laptop, tower)):
        check(token.encode() not in path.read_bytes(), f"the token itself is in {path}")
    check("already" in laptop.medley("token", "create", "ci", ok=False).err, "two of one name")
    return token


def scopes(laptop, tower):
    reads = create(laptop, "watcher", "--scope", "read")
    wait("it is known", lambda: ask(laptop, reads, "GET", "/v1/models")[0] == 200, 2)
    status, answer, _ = ask(laptop, reads)
    check_equal(status, 403, "read generates")
    check("watcher" in why(answer) and "generate" in why(answer), f"the reason: {answer}")
    laptop.medley("token", "revoke", "watcher")


def revoked(laptop, tower, token):
    stream = Stream(tower, token)
    wait("it streams", lambda: stream.n_events > 2, 20)
    begin = time.monotonic()
    laptop.medley("token", "revoke", "ci")
    said_s = time.monotonic() - begin
    wait("tower refuses", lambda: ask(tower, token)[0] == 401, 5)
    refused_s = time.monotonic() - begin
    stream.join(10 * PATIENCE)
    check(stream.ended_s, "the stream goes on")
    check(stream.error and "revoked" in stream.error["message"], f"it ends with {stream.error}")
    tower.world.say(
        f"revoked in {said_s:.2f} s, refused after {refused_s:.2f} s (0.5 s of it the delay of a "
        f"wrong token), the stream ended after {stream.ended_s - begin:.2f} s"
    )
    check(stream.ended_s - begin < 1 * PATIENCE, "the stream did not end within a second")
    check(refused_s < 1.5 * PATIENCE, "it was refused later than a second")
    check_equal(ask(laptop, None)[0], 401, "without the last token the API is open again")


def expires(laptop, tower):
    short = create(laptop, "short", "--expires", "2s")
    wait("it works", lambda: ask(tower, short, "GET", "/v1/models")[0] == 200, 2)
    wait("it expires", lambda: ask(tower, short, "GET", "/v1/models")[0] == 401, 4)
    check("expired" in why(ask(tower, short, "GET", "/v1/models")[1]), "it does not say so")
    check(tower.json("token", "list")["tokens"][0]["expired"], "the list does not say so")
    refused = tower.medley("token", "revoke", "short", ok=False)
    check("plain member" in refused.err and "laptop" in refused.err, "a plain member revokes it")
    check("plain member" in tower.medley("token", "create", "x", ok=False).err, "or makes one")
    laptop.medley("token", "revoke", "short")


def bound(laptop, tower):
    here = create(laptop, "here", "--scope", "read,generate", "--nodes", "laptop")
    there = create(laptop, "there", "--scope", "read,generate", "--devices", "tower/sim:tower")
    other = laptop.medley("token", "create", "x", "--models", "none", ok=False)
    check("no model 'none'" in other.err, f"bound to no model: {other}")
    other = laptop.medley("token", "create", "x", "--devices", "tower/gpu9", ok=False)
    check("no device 'gpu9'" in other.err, f"bound to no device: {other}")
    for right, wrong, place in ((here, there, "laptop"), (there, here, "tower")):
        laptop.medley("move", MODEL, "--to", f"{place}/sim:{place}:5", ok=None)  # or it is there
        for node in (laptop, tower):
            wait("it may be used", lambda node=node: ask(node, right)[0] == 200, 5)
            status, answer, _ = ask(node, wrong)
            check_equal(status, 403, f"{node.name}: elsewhere: {answer}")
            check("not bound" in why(answer) and place in why(answer), f"the reason: {answer}")
    for name in ("here", "there"):
        laptop.medley("token", "revoke", name)


def cached(node, token):
    """Tokens of the prompt that were in a cache."""
    status, answer, _ = ask(node, token)
    check_equal(status, 200, f"{node.name}: {answer}")
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def prefixes(laptop, tower):
    one, other = create(laptop, "one"), create(laptop, "other")
    wait("they are known", lambda: all(ask(tower, token)[0] == 200 for token in (one, other)), 2)
    for node in (laptop, tower):
        laptop.medley("token", "revoke", "other")
        other = create(laptop, "other")
        wait("it is known", lambda: ask(node, other, "GET", "/v1/models")[0] == 200, 2)
        check(cached(node, one) > 0, f"{node.name}: its own prompt is computed anew")
        check_equal(cached(node, other), 0, f"{node.name}: what another asked, in a cache")
        check(cached(node, other) > 0, f"{node.name}: its own prompt is computed anew")
    for name in ("one", "other"):
        laptop.medley("token", "revoke", name)


def is_served(node, token):
    try:
        return ask(node, token, "GET", "/v1/models")[0] == 200
    except OSError:
        return False  # it does not listen yet


def limited(laptop, tower):
    slow = create(laptop, "slow", "--rate", "2/min")
    wait("it works", lambda: ask(tower, slow)[0] == 200, 2)
    check_equal(ask(tower, slow)[0], 200, "the second")
    status, answer, headers = ask(tower, slow)
    check_equal(status, 429, f"the third: {answer}")
    check(0 < int(headers["Retry-After"]) <= 31, f"Retry-After: {headers['Retry-After']}")
    check_equal(answer["error"]["code"], "token_rate", "the limit's name")
    few = create(laptop, "few", "--tokens-per-day", "10")
    wait("it works", lambda: ask(tower, few)[0] == 200, 2)
    status, answer, headers = ask(tower, few)
    check_equal((status, answer["error"]["code"]), (429, "token_tokens_per_day"), "11 tokens")
    tower.end()
    tower.start()
    wait("tower has the model again", lambda: is_served(tower, slow), 20)
    status, answer, headers = ask(tower, few)
    check_equal((status, answer["error"]["code"]), (429, "token_tokens_per_day"), "after a restart")
    for name in ("slow", "few"):
        laptop.medley("token", "revoke", name)


def scenario(world):
    with world.step("two nodes and a model"):
        options = {name: ["--sim", world.sim(name)] for name in ("laptop", "tower")}
        laptop, tower = world.cluster("laptop", "tower", **options)
        laptop.medley("place", world.long_model(4096), "--streams", "4", "-c", "4096")
        laptop.medley("move", "--off")
        laptop.medley("move", MODEL, "--to", "laptop/sim:laptop:5", ok=None)
    with world.step("a token that was made on one node works on both, and is needed"):
        token = created_and_refused(laptop, tower)
    with world.step("a scope is for what it says"):
        scopes(laptop, tower)
    with world.step("revoked: refused everywhere within a second, and its stream ends"):
        revoked(laptop, tower, token)
    with world.step("it expires"):
        expires(laptop, tower)
    with world.step("bound to machines and devices"):
        bound(laptop, tower)
    with world.step("what one token has asked, no other meets in a cache"):
        prefixes(laptop, tower)
    with world.step("limited"):
        limited(laptop, tower)


run(scenario)
