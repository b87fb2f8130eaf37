"""Bodies that are held back: they keep nobody else's out, and end."""
import threading
import time

from attack import LONG, PATIENCE, check, check_equal, read_answer, run

BODY = 31 << 20
HELD = 24 if LONG else 10


def hold_back(server, size=BODY):
    """All of a body but its last byte."""
    connection = server.connect(seconds=60)
    connection.sendall(server.head("POST", "/tokenize", f"Content-Length: {size}"))
    piece = b" " * (1 << 20)
    try:
        sent = 0
        while sent < size - 1:
            step = min(len(piece), size - 1 - sent)
            connection.sendall(piece[:step])
            sent += step
    except OSError:
        pass  # refused: that is allowed
    return connection


def good_post(server):
    body = b'{"content":"a fox"}'
    return server.raw(server.head("POST", "/tokenize", f"Content-Length: {len(body)}") + body)


def hold_many(server):
    held, threads = [], []
    for _ in range(HELD):
        threads.append(threading.Thread(target=lambda: held.append(hold_back(server))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return held


def scenario(world):
    server = world.serve()
    before = server.memory_bytes()
    with world.step(f"{HELD} bodies of 31 MiB keep one byte back: other requests are answered"):
        held = hold_many(server)
        for _ in range(20):
            check_equal(good_post(server).status, 200, "a good POST")
        grown = (server.memory_bytes() - before) / 2**20
        world.say(f"it grew by {grown:.0f} MiB")
        check(grown < 400, "more memory than the limits allow")
    with world.step("large requests get in, too: what lies for longest is closed"):
        time.sleep(2.5)
        large = b'{"content":' + b" " * (30 << 20) + b'"a fox"}'
        for _ in range(3):
            head = server.head("POST", "/tokenize", f"Content-Length: {len(large)}")
            answer = server.raw(head + large, seconds=60)
            check(answer.status in (200, 413, 429), f"a large POST: {answer}")
            check_equal(good_post(server).status, 200, "a good POST")
    for connection in held:
        connection.close()
    with world.step("a body that does not move gets 408"):
        with server.connect(seconds=40) as connection:
            begin = time.monotonic()
            connection.sendall(server.head("POST", "/tokenize", "Content-Length: 100") + b"{")
            check_equal(read_answer(connection).status, 408, "its answer")
            check(time.monotonic() - begin < 15 * PATIENCE, "it came late")
    with world.step("it still works"):
        check_equal(good_post(server).status, 200, "a good POST")
        server.stop()


run(scenario)
