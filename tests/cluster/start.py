"""From the start of a node to a member of the cluster: a known peer without discovery, mDNS with a
code, and again after that. The times are printed."""
import time

from harness import check, check_equal, run, wait

ALONE = ["--no-discovery"]


def linked(node, other):
    return (node.nodes() or {}).get(other) == "up"


def known_peer(world, laptop):
    tower = world.node("tower")
    with world.step("a known peer and a code on the command line, without discovery"):
        code = laptop.invite()
        tower.start(*ALONE, "--peer", laptop.address, "--join", code, "--sim", world.sim("two"))
        wait("tower is linked", lambda: linked(tower, "laptop"), 10)
        world.say(f"start to joined, known peer: {time.monotonic() - tower.started:.2f} s")
        laptop.wait_until({"laptop": "up", "tower": "up"})
        check("joined the cluster through" in tower.log_text(), "tower does not say that it joined")
    return tower


def lost_in_the_dark(world, laptop):
    attic = world.node("attic")
    with world.step("a node that listens finds nobody where the others do not announce themselves"):
        attic.start("--sim", world.sim("three"))
        wait("attic founds its own cluster", lambda: attic.leader() == "attic", 10)
        check(
            attic.status()["cluster"]["id"] != laptop.status()["cluster"]["id"],
            "attic is in the others' cluster",
        )
    return attic


def by_mdns(world, attic):
    cellar = world.node("cellar")
    with world.step("mDNS and a code on the command line"):
        code = attic.invite()
        cellar.start("--join", code, "--sim", world.sim("four"))
        wait("cellar is linked", lambda: linked(cellar, "attic"), 15)
        world.say(f"start to joined, mDNS: {time.monotonic() - cellar.started:.2f} s")
        attic.wait_until({"attic": "up", "cellar": "up"})
        check_equal(cellar.status()["cluster"]["id"], attic.status()["cluster"]["id"], "cluster")
    return cellar


def wrong_from_the_start(world, attic):
    shed = world.node("shed")
    with world.step(
        "a wrong code on the command line is said once; the node waits for a hand then"
    ):
        code = attic.invite()
        wrong = code[:-1] + ("A" if code[-1] != "A" else "B")
        shed.start("--join", wrong, "--sim", world.sim("five"))
        wait("shed waits", lambda: "waiting to be let in by" in shed.log_text(), 20)
        check_equal(
            shed.log_text().count("--join:"), 1, f"times that it is said in {shed.log_text()!r}"
        )
        check_equal(attic.status()["code"], code, "the code, which is still good")
        result = shed.medley("join", code)
        check("joined the cluster" in result.out, f"medley join says {result}")


def dial_problem(node, other):
    """Why dialling the other failed last, as this one says."""
    for each in node.json("nodes")["nodes"]:
        if each["name"] == other and each["dial_problem"]:
            return f"{each['dial_address']}: {each['dial_problem']}"
    return None


def again(world, laptop, tower):
    with world.step("a member that starts again is there at once"):
        tower.end()
        laptop.wait_until({"laptop": "up", "tower": "down"})
        # A first try may have met it while it ended.
        wait("it is refused there", lambda: "refused" in (dial_problem(laptop, "tower") or ""), 20)
        world.say(dial_problem(laptop, "tower"))
        said = laptop.medley("doctor", ok=None).out
        check("tower is down" in said and "refused" in said, said)
        check("nothing listens at that port" in said, said)
        tower.start()
        wait("tower is linked", lambda: linked(tower, "laptop"), 10)
        world.say(f"start to linked, a member: {time.monotonic() - tower.started:.2f} s")
        laptop.wait_until({"laptop": "up", "tower": "up"})
        check(
            "a node already runs here" in tower.medley("up", "--api", "none", ok=False).err,
            "two nodes run here",
        )


def scenario(world):
    laptop = world.node("laptop")
    with world.step("a cluster is founded at once with --new"):
        laptop.start("--new", *ALONE, "--sim", world.sim("one"))
        wait("laptop leads", lambda: laptop.leader() == "laptop", 10)
        world.say(f"start to founded: {time.monotonic() - laptop.started:.2f} s")
    tower = known_peer(world, laptop)
    attic = lost_in_the_dark(world, laptop)
    by_mdns(world, attic)
    wrong_from_the_start(world, attic)
    again(world, laptop, tower)


run(scenario)
