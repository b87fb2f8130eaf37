"""Clients that ask and do not read: what their answers hold is bounded, and others are answered."""
import socket
import time

from attack import LONG, check, check_equal, run, wait

READERS = 200 if LONG else 80
MEMORY_MAX = (512 + 64) << 20  # the API's limit `memory`, and slack


def ask_and_not_read(server, words):
    """A request with a large answer, of which nothing is read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect((server.host, server.port))
    body = b'{"content":"' + b"a fox " * words + b'"}'
    connection.sendall(server.head("POST", "/tokenize", f"Content-Length: {len(body)}") + body)
    return connection


def scenario(world):
    server = world.serve()
    before = server.memory_bytes()
    with world.step(f"{READERS} clients ask for 8 MiB each and do not read"):
        alone = server.first_tokens_s(5)
        held, peak = [], 0
        for _ in range(READERS):
            try:
                held.append(ask_and_not_read(server, 500_000))
            except OSError:
                pass  # closed or refused: that is allowed
            peak = max(peak, server.memory_bytes() - before)
        for _ in range(100):
            peak = max(peak, server.memory_bytes() - before)
            time.sleep(0.05)
        beside = server.first_tokens_s(5)
        world.say(
            f"at most {peak / 2**20:.0f} MiB more; first token alone {1e3 * alone:.1f} ms, beside "
            f"{1e3 * beside:.1f} ms"
        )
        check(peak < MEMORY_MAX, "more memory than the documented limit")
    with world.step("a small request and a large one are answered beside them"):
        body = b'{"content":"' + b"a fox " * 200_000 + b'"}'
        for text in (b'{"content":"a"}', body):
            head = server.head("POST", "/tokenize", f"Content-Length: {len(text)}")
            check_equal(server.raw(head + text, seconds=60).status, 200, "a good POST")
    with world.step("when they have gone, so has the memory"):
        for connection in held:
            connection.close()
        wait(
            "the memory is given back",
            lambda: server.memory_bytes() - before < max(peak // 2, 64 << 20),
            30,
        )
        server.stop()


run(scenario)
