"""What the programs of tests/attack share: a server to attack, and eyes on it.

A program is one finding, and states what must happen. It is built like a scenario of tests/cluster
(harness.py, whose steps, checks and nodes it uses):

    from attack import LONG, run, check_equal

    def scenario(world):
        with world.step("a foreign Host is refused"):
            server = world.serve()
            check_equal(server.status("GET", "/health", host="evil.example"), 403, "its status")
            server.stop()

    run(scenario)

It runs in a network namespace of its own, so that any address and port is its own.
`world.serve()` starts `medley serve` on the bundled model; `world.node()` is a `medley up`.
LONG is true under `./dev attack`: the same programs with more of everything, still bounded.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import select
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))

import harness  # noqa: E402
from harness import PATIENCE, Failure, check, check_equal, die_with_parent, wait  # noqa: E402, F401

LONG = os.environ.get("ATTACK_LONG") == "1"


class Answer:
    """An answer's head, and as much of its body as came."""

    def __init__(self, raw):
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1]) if lines[0].startswith("HTTP/") else None
        self.headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:300]!r}"


class Server:
    """`medley serve` on the bundled model."""

    def __init__(self, world, *options, descriptors=None, host="127.0.0.1", state="", tls=None):
        self.world, self.host, self.tls = world, host, tls
        self.log = world.folder / f"serve-{len(world.servers)}.log"
        words = [world.binary, "serve", world.model, "--api", f"{host}:0", "--devices", "cpu"]
        words += ["--alias", "demo"]
        words += [] if host.startswith("127.") else ["--open"]
        words += ["-t", "1", "--slots", "4", "--context", "512", *map(str, options)]

        def limit():
            die_with_parent()
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, descriptors)

        kept = {key: value for key, value in os.environ.items() if not key.startswith("MEDLEY_")}
        # AddressSanitizer keeps what was freed, and its memory is measured here.
        kept["ASAN_OPTIONS"] = kept.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=limit,
                env=kept | {"MEDLEY_STATE_DIR": str(state), "MEDLEY_LOG": "info", "GOMP_SPINCOUNT": "100"},
            )
        self.port = self._read_port()

    def _read_port(self):
        for line in self.process.stdout:
            if found := re.search(r"listening on https?://.*:(\d+)$", line.strip()):
                return int(found[1])
        raise Failure(f"medley serve ended with {self.process.wait()}: {self.log_text()[-2000:]}")

    def log_text(self):
        return self.log.read_text(errors="replace")

    def is_running(self):
        return self.process.poll() is None

    def stop(self):
        """It must still be there, and end in order: with a sanitizer's report it would not."""
        check(self.is_running(), f"medley serve has ended, with {self.process.returncode}")
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20 * PATIENCE)
        check_equal(code, 0, f"exit status of medley serve: {self.log_text()[-3000:]}")

    # -- what it costs

    def memory_bytes(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+)", text, re.MULTILINE)[1]) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self):
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    # -- requests

    def connect(self, source=None, seconds=20):
        """With TLS where `tls` is a context (ssl.SSLContext)."""
        connection = self.connect_plain(source, seconds)
        if not self.tls:
            return connection
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            wrapped = self.tls.wrap_socket(connection, server_hostname=self.host)
            stack.pop_all()
        return wrapped

    def connect_plain(self, source=None, seconds=20):
        return socket.create_connection(
            (self.host, self.port), seconds * PATIENCE, (source, 0) if source else None
        )

    def authority(self):
        return f"{self.host}:{self.port}"

    def head(self, method, path, *lines, host=None):
        """A request's head: with the right Host unless another is given; "" gives none."""
        hosts = [f"Host: {self.authority() if host is None else host}"] if host != "" else []
        return "\r\n".join([f"{method} {path} HTTP/1.1", *hosts, *lines, "", ""]).encode()

    def raw(self, request, seconds=20, source=None):
        """Sends bytes as they are and reads one answer, or to the end of the connection."""
        with self.connect(source, seconds) as connection:
            connection.sendall(request)
            return read_answer(connection)

    def ask(self, method, path, *lines, host=None, source=None):
        return self.raw(self.head(method, path, *lines, host=host), source=source)

    def status(self, method, path, *lines, host=None):
        return self.ask(method, path, *lines, host=host).status

    def first_token_s(self, text="Once upon a time", source=None, seconds=60):
        """How long a good client waits for the first token of a short answer."""
        kind, more = http.client.HTTPConnection, {}
        if self.tls:
            kind, more = http.client.HTTPSConnection, {"context": self.tls}
        connection = kind(self.host, self.port, timeout=seconds * PATIENCE, **more)
        connection.source_address = (source, 0) if source else None
        body = json.dumps(harness.chat_body(text, model="demo", stream=True, max_tokens=2))
        begin, first = time.monotonic(), None
        try:
            connection.request("POST", "/v1/chat/completions", body)
            response = connection.getresponse()
            check_equal(response.status, 200, "a good client's status")
            for line in response:
                if b'"content":"' in line and first is None:
                    first = time.monotonic() - begin
            check(first is not None, "a good client got no token")
            return first
        finally:
            connection.close()

    def first_tokens_s(self, count, source=None):
        """The median of `count`."""
        return statistics.median(self.first_token_s(source=source) for _ in range(count))


