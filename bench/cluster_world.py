"""Machines and a network between them, out of nothing but network namespaces: for cluster.py.

Each machine is a namespace with one device `lan`, all of them on one switch (delay.c) that passes frames on after a fixed time;
`tc tbf` limits what each may send. Commands run in a machine with a host name of its own.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import statistics
import struct
import subprocess
import threading
import time


def new_namespace():
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    os.unshare(os.CLONE_NEWNET)
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    os.setns(home, os.CLONE_NEWNET)
    os.close(home)
    return namespace


class Machine:
    """A host on the network: commands, sockets and counters in its namespace."""

    def __init__(self, number):
        self.name = f"m{number}"
        self.address = f"10.77.0.{number}"
        self.namespace = new_namespace()
        self.core = None  # that its processes are kept to

    def enter(self):
        os.setns(self.namespace, os.CLONE_NEWNET)
        os.unshare(os.CLONE_NEWUTS)
        socket.sethostname(self.name)
        if self.core is not None:
            os.sched_setaffinity(0, {self.core})

    @contextlib.contextmanager
    def inside(self):
        """Of this thread: sockets made here belong to the machine for ever."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        os.setns(self.namespace, os.CLONE_NEWNET)
        try:
            yield
        finally:
            os.setns(home, os.CLONE_NEWNET)
            os.close(home)

    def run(self, command):
        subprocess.run(command.split(), check=True, preexec_fn=self.enter)

    def start(self, command, **more):
        return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, preexec_fn=self.enter, **more)

    def traffic(self):
        """Bytes and packets received and sent by `lan`, Ethernet headers included."""
        with self.inside():
            text = pathlib.Path("/proc/thread-self/net/dev").read_text()
        numbers = [int(word) for word in re.search(r"lan:(.*)", text)[1].split()]
        return {"rx": numbers[0], "tx": numbers[8], "rx_packets": numbers[1], "tx_packets": numbers[9]}


class World:
    """n machines on one network. delay_us: each way; mbit: what each may send a second."""

    def __init__(self, n, program, delay_us=0, mbit=1000, offload=False):
        self.machines = [Machine(i + 1) for i in range(n)]
        descriptors = [machine.namespace for machine in self.machines]
        command = [program, "--us", delay_us, *(["--offload"] if offload else []), *descriptors]
        self.switch = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       pass_fds=descriptors)
        if self.switch.stdout.readline() != b"ready\n":
            raise SystemExit("the network could not be made")
        for machine in self.machines:
            machine.run("ip link set lo up")
            machine.run(f"ip addr add {machine.address}/24 dev lan")
            machine.run("ip link set lan up")
            machine.run("ip route add 224.0.0.0/4 dev lan")
            machine.run(f"tc qdisc add dev lan root tbf rate {mbit}mbit burst 128kb latency 50ms")
        self.round_trip_ms = statistics.median(self.ping() for _ in range(21))

    def ping(self):
        """The round trip between the first two machines, in ms."""
        with self.machines[0].inside():
            icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        with icmp:
            icmp.settimeout(2)
            body = struct.pack("!BBHHH", 8, 0, 0, 77, 1) + bytes(56)
            total = sum(struct.unpack(f"!{len(body) // 2}H", body))
            total = (total >> 16) + (total & 0xFFFF)
            packet = body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
            begin = time.monotonic()
            icmp.sendto(packet, (self.machines[1].address, 0))
            icmp.recv(1500)
            return (time.monotonic() - begin) * 1e3

    def close(self):
        self.switch.stdin.close()
        self.switch.wait()
        for machine in self.machines:
            os.close(machine.namespace)


