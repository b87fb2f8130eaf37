"""Who has no token, a wrong one, one for something else, or one that was revoked; and what a
`medley serve` is told on an address that others reach."""
import subprocess
import threading
import time

from attack import LONG, check, check_equal, run

MODEL, END = "Medley Stories", 2045  # the token that ends its answers
GUESSES = 200 if LONG else 30


def medley(world, *words, ok=True):
    """A command; what it printed."""
    result = subprocess.run(
        [world.binary, *map(str, words)], capture_output=True, text=True, timeout=60
    )
    check((result.returncode == 0) == ok, f"medley {words}: {result}")
    return result.stdout.strip() if ok else result.stderr


def create(world, file, name, *options):
    return medley(world, "token", "create", name, "--tokens", file, *options)


def bearer(token):
    return f"Authorization: Bearer {token}"


def post(server, token, path, body):
    lines = [bearer(token)] if token else []
    head = server.head("POST", path, *lines, f"Content-Length: {len(body)}")
    return server.raw(head + body.encode())


def generate(server, token, model=MODEL):
    body = f'{{"model":"{model}","prompt":"Once","max_tokens":2,"temperature":0}}'
    return post(server, token, "/v1/completions", body)


def starts(world, file):
    with world.step("an address that others reach needs a token or --open, and it says so"):
        world.address("192.0.2.7/32")
        words = ["serve", world.model, "--api", "192.0.2.7:0", "--devices", "cpu"]
        said = medley(world, *words, "--tokens", file, ok=False)
        check("medley token create" in said and "--open" in said, said)


def refused(world, server, tokens):
    with world.step("without a token: 401 that says how, and nothing but an 'ok'"):
        for method, path in (("GET", "/v1/models"), ("GET", "/metrics"), ("POST", "/tokenize")):
            answer = server.ask(method, path, "Content-Length: 0")
            check_equal(answer.status, 401, f"{path}: {answer}")
            check(answer.headers["www-authenticate"].startswith("Bearer"), f"{path}: {answer}")
        check_equal(server.ask("GET", "/health").json(), {"status": "ok"}, "/health")
        check_equal(generate(server, None).status, 401, "generating")
        check_equal(server.status("OPTIONS", "/v1/models", "Connection: close"), 204, "a browser's preflight")
    with world.step("a token is for its scope"):
        check_equal(generate(server, tokens["reads"]).status, 403, "read generates")
        check_equal(server.status("GET", "/metrics", bearer(tokens["writes"])), 403, "metrics")
        check_equal(server.status("GET", "/metrics", bearer(tokens["reads"])), 200, "metrics")
        check_equal(generate(server, tokens["writes"]).status, 200, "generate generates")
    with world.step("a token is for its models: it neither uses nor sees others"):
        check_equal(generate(server, tokens["elsewhere"]).status, 403, "another model")
        models = server.ask("GET", "/v1/models", bearer(tokens["elsewhere"])).json()["data"]
        check_equal(models, [], "the models that it sees")
        path = "/v1/models/Medley%20Stories"
        check_equal(server.status("GET", path, bearer(tokens["elsewhere"])), 404, "one model")
    with world.step("a body is not read for nobody"):
        head = server.head("POST", "/v1/completions", "Content-Length: 33554432")
        check_equal(server.raw(head).status, 401, "32 MiB to come")


def guessed(world, server, tokens):
    with world.step(f"{GUESSES} wrong tokens: late, then 429; a right one is never slowed"):
        wrong = tokens["writes"][:-1] + ("0" if tokens["writes"][-1] != "0" else "1")
        statuses = []

        def guess():
            statuses.append(server.status("GET", "/v1/models", bearer(wrong)))

        begin = time.monotonic()
        threads = [threading.Thread(target=guess) for _ in range(GUESSES)]
        for thread in threads:
            thread.start()
        check_equal(server.status("GET", "/v1/models", bearer(tokens["writes"])), 200, "right")
        right_s = time.monotonic() - begin
        for thread in threads:
            thread.join()
        check(right_s < 0.4, f"a right token waited for {right_s:.2f} s")
        check_equal(statuses.count(401), 20, "wrong ones that were looked at")
        check_equal(statuses.count(429), GUESSES - 20, "wrong ones that were not")
        answer = server.ask("GET", "/v1/models", bearer(wrong))
        check(0 < int(answer.headers["retry-after"]) <= 61, f"Retry-After: {answer}")
    with world.step("odd headers"):
        for line in ("Authorization:", "Authorization: Bearer", "Authorization: Basic YTpi",
                     "x-api-key:", "Authorization: Bearer " + "x" * 3000):
            status = server.status("GET", "/v1/models", line)
            check(status in (401, 429), f"{line[:40]}: {status}")


def revoked(world, server, file, tokens):
    with world.step("revoked: a stream under way ends within a second, and the API stays closed"):
        body = f'{{"model":"{MODEL}","prompt":"Once","max_tokens":16000,"stream":true,'
        body += f'"logit_bias":{{"{END}":-100}}}}'
        lines = [bearer(tokens["writes"]), f"Content-Length: {len(body)}", "Connection: close"]
        head = server.head("POST", "/v1/completions", *lines)
        with server.connect() as connection:
            connection.sendall(head + body.encode())
            check(b"200 OK" in connection.recv(4096), "it streams")
            medley(world, "token", "revoke", "writes", "--tokens", file)
            begin = time.monotonic()
            rest = b""
            while piece := connection.recv(65536):
                rest += piece
            took_s = time.monotonic() - begin
        check(b"was revoked" in rest, f"it ended by itself: {rest[-300:]!r}")
        check(took_s < 1, f"it ended after {took_s:.2f} s")
        world.say(f"the stream ended {took_s:.2f} s after the revocation")
        check(generate(server, tokens["writes"]).status in (401, 429), "a revoked token")
        for name in ("reads", "elsewhere"):
            medley(world, "token", "revoke", name, "--tokens", file)
        check_equal(medley(world, "token", "list", "--tokens", file).count("medley token"), 1, "")
        time.sleep(0.2)
        check_equal(generate(server, None).status, 401, "after the last token was revoked")


def scenario(world):
    file = world.folder / "tokens.json"
    world.model = str(world.long_model(16384))
    starts(world, file)
    server = world.serve("--tokens", file, "--context", 16384)
    with world.step("before the first token the loopback is open; from then on it is not"):
        check_equal(generate(server, None).status, 200, "no token exists")
        tokens = {
            "reads": create(world, file, "reads", "--scope", "read"),
            "writes": create(world, file, "writes", "--scope", "generate"),
            "elsewhere": create(world, file, "elsewhere", "--models", "another"),
        }
        check_equal(file.stat().st_mode & 0o777, 0o600, "the file's mode")
        check(not any(token in file.read_text() for token in tokens.values()), "a token is kept")
        time.sleep(0.2)
    refused(world, server, tokens)
    guessed(world, server, tokens)
    revoked(world, server, file, tokens)
    with world.step("a damaged file lets nobody in"):
        file.write_text('{"tokens":[{"name":"x"}]}')
        time.sleep(0.2)
        check(generate(server, tokens["reads"]).status in (401, 429), "by a damaged file")
        server.stop()


run(scenario)
