"""Real nodes for tests: each is a `medley up` process in a network namespace of its own, all on one
switch.

Everything lies in one fresh namespace that this process enters first, so nothing of the machine's
own network is touched and all of it goes when the process ends. A scenario is a file of its own:

    from harness import World, run

    def scenario(world):
        with world.step("two nodes see each other"):
            a = world.node("laptop").start()
            ...

    run(scenario)

Each step is a point of TAP; the first that fails ends the scenario and shows the ends of the nodes'
logs. Where namespaces are not allowed the whole scenario is skipped, with the reason. At the end
every node that still runs must end in order on SIGTERM; one that ended by itself fails the
scenario.

MEDLEY is the binary, MEDLEY_MODEL a small model, MEDLEY_PATIENCE (a slow build) and MEDLEY_SLOWNESS
(a slow machine) are what waits are multiplied by. MEDLEY_KEEP=1 keeps the folder with the nodes'
state and logs.
"""
import contextlib
import ctypes
import functools
import http.client
import json
import os
import pathlib
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from namespaces import MS_REMOUNT, Cable, NotAllowed, enter_namespaces, ip, libc, mount, own_network

PATIENCE = float(os.environ.get("MEDLEY_PATIENCE", "1")) * float(
    os.environ.get("MEDLEY_SLOWNESS", "1")
)
API_PORT, NODE_PORT = 8080, 7979
PR_SET_PDEATHSIG = 1


