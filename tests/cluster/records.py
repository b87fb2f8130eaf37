"""Records of requests: where an answer was computed, and, when the machine that computes it is
killed, the pause with its reason while it lasts and afterwards, and the machine that went on."""
import threading
import time

from harness import check, check_equal, run, wait

TEXT = "Tell me a story about a fox."


class Answer(threading.Thread):
    def __init__(self, node, model):
        super().__init__(daemon=True)
        self.node, self.model, self.pieces, self.error = node, model, [], None
        self.start()

    def run(self):
        try:
            for _, piece in self.node.stream(TEXT, model=self.model, max_tokens=120):
                self.pieces.append(piece)
        except BaseException as error:  # told by the thread that waits for it
            self.error = error


def records(node):
    status, answer = node.http("GET", "/api/requests")
    check_equal(status, 200, f"{answer}")
    return answer


def the_one_under_way(node):
    found = records(node)["under_way"]
    return found[0] if found else None


def check_times(record):
    """Each stage computed, and what stages and links took is not more than there was."""
    ran = record["prefill_ms"] + record["decode_ms"]
    for stage in record["stages"]:
        check(0 < stage["compute_ms"] <= ran, f"{record}")
        check(stage["link_bytes"] > 0 and stage["link_ms"] is not None, f"{record}")
    parts = [stage[part] for stage in record["stages"] for part in ("compute_ms", "wait_ms", "link_ms")]
    # one prompt in one piece, and a token after the other: nothing is under way twice
    check(0.5 * ran < sum(parts) + record["back_ms"] < 1.05 * ran, f"{record}")


def scenario(world):
    with world.step("an answer that another machine computes"):
        options = {"tower": ["--sim", world.sim("tower", decode="40MB/s")],
                   "attic": ["--sim", world.sim("attic", decode="30MB/s")],
                   "laptop": ["--sim", world.sim("laptop", memory="32MiB", decode="10MB/s")]}
        laptop, tower, attic = world.cluster("laptop", "tower", "attic", **options)
        ready = laptop.json("place", world.model, "--kv", "f32")["ready"]
        check_equal(ready["kv"], "f32", "type of the KV cache")
        model = laptop.status()["models"][0]["name"]
        stages = [(stage["node"], stage["device"]) for stage in ready["stages"]]
        driver = {"tower": tower, "attic": attic}[stages[0][0]]
        for node in (attic, tower):
            wait(f"{node.name} has a copy", lambda n=node: n.medley("add", world.model).out)
        whole = laptop.chat(TEXT, model=model, max_tokens=120)
        record = records(laptop)["finished"][0]
        ids = {node["name"]: node["id"] for node in laptop.json("nodes")["nodes"]}
        check_equal(record["driver"], ids[driver.name], f"{record}")
        check_equal([(s["node"], s["device"]) for s in record["stages"]],
                    [(ids[node], device) for node, device in stages], f"{record}")
        check(0 < record["slowest_stage_ms"] <= record["total_ms"], f"{record}")
        check_times(record)
        check_equal(record["pauses"], [], f"{record}")
        check("fox" not in str(record), "the record has the prompt")
    with world.step("killed in the middle: the pause, its reason, and who went on"):
        answer = Answer(laptop, model)
        wait("it answers", lambda: len(answer.pieces) > 5 or answer.error, 30)
        driver.kill()
        begun = time.monotonic()
        pause = wait("the pause", lambda: (the_one_under_way(laptop) or {}).get("pauses"), 20)[0]
        world.say(f"after {time.monotonic() - begun:.1f} s: {pause}")
        check(pause["why"] and not pause["over"], f"{pause}")
        answer.join(60)
        check(not answer.error, f"{answer.error}")
        check_equal("".join(answer.pieces), whole, "the text")
        record = records(laptop)["finished"][0]
        check_equal(record["outcome"], "done", f"{record}")
        check(record["pauses"] and record["pauses"][0]["over"], f"{record}")
        check(record["pauses"][0]["ms"] > 0, f"{record}")
        check(record["driver"] != ids[driver.name], f"{record}")
        world.say(f"{record['pauses']}, then {record['stages']}")


run(scenario)
