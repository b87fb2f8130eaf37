"""Connections that do nothing of use: idle, slow, seeking an upgrade, kept after an answer. With as
many of them as want to be held, a good client gets in, and the server rests when they do."""
import time

from attack import LONG, PATIENCE, Crowd, check, run, wait

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


def scenario(world):
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
