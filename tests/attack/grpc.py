"""HTTP/2 at its worst: resets, floods of frames, headers without end, messages that never end, and
callers that do not read. Each costs its own connection; a good client is answered meanwhile."""
import struct

from attack import PATIENCE, Crowd, check, run, wait

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4
HELD = 1000


def frame(kind, flags, stream, body=b""):
    head = struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
    return head + body


def literal(name, value):
    """HPACK: never indexed, with a new name (RFC 7541, section 6.2.3)."""
    return b"\x10" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call(stream, method=b"Generate", flags=END_HEADERS):
    block = b"\x83\x86" + literal(b":path", b"/medley.v1.Medley/" + method)
    block += literal(b":authority", b"localhost") + literal(b"content-type", b"application/grpc")
    return frame(HEADERS, flags, stream, block + literal(b"te", b"trailers"))


def text(number, value):
    """A field of a message: a text or a message."""
    return bytes([number << 3 | 2, len(value)]) + value


def message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


STORY = message(text(1, b"demo") + text(3, b"Once upon a time") + b"\x20\x90\x03")  # 400 tokens


def begin(server, *settings):
    connection = server.connect()
    body = b"".join(struct.pack(">HI", *setting) for setting in settings)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, body))
    return connection


def send_until_closed(connection, pieces):
    """How many went before the server closed it; reads what comes."""
    sent = 0
    try:
        for piece in pieces:
            connection.sendall(piece)
            sent += 1
            connection.setblocking(False)
            try:
                while True:
                    if not connection.recv(1 << 16):
                        return sent
            except BlockingIOError:
                pass
            finally:
                connection.settimeout(20)
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return None
    except (BrokenPipeError, ConnectionResetError):
        pass
    return sent


def resets():
    for i in range(20000):
        streams = range(20 * i + 1, 20 * i + 21, 2)
        cancel = struct.pack(">I", 8)
        yield b"".join(
            call(n) + frame(DATA, END_STREAM, n, STORY) + frame(RST_STREAM, 0, n, cancel)
            for n in streams
        )


def headers_without_end():
    yield call(1, flags=0)
    for _ in range(20000):
        yield frame(CONTINUATION, 0, 1, literal(b"x", b"y" * 100) * 100)


def wait_for_rest(server):
    def rests():
        return server.ask("GET", "/health").json()["slots"]["busy"] == 0

    wait("nothing is being generated", rests)


def check_floods(world, server):
    floods = {
        "resets": resets(),
        "headers without end": headers_without_end(),
        "a large frame": iter([frame(DATA, 0, 0, b"x" * 20000)] * 100),
    }
    for name, pieces in floods.items():
        with begin(server) as connection:
            sent = send_until_closed(connection, pieces)
            check(sent is not None, f"{name}: the connection was never closed")
            world.say(f"{name}: closed after {sent} pieces")
    floods = {"pings": frame(PING, 0, 0, b"12345678"), "settings": frame(SETTINGS, 0, 0)}
    for name, piece in floods.items():
        with begin(server) as connection:  # and its answers are not read
            sent = 0
            try:
                connection.settimeout(1)
                for _ in range(50000):
                    connection.sendall(piece * 100)
                    sent += 100
            except (BrokenPipeError, ConnectionResetError, TimeoutError):
                pass
            world.say(f"{name} whose answers are not read: {sent} sent")
            check(sent < 5000000, f"{name}: all were taken")
    wait_for_rest(server)


def check_memory(world, server):
    """Messages that begin and do not end, on as many calls as may be."""
    before = server.memory_bytes()
    held = []
    for _ in range(20):
        connection = begin(server)
        held.append(connection)
        try:
            for i in range(100):
                head = b"\0" + struct.pack(">I", 4 << 20)
                connection.sendall(call(2 * i + 1) + frame(DATA, 0, 2 * i + 1, head + b"x" * 600))
        except OSError:
            break
    for connection in held:
        connection.close()
    grown = server.memory_bytes() - before
    world.say(f"2000 messages that do not end: {grown / 2**20:.0f} MiB")
    check(grown < 100 << 20, f"{grown >> 20} MiB are held")


def idle(server):
    def bad(number):
        connection = server.connect(seconds=2)
        connection.sendall((PREFACE + frame(SETTINGS, 0, 0), PREFACE[:5], PREFACE,
                            PREFACE + frame(SETTINGS, 0, 0) + call(1))[number % 4])
        return connection

    return bad


def unread(server):
    def bad(number):
        connection = server.connect(seconds=2)  # a window of no bytes: nothing is taken
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + call(1) +
                           frame(DATA, END_STREAM, 1, STORY))
        return connection

    return bad


def check_good_client(world, server, name, bad, count):
    alone = server.first_tokens_s(8)
    with Crowd(count, bad(server)) as crowd:
        beside = server.first_tokens_s(8)
        world.say(
            f"{name}: {crowd.describe()}; first token alone {1e3 * alone:.1f} ms, beside "
            f"{1e3 * beside:.1f} ms, {server.descriptors()} descriptors, "
            f"{server.memory_bytes() / 2**20:.0f} MiB"
        )
        check(server.descriptors() < 900, "the connections took more than their part")
        check(beside < PATIENCE * max(2 * alone, 0.5), "a good client waits too long")


def scenario(world):
    server = world.serve()
    check_floods(world, server)
    check_memory(world, server)
    check_good_client(world, server, "idle", idle, HELD)
    check_good_client(world, server, "not read", unread, 20)
    wait_for_rest(server)
    server.stop()


run(scenario)
