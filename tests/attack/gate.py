"""Who may ask: what a web page of another origin, a name that was bound to this machine by its
owner (DNS rebinding), and a change of protocol get."""
import socket
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


def check_hosts(world, server):
    with world.step("a name that is not this machine's is refused, and the answer says what to do"):
        for name in ("evil.example", "evil.example:80", "localhost.evil.example", "8.8.8.8"):
            answer = server.ask("GET", "/health", host=name)
            check_equal(answer.status, 403, f"Host: {name}")
            check("--host" in answer.json()["error"]["message"], f"{answer}")
            body = "{}"
            answer = server.ask("POST", "/tokenize", f"Content-Length: {len(body)}", host=name)
            check_equal(answer.status, 403, f"POST with Host: {name}")
        same = server.ask("GET", "/health", "Origin: http://evil.example", host="evil.example")
        check_equal(same.status, 403, "an Origin that is the foreign Host")
    with world.step("a machine's own names pass"):
        for name in ("localhost", "LOCALHOST:1", "localhost.", "[::1]:80", "127.3.2.1", "api.lan"):
            check_equal(server.status("GET", "/health", host=name), 200, f"Host: {name}")
        own = socket.gethostname()
        check_equal(server.status("GET", "/health", host=own), 200, f"Host: {own}")
    with world.step("no Host, two of them, and what is none are malformed"):
        check_equal(server.status("GET", "/health", host=""), 400, "without Host")
        for lines in (["Host: localhost"], ["Host: evil.example"]):
            check_equal(server.status("GET", "/health", *lines), 400, "two of them")
        for name in ("a b", "localhost:x", "[::1", "::1", "a/b", "\x01", "x" * 3000):
            check_equal(server.status("GET", "/health", host=name), 400, f"Host: {name[:20]!r}")
    with world.step("a foreign Origin is refused"):
        for origin in ("http://evil.example", "null", f"http://evil.example#{server.authority()}"):
            status = server.status("GET", "/health", f"Origin: {origin}")
            check_equal(status, 403, f"Origin: {origin}")
        check_equal(
            server.status("GET", "/health", f"Origin: http://{server.authority()}"), 200, "its own"
        )


def check_addresses(world):
    with world.step("on every address, it answers for the one at which a connection arrives"):
        for address in ("10.77.9.1/32", "10.77.9.2/32"):
            world.address(address)
        server = world.serve("--tls", "off", "--open", host="0.0.0.0")
        server.host = "10.77.9.1"
        check_equal(server.status("GET", "/health"), 200, "Host: its address")
        check_equal(server.status("GET", "/health", host="10.77.9.2"), 403, "another one")
        server.stop()


def scenario(world):
    server = world.serve("--host", "api.lan")
    check_upgrades(world, server)
    check_hosts(world, server)
    check_addresses(world)
    with world.step("it still works"):
        check_equal(server.status("GET", "/health"), 200, "/health")
        server.stop()


run(scenario)
