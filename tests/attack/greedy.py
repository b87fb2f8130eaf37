"""One client asks for all that it can get: it waits for itself, and another hardly does."""
import json
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from attack import LONG, PATIENCE, check, check_equal, run
from harness import chat_body

MIB = 1 << 20
LETTERS = "abcdefghijklmnopqrstuvwxyz"
GREEDY, GOOD = "10.9.0.2", "10.9.0.3"
COUNT = 24 if LONG else 8
BODY_BYTES = 4 * MIB if LONG else 2 * MIB


def tokenize(server, size):
    draw = random.Random(2)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(1, 9))) for _ in range(4096)]
    body = '{"content":"%s"}' % " ".join(draw.choices(words, k=size // 6))
    return server.head("POST", "/tokenize", f"Content-Length: {len(body)}") + body.encode()


def answer_s(server, model, source):
    """The median of five small requests of one token."""
    body = json.dumps(chat_body("Hello", max_tokens=1, model=model))
    head = server.head("POST", "/v1/chat/completions", f"Content-Length: {len(body)}")
    raw = head + body.encode()
    seconds = []
    for _ in range(5):
        begin = time.monotonic()
        check_equal(server.raw(raw, 60, source).status, 200, "a small request's status")
        seconds.append(time.monotonic() - begin)
    return statistics.median(seconds)


def scenario(world):
    server = world.serve()
    for address in (GREEDY, GOOD):
        world.address(f"{address}/32")
    large = tokenize(server, BODY_BYTES)
    model = server.ask("GET", "/v1/models").json()["data"][0]["id"]
    alone = answer_s(server, model, GOOD)
    with ThreadPoolExecutor(COUNT + 1) as pool:
        with world.step(f"{COUNT} large requests of one client; another's small ones go on"):
            greedy = [pool.submit(server.raw, large, 120, GREEDY) for _ in range(COUNT)]
            time.sleep(0.5)
            beside = answer_s(server, model, GOOD)
            waiting = sum(1 for one in greedy if not one.done())
            world.say(f"a small answer alone {1e3 * alone:.1f} ms, beside {1e3 * beside:.1f} ms")
            check(waiting > COUNT // 2, f"only {waiting} of {COUNT} were still under way")
            check(beside < (3 * alone + 0.5) * PATIENCE, f"{beside:.2f} s to a good client's answer")
        with world.step("another's large request comes before those that the first still has"):
            check_equal(server.raw(large, 120, GOOD).status, 200, "its status")
            waiting = sum(1 for one in greedy if not one.done())
            world.say(f"{waiting} of {COUNT} still wait when the other is served")
            check(waiting >= COUNT // 4, f"only {waiting} of {COUNT} still wait: it was not its turn")
        statuses = [one.result().status for one in greedy]
        check(set(statuses) <= {200, 429, 503}, f"statuses {statuses}")
    with world.step("it still works"):
        server.stop()


run(scenario)