def read_answer(connection):
    """One answer: by its Content-Length, else to the end of the connection. What came until then
    where the server closed or said nothing more."""
    raw = b""
    with contextlib.suppress(OSError):
        while True:
            head, found, body = raw.partition(b"\r\n\r\n")
            length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
            if found and length and len(body) >= int(length[1]):
                break
            piece = connection.recv(65536)
            if not piece:
                break
            raw += piece
    return Answer(raw)


def metric(server, name):
    """A number of /metrics, of a metric without labels."""
    text = server.ask("GET", "/metrics").body.decode()
    found = re.search(rf"^{name} ([0-9.e+-]+)$", text, re.MULTILINE)
    return float(found[1]) if "." in found[1] or "e" in found[1] else int(found[1])


class Prober:
    """Asks for /health again and again on one connection, beside an attack; how long it took is how
    long the server's loop was held."""

    def __init__(self, server, every_s=0.005, source=None):
        self.server, self.every_s, self.source = server, every_s, source
        self.seconds, self.failures = [], []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._probe, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *problem):
        self.ended.set()
        self.thread.join()

    def _probe(self):
        connection = None
        while not self.ended.is_set():
            begin = time.monotonic()
            try:
                connection = connection or self.server.connect(self.source, seconds=30)
                connection.sendall(self.server.head("GET", "/health"))
                answer = read_answer(connection)
                if answer.status != 200:
                    raise Failure(repr(answer))
                if answer.headers.get("connection") == "close":
                    connection = None
            except (OSError, Failure) as problem:
                self.failures.append(str(problem))
                connection = None
            self.seconds.append(time.monotonic() - begin)
            self.ended.wait(self.every_s)

    def percentile_s(self, share):
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def describe(self):
        return (
            f"{len(self.seconds)} probes, {len(self.failures)} failed; ms: "
            f"median {1e3 * self.percentile_s(0.5):.1f}, p99 {1e3 * self.percentile_s(0.99):.1f}, "
            f"p99.9 {1e3 * self.percentile_s(0.999):.1f}, longest {1e3 * max(self.seconds):.1f}"
        )


class AttackWorld(harness.World):
    def __init__(self):
        super().__init__()
        self.servers = []

    def serve(self, *options, **more):
        """A server with these options of `medley serve`; `descriptors` is its RLIMIT_NOFILE,
        `state` its state folder (none: it keeps nothing)."""
        server = Server(self, *options, **more)
        self.servers.append(server)
        return server

    def address(self, text):
        """This machine's, too, from now on: a client's or the server's."""
        harness.ip("address", "add", text, "dev", "lo")

    def show_logs(self):
        super().show_logs()
        for server in self.servers:
            self.say(f"--- {server.log.name}\n{server.log_text()[-4000:]}")

    def clear(self):
        for server in self.servers:
            if server.is_running():
                server.process.kill()
                server.process.wait()
        super().clear()


class Crowd:
    """Many bad connections, each begun by `bad(number)`, which returns a socket; one that the server
    closes is begun again, so that so many are held all the time, as far as it lets them."""

    def __init__(self, count, bad, again_per_s=200):
        self.count, self.bad, self.again_per_s = count, bad, again_per_s
        self.poll = select.epoll()
        self.held, self.begun, self.closed, self.refused = {}, 0, 0, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._hold, daemon=True)

    def __enter__(self):
        for _ in range(self.count):
            self._begin()
        self.thread.start()
        return self

    def __exit__(self, *problem):
        self.ended.set()
        self.thread.join()
        for connection in self.held.values():
            connection.close()
        self.poll.close()

    def _begin(self):
        try:
            connection = self.bad(self.begun)
        except OSError:
            self.refused += 1
            return
        finally:
            self.begun += 1
        connection.setblocking(False)
        self.held[connection.fileno()] = connection
        self.poll.register(connection, select.EPOLLIN | select.EPOLLRDHUP)

    def _is_over(self, connection):
        try:
            return not connection.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _hold(self):
        while not self.ended.is_set():
            room = max(1, self.again_per_s // 10)
            for number, _ in self.poll.poll(0.1, room):
                if self._is_over(self.held[number]):
                    self.poll.unregister(number)
                    self.held.pop(number).close()
                    self.closed += 1
            for _ in range(min(room, self.count - len(self.held))):
                self._begin()
            self.ended.wait(0.1)

    def describe(self):
        return (
            f"{len(self.held)} of {self.count} held; {self.begun} begun, {self.closed} closed by "
            f"the server, {self.refused} refused"
        )


def run(scenario):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    harness.run(scenario, AttackWorld)
