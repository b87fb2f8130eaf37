"""What a node shows of the others while somebody watches: their devices' heat and use, what they
fetch and drive, and who is gone. Order and arrival are checked, never a speed; times are printed."""
import http.client
import os
import signal
import threading
import time

from harness import World, check, check_equal, run, wait
from live_view import LiveView

NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat and a dog."
# Warms by 5 K/s at full load, and settles far above its limit.
HOT = {
    "memory": "64MiB",
    "decode": "60MB/s",
    "flops": "1GFLOP/s",
    "clock": "1500MHz",
    "power_idle": "5W",
    "power_max": "105W",
    "thermal_mass": "20J/K",
    "thermal_resistance": "1.5K/W",
    "limit": "90C",
    "throttle": "30%",
}
BARE = {"memory": "64MiB", "decode": "26MB/s", "flops": "1GFLOP/s"}  # knows no heat


class Governed(World):
    governed = True


def readings_arrive(world, laptop, tower):
    with world.step("whoever watches sees the readings of all nodes"):
        live = LiveView(laptop)
        live.wait(
            "the tower's temperature", lambda live: "temperature_c" in live.device("tower", "sim:tower")
        )
        live.wait("the tower's load", lambda live: "cpu_share" in live.node_named("tower")["load"])
        hot, bare = live.device("tower", "sim:tower"), live.device("laptop", "sim:laptop")
        check_equal(hot["governor"], "free", "the tower's governor")
        check(hot["power_w"] > 0 and hot["clock_mhz"] > 0 and hot["limit_c"] > 0, hot)
        for unknown in ("temperature_c", "power_w", "clock_mhz", "predicted_c"):
            check(unknown not in bare, f"unknown is missing: {bare}")
        check_equal(live.seen["snapshot"], 1, "snapshots")
    return live


def heat_arrives(world, live, laptop, tower):
    with world.step("heat arrives in the order in which it comes"):
        cool = live.device("tower", "sim:tower")["temperature_c"]
        seen = [cool]
        end = time.monotonic() + 60
        while seen[-1] < cool + 15:
            check(time.monotonic() < end, f"it does not get hot: {seen}")
            laptop.chat(PROMPT, model=NAME, max_tokens=20)
            now = live.device("tower", "sim:tower")["temperature_c"]
            if now != seen[-1]:
                seen.append(now)
        live.wait("tokens are counted", measured)
        world.say(f"temperatures: {seen}; {live.seen}; {live.bytes} bytes")


def power_arrives(world, live, laptop):
    with world.step("work that begins there is seen here"):
        delays = []
        for _ in range(5):
            live.wait("at rest", lambda live: power_of(live) < 20, 30)
            began = time.monotonic()
            work = threading.Thread(
                target=laptop.chat, args=(PROMPT,), kwargs={"model": NAME, "max_tokens": 40}
            )
            work.start()
            live.wait("at work", lambda live: power_of(live) > 40)
            delays.append(time.monotonic() - began)
            work.join()
        world.say(f"from the request to the view: {sorted(round(d, 2) for d in delays)} s")


def power_of(live):
    return live.device("tower", "sim:tower").get("power_w", 1000)


def measured(live):
    instance = live.view["instances"][NAME]
    return instance.get("measured_decode_tokens_per_s", 0) > 0


def same(one, other):
    """One of them is rounded to three digits."""
    return one is not None and abs(one - other) <= 0.01 * abs(other) + 1e-9


def metric_of(node, name):
    connection = http.client.HTTPConnection("127.0.0.1")
    connection.sock = node.connect()
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    lines = [line for line in text.splitlines() if line.startswith(name + "{")]
    return float(lines[0].rsplit(" ", 1)[1]) if lines else None


def forecast_is_compared(world, live, laptop, tower):
    with world.step("every node knows how the replies went beside the forecast"):
        served = wait("it is told", lambda: instance_of(laptop).get("served"), 30)
        rates = served["decode_tokens_per_s"], served["forecast_decode_tokens_per_s"]
        check(min(rates) > 0 and served["replies"] >= 6, served)
        check(abs(served["decode_error"] - (rates[0] / rates[1] - 1)) < 1e-6, served)
        check(served["first_token_s"] > 0, served)
        check(" tok/s (" in laptop.medley("status").out, "status shows it")
        live.wait(
            "the view, and so the page, has the same",
            lambda live: same(
                live.view["instances"][NAME].get("forecast_error_decode"),
                instance_of(laptop)["served"]["decode_error"],
            ),
        )
        wait(
            "and the metrics of its driver's machine",
            lambda: same(
                metric_of(tower, "medley_instance_forecast_error_decode"),
                instance_of(laptop)["served"]["decode_error"],
            ),
        )
        world.say(f"served: {served}")


def instance_of(asked):
    return next(one for one in asked.json("status")["instances"] if one["id"] == NAME)


def history(asked, **which):
    query = "&".join(f"{name}={value}" for name, value in which.items())
    return asked.http("GET", f"/api/history?{query}")


def id_of(live, name):
    nodes = live.view["nodes"]
    return next(id for id, node in nodes.items() if node.get("name") == name)


