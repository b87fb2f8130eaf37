"""The cluster that chaos happens to: real nodes on a switch that can do anything to their frames,
states on small disks, a clock of their own, and what each kind of fault does."""
import itertools
import os
import pathlib
import resource
import signal
import struct
import time

from harness import Node, World, check, check_equal, wait
from network import Switch, Weather

MODEL = "Medley Stories"
DISK_BYTES = 1200 << 20  # a node leaves 1 GiB free


class ChaosNode(Node):
    """A node that counts its lives. What it says goes to the world's folder of logs."""

    def __init__(self, world, name, number, folder):
        super().__init__(world, name, number, folder)
        self.number, self.life, self.dead_on_purpose = number, 0, True
        self.log = world.logs / f"{name}.log"
        self.clock = self.folder / "clock"
        self.set_clock(0)

    def set_clock(self, seconds):
        self.clock.write_bytes(struct.pack("q", int(seconds * 1e9)))

    def environment(self, log="info"):
        found = super().environment(log)
        if self.world.clock_library:
            found |= {"LD_PRELOAD": self.world.clock_library, "CHAOS_CLOCK": str(self.clock)}
        return found

    def start(self, *options):
        self.life += 1
        self.dead_on_purpose = False
        return super().start(*options)

    def die(self):
        """kill -9."""
        self.dead_on_purpose = True
        self.process.kill()
        self.process.wait()
        self.process = None

    def finish(self):
        """SIGTERM, as at a reboot."""
        self.dead_on_purpose = True
        if self.process:
            self.end()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class ChaosWorld(World):
    """seed: of the switch's losses."""

    def __init__(self, count, seed, logs):
        self.count, self.seed, self.logs = count, seed, pathlib.Path(logs)
        self.clock_library = os.environ.get("CHAOS_CLOCK_LIBRARY", "")
        self.wire = None
        self.logs.mkdir(parents=True, exist_ok=True)
        for old in self.logs.glob("*"):
            old.unlink()
        self.begin = time.monotonic()
        self.story = (self.logs / "story").open("a", buffering=1)
        super().__init__()

    def make_switch(self):
        self.wire = Switch(self.switch, self.count, self.seed)

    def network(self, number):
        return self.wire.ports[number - 1]

    def node(self, name):
        number = len(self.nodes) + 1
        node = ChaosNode(self, name, number, self.folder / str(number))
        self.nodes.append(node)
        self.disk(node, DISK_BYTES)
        return node

    def tell(self, text, aloud=True):
        """Into the story, with the clock of the nodes' logs."""
        now = time.time()
        line = f"{time.strftime('%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d} {text}"
        self.story.write(line + "\n")
        if aloud:
            self.say(line)

    # ---- convergence ----

    def problem(self):
        """Why the cluster is not whole, or None: all up for all, one leader, the model ready."""
        leaders = set()
        for node in self.nodes:
            found, status = node.ask({"do": "nodes"}), node.ask({"do": "status"})
            if not found or not status or not status.get("cluster"):
                return f"{node.name} does not answer"
            states = {other["name"]: other["state"] for other in found["nodes"]}
            if states != {other.name: "up" for other in self.nodes}:
                return f"{node.name} sees {states}"
            instances = [(one["state"], one["problem"]) for one in status["instances"]]
            if [state for state, _ in instances] != ["ready"]:
                return f"on {node.name} the instance is {instances}"
            leaders.add(status["cluster"]["leader"])
        return None if len(leaders) == 1 and None not in leaders else f"the leaders are {leaders}"

    def stages(self):
        """[(node, layers)] by the first node that answers."""
        for node in self.nodes:
            status = node.is_running() and node.ask({"do": "status"})
            if status and status["instances"]:
                return [
                    (stage["node"], stage["n_layers"]) for stage in status["instances"][0]["stages"]
                ]
        return []

    def clear(self):
        for node in self.nodes:
            if node.is_running():
                node.go_on()
        super().clear()
        if self.wire:
            self.wire.close()
        self.story.close()


# ---- what a fault does: each returns what heals it
# ------------------------------------------------


def kill(world, node, fault):
    node.die()
    return node.start


def end(world, node, fault):
    """SIGTERM: it ends when the streams of its readers have."""
    node.dead_on_purpose = True
    process = node.process
    process.terminate()

    def heal():
        if node.process is process:
            check_equal(node.ended(30), 0, f"exit status of {node.name} after SIGTERM")
            node.start()

    return heal


def power(world, node, fault):
    """All at once."""
    gone = [other for other in world.nodes if other.is_running()]
    for other in gone:
        other.die()

    def heal():
        for other in gone:
            if not other.is_running():
                other.start()

    return heal


