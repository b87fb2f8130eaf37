"""Strangers on the network: garbage, half a TLS record, drips, many connections. The cluster goes
on and does not grow."""
import contextlib
import random
import socket
import ssl
import time

from harness import NODE_PORT, check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat."
# a record of 255 bytes that ends early
CLIENT_HELLO = bytes.fromhex("16030100ff010000fb0303") + bytes(40)


class Stranger:
    """A machine on the switch that is no node."""

    def __init__(self, world, number):
        self.network = world.network(number)

    def connect(self, node):
        with self.network.inside():
            return socket.create_connection((node.address, NODE_PORT), 10)


def hung_up(sock, seconds):
    """Has the other end closed it within that time?"""
    sock.settimeout(seconds)
    try:
        while sock.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def garbage(world, stranger, laptop):
    with world.step("garbage is closed the connection"):
        random.seed(1)
        for size in (1, 5, 100, 5000, 200000):
            with contextlib.closing(stranger.connect(laptop)) as sock:
                with contextlib.suppress(OSError):
                    sock.sendall(
                        b"\x16\x03\x01" + random.randbytes(size)
                        if size % 2
                        else random.randbytes(size)
                    )
                if size >= 100:
                    check(hung_up(sock, 20), f"{size} bytes of garbage are still listened to")
        with contextlib.closing(stranger.connect(laptop)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: laptop\r\n\r\n")
            check(hung_up(sock, 20), "HTTP is still listened to")


def foreign_tls(world, stranger, laptop):
    with world.step("TLS without a certificate, and TLS 1.2, are refused"):
        for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.maximum_version = version
            refused = False
            with contextlib.closing(stranger.connect(laptop)) as sock:
                try:
                    with context.wrap_socket(sock) as tls:
                        tls.settimeout(20)
                        tls.sendall(bytes(100))
                        refused = not tls.recv(1)
                except (ssl.SSLError, OSError):
                    refused = True
            check(refused, f"{version.name} without a certificate is served")


def many(world, stranger, laptop, wanted):
    with world.step("200 connections, half of them silent, half with half a record; some drip"):
        before = laptop.memory_bytes()
        socks = []
        for number in range(200):
            with contextlib.suppress(OSError):
                sock = stranger.connect(laptop)
                socks.append(sock)
                if number % 2:
                    sock.sendall(CLIENT_HELLO)
        check(len(socks) > 50, f"only {len(socks)} connections came about")
        end, dripping = time.monotonic() + 6, socks[:10]
        while time.monotonic() < end:
            for sock in dripping:
                with contextlib.suppress(OSError):
                    sock.send(b"\x00")
            time.sleep(0.1)
        check_equal(laptop.nodes(), {"laptop": "up", "tower": "up"}, "nodes meanwhile")
        check_equal(laptop.chat(PROMPT, model=NAME, max_tokens=20), wanted, "text meanwhile")
        grown = laptop.memory_bytes() - before
        world.say(f"{len(socks)} connections: {grown / 1e6:.1f} MB more")
        check(grown < 64e6, f"{grown} bytes more in memory")
        return socks


def end_of_silence(world, stranger, laptop, socks):
    with world.step(
        "silent and slow ones are closed the connection after a while, and a member can come in "
        "again"
    ):
        end = time.monotonic() + 30
        still = sum(not hung_up(sock, max(0.01, end - time.monotonic())) for sock in socks)
        check_equal(still, 0, "connections that are still there")
        for sock in socks:
            sock.close()
        code = laptop.invite()
        attic = world.node("attic")
        attic.start(
            "--peer", laptop.address, "--join", code, "--sim", world.sim("attic", memory="4MiB")
        )
        attic.wait_until({"laptop": "up", "tower": "up", "attic": "up"}, 20)


def scenario(world):
    with world.step("two nodes with a model"):
        options = {name: ["--sim", world.sim(name, memory="32MiB")] for name in ("laptop", "tower")}
        laptop, tower = world.cluster("laptop", "tower", **options)
        laptop.json("place", world.model, "--streams", "1", "-c", "256")
        wait("tower knows it", lambda: tower.status()["instances"])
        wanted = tower.chat(PROMPT, model=NAME, max_tokens=20)
        stranger = Stranger(world, 99)
    garbage(world, stranger, laptop)
    foreign_tls(world, stranger, laptop)
    socks = many(world, stranger, laptop, wanted)
    end_of_silence(world, stranger, laptop, socks)
    with world.step("the two have not noticed"):
        check("is down" not in laptop.log_text(), "a link went down")
        check_equal(tower.chat(PROMPT, model=NAME, max_tokens=20), wanted, "text")


run(scenario)
