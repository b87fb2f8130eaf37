"""Who may ask: what a web page of another origin, a name that was bound to this machine by its
owner (DNS rebinding), and a change of protocol get."""
import time

from attack import check, check_equal, read_answer, run

KEY = ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")
SETTINGS = "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"


def upgrade(server, protocol, *more):
    return server.ask("GET", "/health", "Connection: Upgrade", f"Upgrade: {protocol}", *more)


def check_upgrades(world, server):
    with world.step("no protocol but HTTP: a WebSocket is refused, h2c goes on as HTTP/1.1"):
        for text in ("websocket", "WebSocket"):
            check_equal(upgrade(server, text, *KEY).status, 400, f"Upgrade: {text}")
        check_equal(upgrade(server, "h2c", SETTINGS).status, 200, "Upgrade: h2c")
        for text in ("foo", "h2c, websocket", "TLS/1.0"):
            check(upgrade(server, text).status in (200, 400, 403), f"Upgrade: {text}")
    with world.step("the same on a connection that was used before"):
        for text in ("websocket", "h2c", "foo"):
            with server.connect() as connection:
                connection.sendall(server.head("GET", "/health"))
                check_equal(read_answer(connection).status, 200, "the first")
                connection.sendall(
                    server.head("GET", "/health", "Connection: Upgrade", f"Upgrade: {text}", *KEY)
                )
                check(read_answer(connection).status in (200, 400, 403), f"Upgrade: {text}")
    with world.step("CONNECT opens no tunnel"):
        with server.connect() as connection:
            connection.sendall(server.head("CONNECT", "evil.example:443"))
            begin = time.monotonic()
            answer = read_answer(connection)
            check(time.monotonic() - begin < 5, "the connection stayed open")
            check(answer.status in (None, 400, 404, 405), f"CONNECT: {answer}")


def scenario(world):
    server = world.serve()
    check_upgrades(world, server)
    with world.step("it still works"):
        check_equal(server.status("GET", "/health"), 200, "/health")
        server.stop()


run(scenario)
