"""Alerts: a node is killed, a device gets hot, memory runs out; each is raised, shown everywhere and
cleared. A leader that dies in between neither loses an alert nor doubles one."""
import json
import subprocess
import threading
import time

from harness import World, check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat and a dog."
# At full load it would settle at 120 C, half-way in 3 s; its work is paused at 85 C.
HOT = {
    "memory": "64MiB",
    "decode": "60MB/s",
    "flops": "1GFLOP/s",
    "power_idle": "5W",
    "power_max": "105W",
    "thermal_mass": "5J/K",
    "thermal_resistance": "0.9K/W",
    "limit": "90C",
    "throttle": "30%",
}


class Governed(World):
    governed = True


def up(node):
    return {alert["id"]: alert for alert in node.json("alerts")["alerts"]}


def find(node, kind, about):
    return [a for a in up(node).values() if a["kind"] == kind and a["about"] == about]


def raised_events(node, kind, *words):
    lines = node.medley("events", "--json").out.splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    return [
        text
        for text in texts
        if f"alert {kind}: " in text and all(word in text for word in words)
    ]


def scenario(world):
    options = {
        "laptop": ["--sim", world.sim("laptop", memory="4MiB")],
        "tower": ["--sim", world.sim("tower", **HOT)],
        "attic": ["--sim", world.sim("attic", memory="4MiB")],
    }
    with world.step("three nodes, and all is well"):
        laptop, tower, attic = nodes = world.cluster("laptop", "tower", "attic", **options)
        wait("three vote", lambda: laptop.status()["cluster"]["voters"] == 3)
        laptop.json("place", world.model, "--streams", "1", "-c", "512")
        check_equal(up(laptop), {}, "alerts")
        check("all is well" in laptop.medley("alerts").out, laptop.medley("alerts").out)

    with world.step("a node is killed: an alert on all others, and gone when it is back"):
        follower = laptop.popen(
            "alerts", "--follow", "--json", stdout=subprocess.PIPE, text=True
        )
        follower.stdout.readline()  # how it is, so what comes is followed
        attic.kill()
        began = time.monotonic()
        wait("laptop says so", lambda: find(laptop, "node_lost", "attic"), 20)
        world.say(f"raised {time.monotonic() - began:.1f} s after the kill")
        wait("tower says so", lambda: find(tower, "node_lost", "attic"), 10)
        alert = find(tower, "node_lost", "attic")[0]
        check_equal(alert["severity"], "critical", "severity")
        check("medley up" in alert["mend"], alert)
        status, answer = tower.http("GET", "/api/alerts")
        check_equal((status, answer["alerts"]), (200, [alert]), "GET /api/alerts")
        attic.start()
        attic.wait_until({"laptop": "up", "tower": "up", "attic": "up"}, 30)
        wait("it is over", lambda: not find(tower, "node_lost", "attic"), 30)
        over = laptop.json("alerts")["cleared"]
        check_equal([a["about"] for a in over], ["attic"], "alerts that are over")
        check(over[0]["cleared_ms"] >= over[0]["raised_ms"], over)
        follower.terminate()
        turns = [json.loads(line) for line in follower.communicate()[0].splitlines()]
        check_equal([list(turn) for turn in turns], [["raised"], ["cleared"]], "followed")

    with world.step("a device that gets hot, by lines that somebody sets"):
        laptop.medley("alerts", "--set", "device_hot.raise=70")
        laptop.medley("alerts", "--set", "device_hot.clear=40")
        laptop.medley("alerts", "--set", "device_hot.raise_after_s=1")
        laptop.medley("alerts", "--set", "device_hot.clear_after_s=1")
        refused = laptop.medley("alerts", "--set", "device_hot.raise=101", ok=False)
        check("1 to 100" in refused.err, refused)
        stop = threading.Event()

        def work():
            while not stop.is_set():
                tower.chat(PROMPT, model=NAME, max_tokens=40)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        try:
            wait("attic says so", lambda: find(attic, "device_hot", "tower/sim:tower"), 60)
            shown = attic.medley("alerts").out
            check("of the way to the temperature" in shown and "Give it air" in shown, shown)
        finally:
            stop.set()
            worker.join()
        wait("it has cooled", lambda: not find(attic, "device_hot", "tower/sim:tower"), 60)

    with world.step("memory that is nearly full, and who mutes it"):
        for field in ("raise=5", "raise_after_s=1", "clear_after_s=1"):
            laptop.medley("alerts", "--set", f"memory_full.{field}")
        wait("it is raised", lambda: find(laptop, "memory_full", "tower/sim:tower"), 30)
        laptop.medley("alerts", "--mute", "memory_full@tower/sim:tower", "--for", "1h")
        wait("it is muted", lambda: not find(laptop, "memory_full", "tower/sim:tower"), 30)
        check_equal(laptop.json("alerts")["cleared"][-1]["why"], "muted", "why it is over")
        laptop.medley("alerts", "--unmute", "memory_full@tower/sim:tower")
        wait("it is back", lambda: find(laptop, "memory_full", "tower/sim:tower"), 30)

    with world.step("a node that is stopped in order is not lost, whoever leads"):
        before = len(raised_events(tower, "node_lost"))
        attic.end()
        wait("attic is down", lambda: tower.nodes()["attic"] == "down")
        time.sleep(2.5)  # it is raised after 1 s
        attic.start()
        attic.wait_until({"laptop": "up", "tower": "up", "attic": "up"}, 30)
        check_equal(laptop.leader(), "laptop", "leader")
        laptop.end()
        wait("another leads", lambda: tower.leader() in ("tower", "attic"), 20)
        time.sleep(2.5)
        laptop.start()
        laptop.wait_until({"laptop": "up", "tower": "up", "attic": "up"}, 30)
        check_equal(len(raised_events(tower, "node_lost")), before, "losses")
        wait("laptop leads", lambda: laptop.leader() == tower.leader() is not None, 20)

    with world.step("the leader dies: the alert stays, is not raised again, and clears"):
        leader = next(node for node in nodes if node.name == laptop.leader())
        one, other = [node for node in nodes if node is not leader]
        about = "tower/sim:tower"
        lost = len(raised_events(one, "node_lost", leader.name))
        before = len(raised_events(one, "memory_full"))
        leader.kill()
        wait("another raises the loss", lambda: find(one, "node_lost", leader.name), 40)
        check(find(other, "memory_full", about), up(other))
        check_equal(len(raised_events(one, "memory_full")), before, "times that it was raised")
        leader.start()
        wait("the loss is over", lambda: not find(one, "node_lost", leader.name), 40)
        one.medley("alerts", "--unset", "memory_full.raise")
        wait("the memory is well", lambda: not find(one, "memory_full", about), 30)
        check_equal(len(raised_events(one, "node_lost", leader.name)), lost + 1, "its losses")
        wait("it says the same", lambda: up(leader) == up(other), 30)


run(scenario, Governed)