class Failure(Exception):
    """What a user would see is not what it should be."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def check_equal(found, wanted, what):
    if found != wanted:
        raise Failure(f"{what}: {found!r}, not {wanted!r}")


def wait(what, condition, seconds=15):
    """Until `condition()` is true, and what it returned; Failure after `seconds` (times
    PATIENCE). It has a fifth of the time at most: to ask a node starts a process, and many tests
    wait at a time."""
    end = time.monotonic() + seconds * PATIENCE
    found = None
    while (begin := time.monotonic()) < end:
        found = condition()
        if found:
            return found
        time.sleep(min(1, max(0.05, 4 * (time.monotonic() - begin))))
    raise Failure(f"{what}: not within {seconds * PATIENCE:g} s; at last: {found!r}")


# ---- a node ------------------------------------------------------------------------------------


class Result:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def __repr__(self):
        return f"exit {self.code}, out {self.out!r}, err {self.err!r}"


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def be_a_machine(name):
    """Between fork and exec of a node: a host name of its own, and /sys shows the interfaces of its
    own network, where that is allowed."""
    die_with_parent()
    if libc.unshare(os.CLONE_NEWUTS) == 0:
        socket.sethostname(name)
    if libc.unshare(os.CLONE_NEWNS) == 0:
        libc.mount(b"sysfs", b"/sys", b"sysfs", ctypes.c_ulong(0), None)


def is_device_process(pid):
    """As opposed to one that renders chat templates."""
    try:
        return b"--compute-on-one-device" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Node:
    def __init__(self, world, name, number, folder):
        self.world, self.name, self.folder = world, name, pathlib.Path(folder)
        self.state = self.folder / "state"
        self.state.mkdir(parents=True)
        self.network = world.network(number)
        self.address = self.network.address
        self.binary, self.more = world.binary, {}  # of `medley up`, with what is in its environment
        self.options, self.process, self.said = [], None, None
        self.log = self.folder / "log"

    # -- its process

    def environment(self, log="info"):
        mine = {
            "MEDLEY_STATE_DIR": str(self.state),
            "HOME": str(self.folder),
            "GOMP_SPINCOUNT": "100",
            # not the machine's own Avahi
            "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self.folder}/no-bus",
            "MEDLEY_LOG": os.environ.get("MEDLEY_LOG", log),
        }
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("XDG_", "MEDLEY_"))
        }
        return kept | mine

    def start(self, *options):
        """`medley up`; without options with those of the last time."""
        check(not self.process, f"{self.name} runs already")
        self.options = [str(word) for word in options] or self.options
        words = [self.binary, "up", "--name", self.name, "-t", "1", *self.options]
        if not self.world.governed:
            words.append("--no-governor")
        self.started = time.monotonic()
        with self.log.open("ab") as log, self.network.inside():
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment() | self.more,
                preexec_fn=functools.partial(be_a_machine, self.name),
            )
        return self

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def children(self):
        """Its devices' processes: the system lists them by the thread that has started them."""
        lists = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        pids = [int(word) for path in lists for word in path.read_text().split()]
        return [pid for pid in pids if is_device_process(pid)]

    def end(self, number=signal.SIGTERM, seconds=15):
        """Sends a signal and waits; SIGTERM must end it in order."""
        process, self.process = self.process, None
        check(process.poll() is None, f"{self.name} had ended by itself, with {process.returncode}")
        process.send_signal(number)
        try:
            code = process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"{self.name} does not end on signal {number}") from None
        if number == signal.SIGTERM:
            check_equal(code, 0, f"exit status of {self.name} after SIGTERM")

    def ended(self, seconds=15):
        """Waits until it has ended by itself, as after `medley leave`; its exit status."""
        code = self.process.wait(seconds * PATIENCE)
        self.process = None
        return code

    def kill(self):
        self.end(signal.SIGKILL)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def cut(self):
        self.network.plug(False)

    def mend(self):
        self.network.plug(True)

    def memory_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise Failure(f"{self.name} has no memory: it has ended")

    def cpu_seconds(self):
        fields = (
            pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    # -- commands on it

    def popen(self, *words, env=None, **more):
        with self.network.inside():
            return subprocess.Popen(
                [self.world.binary, *map(str, words)],
                cwd=self.folder,
                preexec_fn=die_with_parent,
                env=self.environment("warn") | (env or {}),
                **more,
            )

    def medley(self, *words, ok=True, seconds=60, stdin="", env=None):
        """A command on this node. `ok`: True, it must succeed; False, it must fail; None, as it
        likes."""
        begin = time.monotonic()
        process = self.popen(
            *words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        try:
            out, err = process.communicate(stdin, timeout=seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise Failure(
                f"{self.name}: medley {' '.join(map(str, words))}: no end within "
                f"{seconds * PATIENCE:g} s: "
                f"{out!r} {err!r}"
            ) from None
        result = Result(process.returncode, out, err, time.monotonic() - begin)
        if ok is not None and (result.code == 0) != ok:
            raise Failure(f"{self.name}: medley {' '.join(map(str, words))}: {result}")
        check(result.code >= 0, f"{self.name}: medley {' '.join(map(str, words))} died: {result}")
        return result

    def json(self, *words, **more):
        return json.loads(self.medley(*words, "--json", **more).out)

    def try_json(self, *words):
        """The same, or None while it cannot answer. It is asked again and again, so with sanitizers
        leaks and globals, which take more than half of a start, are left to json()."""
        quick = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0:report_globals=0"
        result = self.medley(*words, "--json", ok=None, env={"ASAN_OPTIONS": quick})
        return json.loads(result.out) if result.code == 0 else None

    def status(self):
        return self.try_json("status")

    def nodes(self):
        """{name: state} of all nodes that it lists."""
        found = self.try_json("nodes")
        return {node["name"]: node["state"] for node in found["nodes"]} if found else None

    def leader(self):
        status = self.status()
        return status["cluster"]["leader"] if status and status["cluster"] else None

    def is_member(self):
        status = self.status()
        return bool(status and status["cluster"])

    def is_waiting(self):
        status = self.status()
        return bool(status and status["waiting"] and not status["cluster"])

    def invite(self):
        return self.json("invite")["code"]

    def wait_until(self, states, seconds=15):
        """Until it lists exactly these nodes in these states."""
        wait(
            f"{self.name} sees {states}",
            lambda: (found := self.nodes()) == states or None and found,
            seconds,
        )

    def answering(self, *words):
        return Conversation(self, words)

    # -- its API

    def connect(self, address="127.0.0.1", port=API_PORT, seconds=60):
        """A socket from inside its namespace."""
        with self.network.inside():
            return socket.create_connection((address, port), seconds * PATIENCE)

    def ask(self, request, seconds=10):
        """The last answer to a request on its control socket (docs/control.md), or None where none
        came."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(seconds * PATIENCE)
            try:
                control.connect(str(self.state / "control.sock"))
                control.sendall(json.dumps(request).encode() + b"\n")
                lines = control.makefile().read().splitlines()
                return json.loads(lines[-1]) if lines else None
            except OSError:
                return None

    def http(self, method, path, body=None, seconds=60):
        """(status, JSON) of one request to its API, from the same machine."""
        connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=seconds * PATIENCE)
        connection.sock = self.connect(seconds=seconds)
        try:
            connection.request(
                method,
                path,
                json.dumps(body) if body is not None else None,
                {"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def chat(self, text, **more):
        """What the model answers, greedily."""
        status, answer = self.http("POST", "/v1/chat/completions", chat_body(text, **more))
        check_equal(status, 200, f"{self.name}: {answer}")
        return answer["choices"][0]["message"]["content"]

    def events(self, text, **more):
        """The same as events of a stream."""
        connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=60 * PATIENCE)
        connection.sock = self.connect()
        try:
            connection.request(
                "POST", "/v1/chat/completions", json.dumps(chat_body(text, stream=True, **more))
            )
            response = connection.getresponse()
            check_equal(response.status, 200, f"{self.name}: streaming")
            done = False
            for line in response:
                line = line.decode().strip()
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    chunk = json.loads(line[6:])
                    check("error" not in chunk, f"{self.name}: {chunk}")
                    yield chunk
            check(done, f"{self.name}: the stream broke off")
        finally:
            connection.close()

    def stream(self, text, **more):
        """Its text piece by piece: yields (seconds since the request, piece)."""
        begin = time.monotonic()
        for chunk in self.events(text, **more):
            for choice in chunk.get("choices", []):
                if choice["delta"].get("content"):
                    yield time.monotonic() - begin, choice["delta"]["content"]


def chat_body(text, **more):
    return {
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "seed": 1,
        "max_tokens": 40,
    } | more


class Conversation:
    """A command at a terminal that asks something."""

    def __init__(self, node, words):
        self.node, self.words, self.err = node, words, ""
        self.terminal, end = pty.openpty()
        self.process = node.popen(
            *words, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        os.close(end)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while piece := self.process.stderr.read(1):
            self.err += piece

    def question(self):
        """The four words that it shows, once it asks."""
        wait(
            f"{self.node.name}: medley {' '.join(self.words)} asks",
            lambda: "[y/N]" in self.err or (self.process.poll() is not None and self.fail()),
            20,
        )
        return self.err.split("\n")[-2].strip()

    def fail(self):
        self.reader.join()
        raise Failure(
            f"{self.node.name}: medley {' '.join(self.words)} ended without a question: "
            f"{self.err!r}"
        )

    def say(self, text):
        os.write(self.terminal, text.encode() + b"\n")

    def result(self, seconds=25):
        try:
            code = self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure(
                f"{self.node.name}: medley {' '.join(self.words)} does not end: {self.err!r}"
            ) from None
        self.reader.join()
        os.close(self.terminal)
        return Result(code, self.process.stdout.read(), self.err, 0)


# ---- the world ---------------------------------------------------------------------------------


class World:
    governed = False  # whether nodes keep their devices cool

    def __init__(self):
        self.binary = os.path.abspath(os.environ["MEDLEY"])
        self.model = os.path.abspath(os.environ["MEDLEY_MODEL"])
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="medley-"))
        self.nodes, self.mounts, self.n_steps = [], [], 0
        self.switch = own_network()
        ip("link", "set", "lo", "up")
        self.make_switch()

    def make_switch(self):
        ip("link", "add", "name", "switch", "type", "bridge")
        ip("link", "set", "switch", "up")

    def network(self, number):
        """The one of node `number`, on the switch."""
        return Cable(self.switch, number)

    def node(self, name):
        number = len(self.nodes) + 1
        node = Node(self, name, number, self.folder / str(number))
        self.nodes.append(node)
        return node

    def say(self, text):
        print("\n".join("# " + line for line in str(text).splitlines()), flush=True)

    @contextlib.contextmanager
    def step(self, name):
        begin = time.monotonic()
        self.n_steps += 1
        try:
            yield
            self.check_running()
        except BaseException:
            print(f"not ok {self.n_steps} - {name}", flush=True)
            raise
        print(f"ok {self.n_steps} - {name} # {time.monotonic() - begin:.1f} s", flush=True)

    def check_running(self):
        for node in self.nodes:
            if node.process and node.process.poll() is not None:
                raise Failure(f"{node.name} has ended by itself, with {node.process.returncode}")

    def sim(self, name, **keys):
        """A file with one simulated device; with names and values of docs/simulated-devices.md."""
        path = self.folder / f"{name}.ini"
        given = {"memory": "1GiB", "decode": "200MB/s", "flops": "4GFLOP/s"} | keys
        path.write_text(
            f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in given.items())
        )
        return path

    def disk(self, node, size):
        """The node's state lies on a disk of so many bytes; again: of another size."""
        again = node.state in self.mounts
        mount("tmpfs", node.state, "tmpfs", MS_REMOUNT if again else 0, f"size={size}")
        if not again:
            self.mounts.append(node.state)

    def cluster(self, *names, **options):
        """Nodes that are one cluster: options[name] are those of `medley up`. All see each other
        when it returns."""
        nodes = [self.node(name) for name in names]
        common = options.get("all", [])
        nodes[0].start("--new", *common, *options.get(names[0], []))
        wait(f"{names[0]} founds a cluster", lambda: nodes[0].leader() == names[0])
        for node in nodes[1:]:
            code = nodes[0].invite()
            node.start("--peer", nodes[0].address, *common, *options.get(node.name, []))
            wait(f"{node.name} listens to commands", node.status)
            node.medley("join", code, nodes[0].address)
        for node in nodes:
            node.wait_until({name: "up" for name in names}, 20)
        return nodes

    def small_model(self, node, before, after):
        """The small model in half of its bytes, under a name of the same length."""
        path = self.folder / "small.gguf"
        node.medley("convert", self.model, "--to", "q4_0", "--pure", "-o", path)
        bytes_ = path.read_bytes()
        check_equal(bytes_.count(before.encode()), 1, "names in the file")
        path.write_bytes(bytes_.replace(before.encode(), after.encode()))
        return path

    def copy_of_model(self, name="model.gguf"):
        path = self.folder / name
        shutil.copy(self.model, path)
        return path

    def long_model(self, tokens, name="long.gguf"):
        """A copy whose file says that it was trained for so many tokens: for long answers, not for
        good ones."""
        path = self.copy_of_model(name)
        bytes_ = bytearray(path.read_bytes())
        key = b".context_length" + (4).to_bytes(4, "little")  # a u32
        at = bytes_.index(key) + len(key)
        bytes_[at : at + 4] = tokens.to_bytes(4, "little")
        path.write_bytes(bytes_)
        return path

    def wire_bytes(self, node):
        """What it has sent and heard on its cable, with all headers."""
        found = json.loads(ip("-s", "-j", "link", "show", node.network.port))[0]["stats64"]
        return found["rx"]["bytes"], found["tx"]["bytes"]  # of the switch's end

    def show_logs(self):
        for node in self.nodes:
            self.say(f"---- the log of {node.name} ends so:")
            self.say("\n".join(node.log_text().splitlines()[-60:]))

    def close(self):
        """Every node that runs ends in order."""
        running = [node for node in self.nodes if node.process]
        problems = []
        for node in running:
            try:
                node.end()
            except Failure as problem:
                problems.append(str(problem))
        if problems:
            raise Failure("; ".join(problems))

    def clear(self):
        for node in self.nodes:
            if node.is_running():
                node.process.kill()
                node.process.wait()
        for path in self.mounts:
            libc.umount2(str(path).encode(), 2)
        if not os.environ.get("MEDLEY_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.say(f"kept: {self.folder}")


def run(scenario, kind=World):
    """The scenario's process."""
    print("TAP version 13", flush=True)
    try:
        enter_namespaces()
        world = kind()
    except (NotAllowed, OSError) as problem:
        print(f"1..0 # SKIP {problem}", flush=True)
        sys.exit(0)
    failed = False
    try:
        scenario(world)
        with world.step("every node ends in order"):
            world.close()
    except BaseException as problem:  # noqa: BLE001 (the logs are shown whatever it was)
        failed = True
        world.say("".join(traceback.format_exception(problem)))
        world.show_logs()
    world.clear()
    print(f"1..{world.n_steps}", flush=True)
    sys.exit(failed)