def stop(world, node, fault):
    node.pause()
    process = node.process
    return lambda: process.send_signal(signal.SIGCONT)


def change_paths(world, paths, weather):
    key = object()
    world.wire.change(key, paths, weather)
    return lambda: world.wire.change(key, [], None)


def cut(world, node, fault):
    other = world.nodes[fault.other]
    return change_paths(
        world, [(node.number, other.number), (other.number, node.number)], Weather(cut=True)
    )


def cut_one_way(world, node, fault):
    return change_paths(world, [(node.number, world.nodes[fault.other].number)], Weather(cut=True))


def isolate(world, node, fault):
    return change_paths(world, world.wire.around(node.number), Weather(cut=True))


def slow(world, node, fault):
    delay = 5_000 + 75_000 * fault.amount
    return change_paths(
        world, world.wire.around(node.number), Weather(delay_us=delay, jitter_us=delay / 2)
    )


def lossy(world, node, fault):
    return change_paths(
        world,
        world.wire.everywhere(),
        Weather(loss_ppm=5_000 + 95_000 * fault.amount, jitter_us=2000),
    )


def full_disk(world, node, fault):
    """As large as what lies on it."""
    found = os.statvfs(node.state)
    world.disk(node, max(found.f_blocks - found.f_bfree, 1) * found.f_frsize)
    return lambda: world.disk(node, DISK_BYTES)


def memory(world, node, fault):
    """No more than it has and up to 4 MiB. A process that dies of that is as good as one that the
    kernel ended for want of memory: it is started again, and no crash."""
    process, life = node.process, node.life
    limited = [process.pid, *node.children()]
    for pid in limited:
        virtual = (
            int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        )
        resource.prlimit(
            pid,
            resource.RLIMIT_AS,
            (virtual + int(fault.amount * (4 << 20)), resource.RLIM_INFINITY),
        )
    node.dead_on_purpose = True

    def heal():
        if node.life != life or node.process is not process:
            return  # it was killed meanwhile, and is somebody else's to start
        if process.poll() is not None:
            world.tell(f"{node.name} had died of it, with {process.returncode}")
            node.process = None
            node.start()
            return
        node.dead_on_purpose = False
        for pid in limited:
            try:
                resource.prlimit(
                    pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                )
            except ProcessLookupError:
                pass

    return heal


def clock(world, node, fault):
    """Up to a day to and fro."""
    node.set_clock((fault.amount * 2 - 1) * 86400)
    return lambda: node.set_clock(0)


def of_children(number, after):
    def inflict(world, node, fault):
        children = node.children()
        for child in children:
            os.kill(child, number)

        def heal():
            for child in children:
                try:
                    os.kill(child, after)
                except ProcessLookupError:
                    pass

        return heal if after else lambda: None

    return inflict


INFLICT = {
    "kill": kill,
    "end": end,
    "power": power,
    "stop": stop,
    "cut": cut,
    "cut one way": cut_one_way,
    "isolate": isolate,
    "slow": slow,
    "lossy": lossy,
    "full disk": full_disk,
    "memory": memory,
    "clock": clock,
    "runner": of_children(signal.SIGKILL, 0),
    "hang": of_children(signal.SIGSTOP, signal.SIGCONT),
}


# ---- the start
# --------------------------------------------------------------------------------------


def found_cluster(world, drawn, names, more=()):
    """The nodes are one cluster, and the model is ready on several of them. Every node has a copy
    of the model's file."""
    options = ["--transport", drawn.transport, *([] if drawn.runners else ["--in-process"]), *more]
    sizes = itertools.cycle(drawn.memory.split("/"))
    sims = {
        name: ["--sim", world.sim(name, memory=f"{size}MiB", decode="60MB/s", flops="2GFLOP/s")]
        for name, size in zip(names, sizes)
    }
    nodes = world.cluster(*names, all=options, **sims)
    wait(
        "the links are known",
        lambda: len(
            [
                link
                for link in (nodes[0].ask({"do": "links"}) or {"links": []})["links"]
                if link["latency_ns"] is not None
            ]
        )
        == len(nodes) * (len(nodes) - 1),
        40,
    )
    for node in nodes:
        copy = world.copy_of_model(f"{node.name}.gguf")
        node.medley("add", copy)
    nodes[0].medley("place", MODEL, "--streams", "4", "-c", "256", seconds=90)
    wait("all see it ready", lambda: not world.problem(), 60)
    if len(world.stages()) == 1:  # one device has room for all of it
        nodes[0].medley(
            "move",
            MODEL,
            "--to",
            ",".join(f"{name}/sim:{name}:{n}" for name, n in zip(names, (3, 2))),
            seconds=60,
        )
    check(len(world.stages()) > 1, f"the model is on one node: {world.stages()}")
    return nodes
