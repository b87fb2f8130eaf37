"""Alerts of all kinds that real nodes can be brought to, each by what it warns of: a full disk, a
clock that jumped, certificates and tokens that end, a device's process that is killed, a slow
device, a model that has no machine, and speeds that were never, or long ago, measured. What links
do is tried by test_link_usual.c; the rest by alerts.py."""
import contextlib
import os
import signal
import struct
import subprocess
import threading
import time

from harness import API_PORT, check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat and a dog."
DAY_NS = 86400 * 10**9
QUICK = ("disk_full", "clock_off", "certificate_ending", "api_certificate_ending", "device_dying",
         "instance_slow", "instance_unhealthy", "calibration_missing", "calibration_stale")


def find(node, kind, about):
    alerts = node.json("alerts")["alerts"]
    return [a for a in alerts if a["kind"] == kind and a["about"] == about]


def line(node, kind, **fields):
    for field, value in fields.items():
        node.medley("alerts", "--set", f"{kind}.{field.rstrip('_')}={value}")


@contextlib.contextmanager
def raised(world, node, kind, about):
    """It is raised when this begins, and is over after what is done within."""
    alert = wait(f"{kind} is raised", lambda: find(node, kind, about), 30)[0]
    check(alert["text"] and alert["mend"], f"{alert}")
    world.say(f"{kind}: {alert['text']}")
    yield
    wait(f"{kind} is over", lambda: not find(node, kind, about), 30)


class Clock:
    """The wall clock of a node; the library adds to it what its file says."""

    def __init__(self, world, node):
        self.path = world.folder / f"{node.name}.clock"
        self.set_ns(0)
        node.more = {"LD_PRELOAD": os.environ["MEDLEY_CLOCK"], "CHAOS_CLOCK": str(self.path)}

    def set_ns(self, value):
        with open(self.path, "r+b" if self.path.exists() else "wb") as file:
            file.write(struct.pack("q", value))


@contextlib.contextmanager
def answering(node):
    """It answers one request after another."""
    ends = threading.Event()

    def ask():
        while not ends.is_set():
            node.chat(PROMPT, model=NAME, max_tokens=40)

    asks = threading.Thread(target=ask, daemon=True)
    asks.start()
    yield
    ends.set()
    asks.join()


def started(world):
    """laptop leads and is too small; tower computes; attic's speed was measured 200 days ago, and
    shed's never; neither measures by itself."""
    laptop, tower, attic, shed = (world.node(n) for n in ("laptop", "tower", "attic", "shed"))
    world.disk(attic, "64m")
    clock = Clock(world, attic)
    clock.set_ns(-200 * DAY_NS)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # one thread, as the node will have
    calibrates = attic.popen("devices", "--calibrate", env=attic.more, stdout=subprocess.DEVNULL)
    os.sched_setaffinity(0, cores)
    check_equal(calibrates.wait(100), 0, "medley devices --calibrate")
    clock.set_ns(0)
    options = {
        laptop: ["--sim", world.sim("laptop", memory="4MiB")],
        tower: ["--sim", world.sim("tower", memory="64MiB", decode="20MB/s")],
        attic: ["--api", f"{attic.address}:{API_PORT}", "--open", "--no-calibrate"],
        shed: ["--no-calibrate"],
    }
    laptop.start("--new", *options[laptop])
    wait("laptop founds a cluster", lambda: laptop.leader() == "laptop")
    for node in (tower, attic, shed):
        code = laptop.invite()
        node.start("--peer", laptop.address, *options[node])
        wait(f"{node.name} listens to commands", node.status)
        node.medley("join", code, laptop.address)
    names = ("laptop", "tower", "attic", "shed")
    laptop.wait_until({name: "up" for name in names}, 20)
    return laptop, tower, attic, shed, clock


def disk_and_clock(world, laptop, attic, clock):
    with world.step("a disk that is full"):
        disk = os.statvfs(attic.state)
        filler = attic.state / "filler"
        filler.write_bytes(bytes(int(disk.f_bavail * disk.f_bsize * 0.97)))
        with raised(world, laptop, "disk_full", "attic"):
            filler.unlink()
    with world.step("a clock that is off"):
        clock.set_ns(30 * 10**9)
        with raised(world, laptop, "clock_off", "attic"):
            clock.set_ns(0)


def endings(world, laptop):
    with world.step("certificates and tokens that end"):
        for kind in ("certificate_ending", "api_certificate_ending"):
            line(laptop, kind, raise_=3600)
            with raised(world, laptop, kind, "attic"):
                laptop.medley("alerts", "--unset", f"{kind}.raise")
        laptop.medley("token", "create", "guest", "--scope", "read", "--expires", "40d")
        check_equal(find(laptop, "token_ending", "guest"), [], "40 days are enough")
        line(laptop, "token_ending", raise_=60)
        with raised(world, laptop, "token_ending", "guest"):
            laptop.medley("token", "revoke", "guest")


def computing(world, laptop, tower, shed):
    with world.step("placed on tower"):
        for name in ("laptop", "attic", "shed"):
            laptop.medley("drain", name)
        ready = laptop.json("place", world.model, "--streams", "1", "-c", "512")["ready"]
        check_equal([stage["node"] for stage in ready["stages"]], ["tower"], "stages")
        instance = laptop.status()["instances"][0]["id"]
    with world.step("a device's process that dies"):
        line(laptop, "device_dying", raise_=2)
        for _ in range(2):
            pid = wait("it runs", tower.children)[0]
            os.kill(pid, signal.SIGKILL)
            wait("it has gone", lambda p=pid: p not in tower.children())
        with raised(world, laptop, "device_dying", "tower/sim:tower"):
            line(laptop, "device_dying", raise_=1000)
    with world.step("a model without a machine"):
        tower.kill()
        with raised(world, laptop, "instance_unhealthy", instance):
            laptop.medley("drain", "--undo", "shed")
    with world.step("a speed that was never measured, and so a forecast that does not hold"):
        with raised(world, laptop, "calibration_missing", "shed/cpu"):
            line(laptop, "instance_slow", raise_=99)
            with answering(shed), raised(world, laptop, "instance_slow", instance):
                line(laptop, "instance_slow", raise_=1, clear=2)
            laptop.medley("unload", NAME)


def scenario(world):
    with world.step("four nodes"):
        laptop, tower, attic, shed, clock = started(world)
        for kind in QUICK:
            line(laptop, kind, raise_after_s=1, clear_after_s=1)
    disk_and_clock(world, laptop, attic, clock)
    with world.step("a speed that was measured 200 days ago"):
        with raised(world, laptop, "calibration_stale", "attic/cpu"):
            line(laptop, "calibration_stale", raise_=300)
    computing(world, laptop, tower, shed)
    endings(world, laptop)  # at last: where there is a token, every request needs one


run(scenario)
