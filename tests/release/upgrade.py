#!/usr/bin/env python3
"""A running cluster is upgraded by package: upgrade.py LOWER REPO WORK OLD NEW, in namespaces of
its own, as root (./dev upgrade-check makes them).

LOWER is a Debian root with systemd and OLD, the previous release's package. Two machines boot from
it, each with a systemd and a layer of its own; they hold a model together. One after the other
installs NEW, while a reply runs and requests come; then one goes back to OLD, and on to NEW again.
Prints a line for each thing that was seen, and ends with the first that was not.
"""
import ctypes
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

LOWER, REPO, WORK, OLD, NEW = sys.argv[1:]  # OLD, NEW: their paths in REPO
UNIT, NAME, PROMPT = "medley.service", "Medley Stories", "Tell me a story about a fox."
# Neither holds the whole model; a token takes long enough for a reply to outlast an upgrade.
DEVICE = "[half]\nmemory = 12MiB\ndecode = 25MB/s\nflops = 4GFLOP/s\n"
TOKENS = 230  # about as much as the context takes
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def check(what, is_so, more=""):
    if not is_so:
        raise SystemExit(f"FAILED: {what} {more}")
    print(f"ok  {what}", flush=True)


def wait(what, condition, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise SystemExit(f"FAILED: not within {seconds} s: {what}")


def control_group():
    """This process's own in the second version's tree: a folder that every kernel here has."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, folder, kind = line.split()[:3]
        if kind == "cgroup2":
            own = [line for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
                   if line.startswith("0::")]
            return pathlib.Path(folder + own[0][3:].rstrip("/"))
    raise SystemExit("FAILED: this machine has no control groups of version 2")


class Machine:
    def __init__(self, name, number):
        self.name, self.address = name, f"10.77.0.{number}"
        self.folder = pathlib.Path(WORK, name)
        self.folder.mkdir()
        self.group = control_group() / f"medley-upgrade-{os.getpid()}-{number}"
        self.group.mkdir()
        self.log = open(self.folder / "systemd.log", "wb")
        self.unshare = subprocess.Popen(
            ["sh", "-c", 'echo 0 >"$1/cgroup.procs"; shift; exec "$@"', "sh", self.group, "unshare",
             "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup", "--kill-child",
             "--propagation", "private", "bash", f"{REPO}/tools/dev/service_root.sh", LOWER, REPO,
             self.folder], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.first = wait(f"{name} boots", self.systemd, 40)
        self.plug(number)
        self.run("systemctl", "is-system-running", "--wait", ok=False)

    def systemd(self):
        """Its first process, once that is systemd."""
        path = f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children"
        for pid in pathlib.Path(path).read_text().split():
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "systemd" and \
                    pathlib.Path("/proc", str(pid), "root", "run/systemd/private").is_socket():
                return pid
        return None

    def plug(self, number):
        for words in (
                f"ip link add port{number} type veth peer name eth0 netns {self.first}",
                f"ip link set port{number} master switch up",
                f"nsenter -t {self.first} --net ip address add {self.address}/24 dev eth0",
                f"nsenter -t {self.first} --net ip link set eth0 up"):
            subprocess.run(words.split(), check=True)

    def run(self, *words, ok=True, seconds=90):
        done = subprocess.run(
            ["nsenter", "-t", self.first, "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup",
             "--wd=/", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", *words],
            capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
        if ok and done.returncode:
            raise SystemExit(f"FAILED: {self.name}: {' '.join(words)}: {done.stdout}{done.stderr}"
                             f"{self.journal()}")
        return done.stdout

    def journal(self):
        return self.run("journalctl", "--unit", UNIT, "--no-pager", "-n", "40", ok=False)

    def json(self, *words):
        found = self.run("medley", *words, "--json", ok=False)
        return json.loads(found) if found.strip() else None

    def nodes(self):
        found = self.json("nodes")
        return {node["name"]: node for node in found["nodes"]} if found else {}

    def shown(self, name):
        return self.run("systemctl", "show", "--value", "--property", name, UNIT).strip()

    def request(self, seconds=120, **more):
        """The answer to a chat, asked from the machine itself."""
        with open(f"/proc/{self.first}/ns/net", "rb") as there, \
                open("/proc/thread-self/ns/net", "rb") as here:
            assert libc.setns(there.fileno(), CLONE_NEWNET) == 0  # this thread alone
            try:
                connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=seconds)
                connection.connect()
            finally:
                assert libc.setns(here.fileno(), CLONE_NEWNET) == 0
        headers = more.pop("headers", {})
        connection.request("POST", "/v1/chat/completions", json.dumps({
            "model": NAME, "messages": [{"role": "user", "content": PROMPT}], "temperature": 0,
            "seed": 1} | more), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"{answer.status} {answer.read()}")
        return answer

    def text(self, tokens):
        answer = json.loads(self.request(max_tokens=tokens).read())
        return answer["choices"][0]["message"]["content"]

    def end(self):
        self.unshare.kill()
        self.unshare.wait()
        for _ in range(50):
            try:
                for folder in sorted(self.group.rglob("*/"), reverse=True):
                    folder.rmdir()
                self.group.rmdir()
                return
            except OSError:
                time.sleep(0.1)


class Stream(threading.Thread):
    """Reads one long reply from a machine. Where that breaks off, the rest is asked of another, as
    the README tells clients to."""

    def __init__(self, machine, other=None):
        super().__init__(daemon=True)
        self.machine, self.other = machine, other
        self.id = f"upgrade-of-{time.monotonic_ns()}"
        self.pieces, self.breaks, self.done, self.problem, self.last = [], 0, False, None, None
        self.start()

    def read(self, machine):
        headers = {"x-request-id": self.id}
        if self.last:
            headers["Last-Event-ID"] = self.last
        answer = machine.request(stream=True, max_tokens=TOKENS, headers=headers)
        event = {}
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
            else:
                self.take(event)
                event = {}

    def take(self, event):
        """A whole event: what a connection cuts in two comes again."""
        data = event.get("data")
        if data == "[DONE]":
            self.done = True
        elif data:
            chunk = json.loads(data)
            if "error" in chunk:
                raise OSError(str(chunk))
            self.pieces += [choice["delta"].get("content") or ""
                            for choice in chunk.get("choices", [])]
            self.last = event.get("id", self.last)

    def run(self):
        machine = self.machine
        try:
            while not self.done and self.breaks < 5:
                try:
                    self.read(machine)
                except (OSError, http.client.HTTPException):
                    if not self.other:
                        raise
                if not self.done:
                    self.breaks += 1
                    machine = self.other or machine
        except Exception as problem:  # noqa: BLE001 (the main thread judges)
            self.problem = problem

    def text(self):
        self.join(300)
        check(f"the reply at {self.machine.name} came to its end", self.done, repr(self.problem))
        return "".join(self.pieces)


class Asker(threading.Thread):
    """Asks a machine one short question after the other, each on a connection of its own."""

    def __init__(self, machine, wanted):
        super().__init__(daemon=True)
        self.machine, self.wanted, self.stopping = machine, wanted, False
        self.n_good, self.n_cut, self.wrong = 0, 0, []
        self.away = []  # what it was told where it has to come again
        self.start()

    def run(self):
        while not self.stopping:
            try:
                text = self.machine.text(8)
                if text == self.wanted:
                    self.n_good += 1
                else:
                    self.wrong.append(text)
            except ConnectionRefusedError as problem:
                self.wrong.append(repr(problem))
            except (ConnectionError, http.client.HTTPException):
                self.n_cut += 1  # it was being answered when its process ended: asked again
            except OSError as problem:
                if not str(problem).startswith("503"):
                    self.wrong.append(repr(problem))
                self.away.append(str(problem))  # it came when the node was just stopping
                time.sleep(0.5)

    def stop(self):
        self.stopping = True
        self.join(120)
        stopping = [] if OLD.endswith("~lower.deb") else [
            each for each in self.away if '"stopping"' in each]
        away = [each for each in self.away if each not in stopping]
        if stopping:
            print(f"    {len(stopping)} were told by the older version that it was stopping (503): "
                  "nothing mends what is released", flush=True)
        check(f"{self.n_good} requests at {self.machine.name} meanwhile were answered, none was "
              f"refused or answered otherwise; asked again: {self.n_cut} cut in mid-answer, "
              f"{len(away)} told to come again (503)",
              not self.wrong and self.n_good > 0 and self.n_cut <= 2 and len(away) <= 1,
              str(self.wrong + away))


def found(laptop, tower):
    """The cluster, of the package that is installed."""
    for machine in (laptop, tower):
        pathlib.Path("/proc", str(machine.first), "root", "etc/half.ini").write_text(DEVICE)
    common = ["--no-discovery", "--sim", "/etc/half.ini", "-t", "1", "--no-governor"]
    laptop.run("medley", "service", "install", "--", "--new", "--name", "laptop", *common)
    tower.run("medley", "service", "install", "--", "--peer", laptop.address, "--name", "tower",
              *common)
    wait("laptop founds a cluster",
         lambda: ((laptop.json("status") or {}).get("cluster") or {}).get("leader") == "laptop")
    tower.run("medley", "join", laptop.json("invite")["code"], laptop.address)
    both_up(laptop, tower)
    laptop.run("medley", "place", "/usr/share/medley/demo.gguf", "--streams", "4", "-c", "512")
    status = wait("the model is ready", lambda: is_ready(laptop))
    stages = [stage for instance in status["instances"] for stage in instance["stages"]]
    check(f"both machines hold layers: {json.dumps(stages)[:160]}", len(stages) == 2)


def both_up(*machines):
    for machine in machines:
        wait(f"{machine.name} sees both", lambda machine=machine: [
            node["state"] for node in machine.nodes().values()] == ["up", "up"])


def is_ready(machine):
    status = machine.json("status")
    return status if status and [each["state"] for each in status["instances"]] == ["ready"] \
        else None


def dpkg(machine, *words):
    machine.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", *words, seconds=240)


def upgrade(machine, other, wanted, short):
    before = machine.shown("MainPID"), machine.nodes()[machine.name]["id"]
    # As `dpkg -i` does, in two steps: on a busy machine the first may outlast the replies.
    dpkg(machine, "--unpack", "/opt/medley/" + NEW)
    kept, broken = Stream(other), Stream(machine, other)
    wait("both replies run", lambda: len(kept.pieces) > 3 and len(broken.pieces) > 3)
    asker = Asker(machine, short)
    begin = time.monotonic()
    dpkg(machine, "--configure", "medley")
    seconds = time.monotonic() - begin
    running = [not each.done and not each.problem for each in (kept, broken)]
    check(f"{machine.name} was restarted in {seconds:.1f} s, while a reply ran", running[0],
          f"{len(kept.pieces)} pieces, {kept.problem!r}")
    check("its node is another process", machine.shown("MainPID") not in ("0", before[0]))
    check_version(machine)
    both_up(machine, other)
    check("it is the same node as before", machine.nodes()[machine.name]["id"] == before[1])
    wait("its model is ready", lambda: is_ready(machine))
    check("the other's reply has every letter", kept.text() == wanted, repr(kept.pieces))
    check("and did not break", kept.breaks == 0)
    check(f"its own reply, taken up at {other.name} after {broken.breaks} break(s), too",
          broken.text() == wanted, repr(broken.pieces))
    time.sleep(1)
    asker.stop()
    check("it answers as before", machine.text(8) == short)


def swap(machine, other, package, short):
    """While nothing is asked for. As long as nothing of a newer kind was agreed on, an older
    version can go on, too (docs/cluster-log.md)."""
    before = machine.nodes()[machine.name]["id"]
    dpkg(machine, "-i", "/opt/medley/" + package)
    check_version(machine)
    both_up(machine, other)
    check("it is the same node as before", machine.nodes()[machine.name]["id"] == before)
    for each in (machine, other):
        wait(f"the model is ready at {each.name}", lambda each=each: is_ready(each))
        check(f"{each.name} answers as before", each.text(8) == short)


def check_version(machine):
    version = version_of(machine)
    wait(f"the node of {machine.name} is of the package's version", lambda: (
        machine.nodes().get(machine.name) or {}).get("version") == version)
    print(f"ok  the node of {machine.name} is of the package's version, {version}", flush=True)


def version_of(machine):
    return machine.run("dpkg-query", "-W", "-f", "${Version}", "medley")


def main():
    for words in ("link set lo up", "link add name switch type bridge", "link set switch up"):
        subprocess.run(["ip", *words.split()], check=True)
    machines = []
    try:
        machines.append(Machine("laptop", 1))
        machines.append(Machine("tower", 2))
        laptop, tower = machines
        old = version_of(laptop)
        check(f"two machines boot, with medley {old}", old == version_of(tower))
        found(laptop, tower)
        begin = time.monotonic()
        wanted, short = laptop.text(TOKENS), laptop.text(8)
        check(f"an undisturbed reply has {len(wanted)} letters, and takes "
              f"{time.monotonic() - begin:.0f} s", len(wanted) > 300)
        for machine, other in ((tower, laptop), (laptop, tower)):
            upgrade(machine, other, wanted, short)
        new = version_of(laptop)
        check(f"all of the cluster is medley {new}", new != old and {
            node["version"] for node in tower.nodes().values()} == {new})
        swap(tower, laptop, OLD, short)
        check("back to the older version beside the newer one", {
            node["version"] for node in laptop.nodes().values()} == {old, new})
        swap(tower, laptop, NEW, short)
    except BaseException:
        for machine in machines:
            print(f"--- {machine.name}\n{machine.journal()}", file=sys.stderr)
        raise
    finally:
        for machine in machines:
            machine.end()
        for name in ("laptop", "tower"):
            shutil.rmtree(pathlib.Path(WORK, name), ignore_errors=True)
    print("upgraded by package, one machine after the other, and back: nothing was lost")


main()
