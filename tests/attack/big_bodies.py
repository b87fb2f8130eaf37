"""Large requests: however large and many they are, none may hold the server's loop, take memory
beyond the limit, or keep it when its client has gone."""
import json
import pathlib
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

from attack import LONG, PATIENCE, Prober, check, check_equal, metric, run, wait
from harness import chat_body

MIB = 1 << 20
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BODY_BYTES = 31 * MIB if LONG else 8 * MIB
COUNT = 64 if LONG else 8
GONE = 24
MEMORY = 512 * MIB if LONG else 160 * MIB
TURN_MS = 100  # of processor time, in one turn of the loop; others' work is not counted
SLACK = 40 * MIB  # the heap's own, and what the connections have


def text(size):
    """Words that repeat little, so that tokenising them is work."""
    draw = random.Random(1)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(1, 9))) for _ in range(4096)]
    return " ".join(draw.choices(words, k=size // 6)).ljust(size, "z")[:size]


def bodies(model):
    """(path, body) of each kind."""
    long_text, ones = text(BODY_BYTES - 400), ",".join(["1"] * ((BODY_BYTES - 400) // 2))
    chat = chat_body("@", max_tokens=1)
    named = json.dumps(model)
    return [
        ("/tokenize", '{"content":"%s"}' % long_text),
        ("/detokenize", '{"tokens":[%s]}' % ones),
        ("/v1/completions", '{"model":%s,"max_tokens":1,"prompt":"%s"}' % (named, long_text)),
        ("/v1/completions", '{"model":%s,"max_tokens":1,"prompt":[%s]}' % (named, ones)),
        ("/v1/embeddings", '{"model":%s,"input":"%s"}' % (named, long_text)),
        ("/v1/chat/completions", json.dumps(chat).replace("@", long_text)),
        ("/v1/chat/completions", '{"%s":1}' % long_text),
        ("/v1/chat/completions", '{"messages":%s' % ("[" * (BODY_BYTES - 400))),
    ]


def request(server, path, body):
    return server.head("POST", path, f"Content-Length: {len(body)}") + body.encode()


def works(server, model):
    body = json.dumps(chat_body("Hello", max_tokens=1, model=model))
    status = server.raw(request(server, "/v1/chat/completions", body)).status
    check_equal(status, 200, "a small request's status")


def p999_ms(server, name):
    """The bound of the histogram's bucket that 99.9 % are in."""
    text_of = server.ask("GET", "/metrics").body.decode()
    rows = re.findall(name + r'_bucket\{le="([^"]+)"\} (\d+)', text_of)
    return next(float(le) * 1e3 for le, n in rows if int(n) >= 0.999 * int(rows[-1][1]))


def check_memory(server, base):
    """The highest that it has been since the program began (VmHWM), and what is left."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    peak = int(re.search(r"^VmHWM:\s+(\d+)", status, re.MULTILINE)[1]) * 1024
    wait("memory to be given back", lambda: server.memory_bytes() < base + SLACK, 20)
    check(peak < base + MEMORY + SLACK, f"{(peak - base) >> 20} MiB of memory at the most")
    after = server.memory_bytes() >> 20
    return f"memory: {base >> 20} MiB before, {peak >> 20} at the most, {after} after"


def hold_the_loop(world, server, requests, base):
    with world.step(f"{COUNT} bodies of {BODY_BYTES >> 20} MiB at once, and the loop goes on"):
        with Prober(server) as prober, ThreadPoolExecutor(COUNT) as pool:
            turns = [requests[i % len(requests)] for i in range(COUNT)]
            asked = [pool.submit(server.raw, one, 120) for one in turns]
            statuses = [one.result().status for one in asked]
        longest = metric(server, "medley_loop_hold_max_seconds") * 1e3
        share = p999_ms(server, "medley_loop_hold_seconds")
        turn = metric(server, "medley_loop_turn_max_seconds") * 1e3
        turn_share = p999_ms(server, "medley_loop_turn_seconds")
        world.say(f"a turn of the loop computes for {turn:.1f} ms at the most, p99.9 below "
                  f"{turn_share:g} ms")
        world.say(f"held for {longest:.1f} ms at the most, p99.9 below {share:g} ms; {statuses}")
        world.say(f"{prober.describe()}; {check_memory(server, base)}")
        check(not prober.failures, f"probes failed: {prober.failures[:3]}")
        check(None not in statuses, "a connection without an answer")
        check(set(statuses) <= {200, 400, 413, 429, 503}, f"statuses {set(statuses)}")
        check(turn < TURN_MS * PATIENCE, f"a turn of the loop computed for {turn} ms")
        check(turn_share <= 16 * PATIENCE, f"p99.9 of the loop's turns is {turn_share} ms")


def leave(server, raw):
    with server.connect(seconds=60) as connection:
        connection.sendall(raw)


def clients_gone(world, server, requests, base):
    with world.step(f"{GONE} bodies of {BODY_BYTES >> 20} MiB whose clients leave at once"):
        with ThreadPoolExecutor(GONE) as pool:
            gone = [pool.submit(leave, server, requests[i % 2]) for i in range(GONE)]
        left = sum(1 for one in gone if not one.exception())
        begin = time.monotonic()
        wait("their work to end", lambda: metric(server, "medley_api_memory_bytes") == 0, 60)
        world.say(f"{left} left; their work ended {time.monotonic() - begin:.1f} s later")
        world.say(check_memory(server, base))


def scenario(world):
    server = world.serve("--limit", f"memory={MEMORY}", "--limit", f"bodies={MEMORY // 2}")
    model = server.ask("GET", "/v1/models").json()["data"][0]["id"]
    requests = [request(server, path, body) for path, body in bodies(model)]
    works(server, model)
    base = server.memory_bytes()
    clients_gone(world, server, requests, base)
    hold_the_loop(world, server, requests, base)
    with world.step("it still works"):
        works(server, model)
        server.stop()


run(scenario)
