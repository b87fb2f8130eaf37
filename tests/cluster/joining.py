"""Machines come into a cluster: by mDNS and a code, by hand; and what is refused. MEDLEY_TRANSPORT:
tcp or quic."""
import os
import time

from harness import check, check_equal, run, wait

OPTIONS = ["--transport", os.environ.get("MEDLEY_TRANSPORT", "tcp")]
WRONG = "0000-0000"


def founds(world):
    laptop = world.node("laptop")
    with world.step("the first node founds a cluster after it found no other"):
        laptop.start(*OPTIONS, "--sim", world.sim("one"))
        wait("laptop leads", lambda: laptop.leader() == "laptop", 10)
        status = laptop.status()
        check_equal(
            (status["cluster"]["nodes"], status["cluster"]["voters"]), (1, 1), "nodes and voters"
        )
        check_equal(status["listening"][0], f"{laptop.address}:7979", "listens on")
        check_equal(laptop.nodes(), {"laptop": "up"}, "nodes")
    return laptop


def waits(world, laptop):
    tower = world.node("tower")
    with world.step("the second finds it by mDNS, and waits"):
        tower.start(*OPTIONS, "--sim", world.sim("two"))
        wait("tower shows words", lambda: "waiting to be let in by laptop" in tower.log_text(), 15)
        check(tower.is_waiting(), "tower is not waiting")
        laptop.wait_until({"laptop": "up", "tower": "waiting"})
        check(
            "waits to be let in" in tower.medley("status").out,
            "medley status does not say that it waits",
        )
        check_equal(tower.nodes(), {}, "nodes that tower lists")
        check("in no cluster yet" in tower.medley("invite", ok=False).err, "a stranger invites")
    return tower


def wrong_codes(world, laptop, tower):
    with world.step("a wrong code joins nothing, and says why"):
        code = laptop.invite()
        wrong = code[:-1] + ("A" if code[-1] != "A" else "B")
        result = tower.medley("join", wrong, ok=False)
        world.say(result.err)
        check("code" in result.err, f"the error does not speak of the code: {result}")
        check(tower.is_waiting(), "tower joined with a wrong code")
        result = tower.medley("join", "no-code!", tower.address, ok=False)
        check("code" in result.err, f"the error does not speak of the code: {result}")
        result = tower.medley("join", laptop.invite(), "10.77.0.77", ok=False, seconds=40)
        world.say(result.err)
        check("10.77.0.77" in result.err, f"the error does not name the host: {result}")


def joins(world, laptop, tower):
    with world.step("the code of medley invite joins at once"):
        code = laptop.invite()
        check_equal(laptop.status()["code"], code, "code in medley status")
        result = tower.medley("join", code)
        check(
            "joined the cluster" in result.out and "through laptop" in result.out,
            f"medley join says {result}",
        )
        world.say(f"medley join: {result.seconds:.2f} s")
        for node in (laptop, tower):
            node.wait_until({"laptop": "up", "tower": "up"})
            wait(f"{node.name} knows the leader", lambda node=node: node.leader() == "laptop")
            check_equal(node.status()["cluster"]["nodes"], 2, "nodes of the cluster")
        check_equal(laptop.status()["cluster"]["id"], tower.status()["cluster"]["id"], "cluster")
        check_equal(laptop.status()["code"], None, "the used code in medley status")
        check("already" in tower.medley("join", code, ok=False).err, "a member joins again")
    with world.step("both list the links, both ways, with a latency"):
        for node in (laptop, tower):
            wait(
                f"links on {node.name}",
                lambda node=node: {("laptop", "tower"), ("tower", "laptop")}
                == {
                    (link["from"], link["to"])
                    for link in node.json("links")["links"]
                    if link["up"] and link["latency_ns"]
                },
            )
    return code


def used_code(world, laptop, code):
    late = world.node("late")
    with world.step("a code is good once"):
        late.start(*OPTIONS, "--sim", world.sim("three"))
        wait("late is up", late.is_waiting)
        result = late.medley("join", code, laptop.address, ok=False)
        world.say(result.err)
        check(late.is_waiting(), "late joined with a used code")
        check_equal(laptop.status()["cluster"]["nodes"], 2, "nodes of the cluster")
    return late


def pair(laptop, late):
    """Both sides ask; the words."""
    there = late.answering("join", laptop.address)
    words = [there.question()]
    check_equal((laptop.nodes() or {}).get("late"), "waiting", "late on laptop")
    here = laptop.answering("admit", "late")
    words.append(here.question())
    check_equal(words[0], words[1], "words on both sides")
    check_equal(len(words[0].split()), 4, f"words in {words[0]!r}")
    return here, there, words[0]


def by_hand(world, laptop, late):
    with world.step("by hand: the member says no"):
        here, there, first = pair(laptop, late)
        here.say("n")
        check_equal(here.result().code, 1, "exit status of medley admit")
        there.say("y")
        result = there.result()
        check_equal(result.code, 1, f"exit status of medley join ({result})")
        check(late.is_waiting(), "late joined although it was refused")
    with world.step("by hand: the stranger says no"):
        here, there, second = pair(laptop, late)
        check(first != second, "the words are the same again")
        there.say("n")
        check_equal(there.result().code, 1, "exit status of medley join")
        here.say("y")
        result = here.result()
        check_equal(result.code, 1, f"exit status of medley admit ({result})")
        check(late.is_waiting(), "late joined although it refused")
        check_equal(laptop.status()["cluster"]["nodes"], 2, "nodes of the cluster")
    with world.step("by hand: both say yes"):
        here, there, _ = pair(laptop, late)
        here.say("y")
        there.say("y")
        results = here.result(), there.result()
        check("late is in the cluster" in results[0].out, f"medley admit says {results[0]}")
        check("joined the cluster" in results[1].out, f"medley join says {results[1]}")
        for node in world.nodes:
            node.wait_until({"laptop": "up", "tower": "up", "late": "up"}, 20)
        wait("three vote", lambda: laptop.status()["cluster"]["voters"] == 3)


def scenario(world):
    begin = time.monotonic()
    laptop = founds(world)
    tower = waits(world, laptop)
    wrong_codes(world, laptop, tower)
    code = joins(world, laptop, tower)
    late = used_code(world, laptop, code)
    by_hand(world, laptop, late)
    world.say(f"all in {time.monotonic() - begin:.1f} s")


run(scenario)
