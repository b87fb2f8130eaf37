"""Connections that do nothing of use: idle, slow, seeking an upgrade, kept after an answer. With as
many of them as want to be held, a good client gets in, and the server rests when they do."""
import contextlib
import json
import time

from attack import LONG, PATIENCE, Crowd, check, check_equal, read_answer, run, wait
from harness import chat_body

HELD = 2000
ROUNDS = 40 if LONG else 8


def bad_connections(server):
    whole = server.head("GET", "/health")
    websocket = server.head("GET", "/", "Connection: Upgrade", "Upgrade: websocket")
    begins = [
        b"",  # idle
        b"GET /health HTTP/1.1\r\nHost: local",  # in the middle of a head
        whole,  # idle after an answer
        websocket,
        server.head("POST", "/tokenize", "Content-Length: 100") + b"{",  # holds the body back
        b"\x16\x03\x01",  # in the middle of a handshake
    ]

    def bad(number):
        connection = server.connect(seconds=2)
        connection.sendall(begins[number % len(begins)])
        return connection

    return bad


def check_rest(world, server):
    """How much of a processor it takes while nobody does anything."""
    time.sleep(1)
    before = server.cpu_seconds()
    time.sleep(3)
    share = (server.cpu_seconds() - before) / 3
    world.say(f"{100 * share:.1f} % of a processor while they are held")
    check(share < 0.3 * PATIENCE, f"it spins: {100 * share:.0f} % of a processor")


def check_good_client(world, server):
    alone = server.first_tokens_s(ROUNDS)
    with Crowd(HELD, bad_connections(server)) as crowd:
        wait("it has closed some, which come again", lambda: crowd.closed >= 100)
        beside = server.first_tokens_s(ROUNDS)
        world.say(crowd.describe())
        world.say(
            f"first token, median of {ROUNDS}: alone {1e3 * alone:.1f} ms, beside {HELD} bad "
            f"connections {1e3 * beside:.1f} ms, {beside / alone:.2f} times"
        )
        check(beside < PATIENCE * max(2 * alone, 0.5), "a good client waits too long")
        world.say(f"{server.descriptors()} descriptors, {server.memory_bytes() / 2**20:.0f} MiB")
        check(server.descriptors() < 700, "the connections took more than their half")
    with Crowd(HELD, bad_connections(server), again_per_s=0) as crowd:
        check_rest(world, server)


def check_busy_share(world):
    """Who has too much under way is told so, rather than cut off."""
    server = world.serve("--limit", "client-connections=4")
    body = json.dumps(chat_body("Tell a story.", model="demo", stream=True, n=16,
                                max_tokens=400, temperature=1.5)).encode()
    head = server.head("POST", "/v1/chat/completions", f"Content-Length: {len(body)}")
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            busy = stack.enter_context(server.connect())
            busy.sendall(head + body)
            busy.recv(16)  # it is being answered
        with server.connect() as connection:
            answer = read_answer(connection)
        check_equal(answer.status, 429, "the fifth's status")
        check_equal(answer.json()["error"]["code"], "client_connections", "the limit's name")
        check_equal(answer.headers["retry-after"], "1", "Retry-After")
    wait("there is room again", lambda: server.ask("GET", "/health").status == 200)
    server.stop()


def scenario(world):
    with world.step("a client whose whole share is busy is told so"):
        check_busy_share(world)
    with world.step(f"1,024 descriptors, {HELD} bad connections: a good client gets in"):
        server = world.serve(descriptors=(1024, 1024))
        check_good_client(world, server)
        server.stop()
    with world.step("the soft limit is raised to the hard one"):
        server = world.serve(descriptors=(256, 4096))
        with Crowd(600, bad_connections(server), again_per_s=0):
            wait("more than 256", lambda: server.descriptors() > 400)
            server.first_token_s()
        server.stop()
    with world.step("hardly any descriptors: it neither spins nor locks anybody out"):
        server = world.serve(descriptors=(64, 64))
        with Crowd(200, bad_connections(server), again_per_s=0):
            check_rest(world, server)
            server.first_token_s()
        server.stop()


run(scenario)