def minute_is_right(world, live, laptop):
    with world.step("the last minute of a device comes from its own node"):
        tower, own = id_of(live, "tower"), id_of(live, "laptop")
        status, minute = history(laptop, node=tower, device="sim:tower")
        check_equal(status, 200, minute)
        check_equal(minute["period_ms"], 500, "its period")
        check(abs(minute["end_ms"] - 1000 * time.time()) < 60e3, f"its end: {minute['end_ms']}")
        known = [value for value in minute["temperature_c"] if value is not None]
        check_equal(len(minute["temperature_c"]), 120, "values")
        check(len(known) > 3 and max(known) - min(known) > 10, f"it got hot: {known}")
        peak = live.device("tower", "sim:tower")["temperature_c"]
        check(min(known) <= peak <= max(known) + 5, f"{peak} is not in {known}")
        status, bare = history(laptop, node=own, device="sim:laptop")
        check_equal((status, set(bare["temperature_c"])), (200, {None}), "unknown stays unknown")
        check(any(value is not None for value in bare["free_bytes"]), bare["free_bytes"])
        for status, which in (
            (400, {"node": tower}),
            (404, {"node": tower, "device": "sim:other"}),
            (404, {"node": "0" * 64, "device": "sim:tower"}),
        ):
            found, answer = history(laptop, **which)
            check_equal(found, status, answer)
            check(answer["error"]["message"], answer)


def commands_show_it(world, laptop):
    with world.step("medley heat and medley top show the cluster's devices"):
        devices = laptop.json("heat")["devices"]
        check_equal([device["node"] for device in devices], ["tower", "laptop"], "hottest first")
        check(devices[0]["temperature_c"] > 30 and devices[0]["limit_c"] > 60, devices[0])
        check_equal(devices[1]["temperature_c"], None, "unknown is null")
        shown = laptop.medley("heat").out
        check("sim:tower" in shown.splitlines()[1], shown)
        view = laptop.json("top", "--cluster", "--once")
        check_equal(view["totals"]["devices"], 2, view["totals"])
        check("2 devices on 2 nodes" in laptop.medley("top", "--cluster", "--once").out, "summary")
        check("2 devices on 2 nodes" in laptop.medley("status").out, "status")


def stages_and_deaths_are_told(world, live, laptop, tower):
    with world.step("what a stage takes, and what the summary says of all"):
        stage = live.view["instances"][NAME]["stages"][0]
        check(1e6 < stage["memory_bytes"] < 64e6, stage)
        shown = laptop.medley("nodes", "--summary").out
        for words in ("2 devices on 2 nodes", "On average a device has", f"{NAME}, best on 1 of"):
            check(words in shown, shown)
        rows = shown.splitlines()
        check("PRESSURE" in rows[0] and any("tower" in row and " %" in row for row in rows), shown)
    with world.step("why a device's process died"):
        os.kill(tower.children()[0], signal.SIGKILL)
        live.wait("it is told", lambda live: "signal" in device_problem(live), 20)
        world.say(device_problem(live))
        live.wait("no pause", lambda live: "pause" not in live.view["instances"][NAME], 60)


def device_problem(live):
    return live.device("tower", "sim:tower").get("problem", "")


def down_stays(world, live, tower):
    with world.step("a node that is gone stays as down, without readings"):
        tower.kill()
        live.wait("it is down", lambda live: live.node_named("tower").get("state") == "down")
        device = live.wait("its device", lambda live: live.device("tower", "sim:tower"))
        check_equal(device["name"], "tower (simulated)", "its name")
        live.wait(
            "no readings", lambda live: "temperature_c" not in live.device("tower", "sim:tower")
        )
        pause = live.wait("a pause", lambda live: live.view["instances"][NAME].get("pause"))
        check("tower" in pause["why"] and pause["since_ms"] > 0, pause)
    with world.step("and is back with them"):
        tower.start()
        live.wait(
            "the tower's temperature",
            lambda live: "temperature_c" in live.device("tower", "sim:tower"),
            30,
        )
        live.wait("no pause", lambda live: "pause" not in live.view["instances"][NAME], 60)


def scenario(world):
    with world.step("two nodes; the model is on the one that gets hot"):
        laptop, tower = world.cluster(
            "laptop",
            "tower",
            laptop=["--sim", world.sim("laptop", **BARE)],
            tower=["--sim", world.sim("tower", **HOT)],
        )
        laptop.medley("place", world.model, "--streams", "1", "-c", "512")
        wait("it is on the tower", lambda: on_tower(laptop))
    live = readings_arrive(world, laptop, tower)
    heat_arrives(world, live, laptop, tower)
    power_arrives(world, live, laptop)
    forecast_is_compared(world, live, laptop, tower)
    minute_is_right(world, live, laptop)
    commands_show_it(world, laptop)
    stages_and_deaths_are_told(world, live, laptop, tower)
    down_stays(world, live, tower)
    with world.step("the stream has had no gap"):
        check_equal(live.problem, None, "the stream")
        check_equal(live.seen["snapshot"], 1, "snapshots")
        live.close()


def on_tower(node):
    return [stage["device"] for instance in node.status()["instances"] for stage in instance["stages"]] == [
        "sim:tower"
    ]


run(scenario, Governed)