class Node:
    """`medley up` on a machine."""

    def __init__(self, machine, medley, folder, options=()):
        self.machine, self.folder = machine, folder / machine.name
        self.medley, self.options, self.process = medley, list(options), None

    def start(self, *options):
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "MEDLEY_STATE_DIR": str(self.folder), "MEDLEY_LOG": os.environ.get("MEDLEY_LOG", "info")}
        log = open(self.folder / "log", "ab")
        self.began = time.monotonic()
        command = [self.medley, "up", "--name", self.machine.name, "--api", "127.0.0.1:8080", *self.options, *options]
        self.process = self.machine.start(command, stdout=log, stderr=log, env=environment)
        log.close()

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                print(f"{self.machine.name} did not end", flush=True)
            self.process = None

    def ask(self, request, timeout=300):
        """Every answer to a request on the control socket; the last one is of interest."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(timeout)
            control.connect(str(self.folder / "control.sock"))
            control.sendall(json.dumps(request).encode() + b"\n")
            answer = None
            for line in control.makefile():
                answer = json.loads(line)
                if "error" in answer:
                    raise SystemExit(f"{self.machine.name}: {request}: {answer['error']['text']}")
            return answer

    def wait_for(self, holds, what, timeout=60, pause=0.005):
        """Asks itself until holds(); returns the seconds since its start."""
        while time.monotonic() - self.began < timeout:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.machine.name} ended, see {self.folder}/log")
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                if holds():
                    return time.monotonic() - self.began
            time.sleep(pause)
        raise SystemExit(f"{self.machine.name}: {what} did not come within {timeout} s, see {self.folder}/log")

    def is_member(self):
        return self.ask({"do": "status"}, 2)["cluster"] is not None

    def sees(self, n):
        """It is a member, and has a link to each of the others."""
        nodes = self.ask({"do": "nodes"}, 2)["nodes"]
        return len(nodes) == n and all(node["state"] == "up" for node in nodes) and self.is_member()

    def add(self, path):
        """Gives the cluster a model; returns its name."""
        return self.ask({"do": "add", "path": str(path.resolve())})["model"]

    def place(self, model, **wishes):
        return self.ask({"do": "place", "model": str(model), **wishes})["ready"]

    def move(self, model, to):
        """Layers as `medley move --to` takes them; once the links are measured."""
        environment = {**os.environ, "MEDLEY_STATE_DIR": str(self.folder)}
        command = [self.medley, "move", model, "--to", to]
        for _ in range(60):
            done = subprocess.run(command, capture_output=True, text=True, env=environment, preexec_fn=self.machine.enter)
            if done.returncode == 0:
                return
            time.sleep(0.5)
        raise SystemExit(f"{self.machine.name}: {' '.join(command)}: {done.stderr}")

    def processor_s(self):
        words = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Resident KiB: all, and what is not a file's."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return {key: int(re.search(rf"{key}:\s*(\d+)", text)[1]) for key in ("VmRSS", "RssAnon", "RssFile")}


def form(nodes):
    """The first founds a cluster, the others join it with a code and know its address."""
    nodes[0].start("--new")
    nodes[0].wait_for(nodes[0].is_member, "its cluster")
    for node in nodes[1:]:
        code = nodes[0].ask({"do": "invite", "minutes": 5})["code"]
        node.start("--peer", nodes[0].machine.address, "--join", code)
        node.wait_for(node.is_member, "its membership")
    for node in nodes:
        node.wait_for(lambda node=node: node.sees(len(nodes)), "a link to every node")


# ---- requests over HTTP ------------------------------------------------------------------------------------

SYLLABLES = [c + v for c in "bdfghjklmnprstvwxyz" for v in "aeiou"]


def made_up_text(seed, words):
    """Other words for every seed, so that no prefix can be reused."""
    numbers = [(seed * 7919 + i * 104729) % 8999 for i in range(words)]
    return " ".join(SYLLABLES[n % 95] + SYLLABLES[n // 95 % 95] for n in numbers)


class Request(threading.Thread):
    """A streamed completion; remembers when each piece came."""

    def __init__(self, machine, model, text, tokens, sampling):
        super().__init__(daemon=True)
        self.machine, self.error = machine, None
        # Token 2 ends a text in the synthetic models.
        self.body = {"model": model, "prompt": text, "max_tokens": tokens, "temperature": 0, "stream": True,
                     "stream_options": {"include_usage": True}, "logit_bias": {"2": -100}, **sampling}
        self.times, self.usage, self.text, self.timings = [], {}, "", None

    def run(self):
        try:
            with self.machine.inside():
                connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=300)
                connection.connect()
            self.began = time.monotonic()
            connection.request("POST", "/v1/completions", json.dumps(self.body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"status {response.status}: {response.read(500).decode(errors='replace')}")
            for line in response:
                if line.startswith(b"data: {"):
                    self.take(json.loads(line[6:]))
            connection.close()
        except Exception as problem:  # told by complete(), in the main thread
            self.error = problem

    def take(self, event):
        if event.get("error"):
            raise RuntimeError(event["error"])
        if event.get("choices") and event["choices"][0].get("text"):
            self.times.append(time.monotonic())
            self.text += event["choices"][0]["text"]
        self.timings = event.get("timings") or self.timings
        self.usage = event.get("usage") or self.usage


def complete(machine, model, texts, tokens, **sampling):
    """All at once; returns them when all are through."""
    requests = [Request(machine, model, text, tokens, sampling) for text in texts]
    for request in requests:
        request.start()
    for request in requests:
        request.join()
        if request.error or request.usage.get("completion_tokens", 0) < tokens:
            raise SystemExit(f"a request failed: {request.error or request.usage}")
    return requests


def decode_rate(requests):
    """Tokens a second of all together, while all of them decode."""
    begin = max(request.times[0] for request in requests)
    end = min(request.times[-1] for request in requests)
    pieces = sum(sum(begin < at <= end for at in r.times) * r.usage["completion_tokens"] / len(r.times) for r in requests)
    return pieces / (end - begin)


def prefill_rate(request):
    """Tokens of the prompt a second, until the first of the answer."""
    return request.usage["prompt_tokens"] / (request.times[0] - request.began)
